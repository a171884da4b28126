"""The appendix: classes of the nodes of one graph."""

from __future__ import annotations

from gradformer.studies.study import Study
from gradformer.studies.table1 import cells

STUDY = Study(
    name="nodes",
    title="Appendix: node classification",
    text="Each dataset is one graph; the stated batch size is read as full-batch training. GCN, "
    "which is not in the paper's table, is trained in the same way. The stated 200 epochs at rate "
    "1e-4 are then 200 small steps, and the public splits of Cora and Citeseer have 140 and 120 "
    "labels to learn from: at the end GraphGPS still improves and Gradformer has learned these "
    "labels by heart, both far below the paper's numbers, whose split is not stated.",
    datasets=("cora", "citeseer", "actor"),
    models=("gradformer", "graphgps", "gcn"),
    cells=cells,
)
