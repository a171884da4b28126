"""Table 1 with all fourteen baselines, on its smallest datasets."""

from __future__ import annotations

from gradformer.studies.study import Study
from gradformer.studies.table1 import cells

STUDY = Study(
    name="baselines",
    title="Table 1: all fourteen baselines",
    text="The smallest datasets of Table 1, where ten seeds of most models are affordable on a "
    "CPU; `--dataset` adds others. Each baseline has the layers, width, heads and dropout of "
    "Gradformer's recipe as far as it has such options, and is trained by the same recipe: no "
    "model but Gradformer (`tuned`) was searched for.",
    datasets=("mutag", "imdb-binary"),
    models=(
        *("gradformer", "gcn", "gat", "gin", "gatedgcn", "gt", "san", "graphormer", "graphtrans"),
        *("sat", "egt", "graphgps", "lgi_gt", "kdlgt", "deepgraph"),
    ),
    cells=cells,
    printed="table1",
)
