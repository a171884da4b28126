"""Table 1 with all fourteen baselines, on its smaller datasets."""

from __future__ import annotations

from gradformer.studies.study import Study
from gradformer.studies.table1 import cells

STUDY = Study(
    name="baselines",
    title="Table 1: all fourteen baselines",
    text="The smaller datasets of Table 1, with the same recipes; `--dataset` adds others. "
    "GraphTrans on NCI1 has its authors' layers, width, dropout and learning rate. No model but "
    "Gradformer (`tuned`) was searched for.",
    datasets=("mutag", "imdb-binary", "proteins", "nci1"),
    models=(
        *("gradformer", "gcn", "gat", "gin", "gatedgcn", "gt", "san", "graphormer", "graphtrans"),
        *("sat", "egt", "graphgps", "lgi_gt", "kdlgt", "deepgraph"),
    ),
    cells=cells,
    printed="table1",
)
