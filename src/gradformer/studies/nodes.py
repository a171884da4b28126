"""The appendix: classes of the nodes of one graph."""

from __future__ import annotations

from gradformer.studies.study import Study
from gradformer.studies.table1 import cells

STUDY = Study(
    name="nodes",
    title="Appendix: node classification",
    text="Each dataset is one graph; the stated batch size is read as full-batch training. GCN, "
    "which is not in the paper's table, is trained in the same way.",
    datasets=("cora", "citeseer", "actor"),
    models=("gradformer", "graphgps", "gcn"),
    cells=cells,
)
