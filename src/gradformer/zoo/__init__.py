"""The fourteen baselines, one file each. All files of this folder are imported, so that a model is
known once its file lies here; but for kernels, which need Triton and are imported where they run.

Message passing: ``gcn``, ``gat`` and ``gin`` (over ``mpnn``), ``gatedgcn``. Transformers along
edges: ``gt``, ``san`` (``clamped``, ``complete_graph``, ``eigenpairs``). Over all nodes:
``graphgps``, ``sat`` (``subgraphs``), ``lgi_gt``, ``graphtrans`` (``postnorm``, ``convs``),
``graphormer`` (``path_bias``, ``path_kernels``), ``deepgraph`` (``substructures``, ``shapes``),
``egt`` (``singular``), ``kdlgt`` (``linear_attention``, ``anchors``). Many have ``tokens``, read by
``row_reader``, and look at ``all_pairs``; ``precomputed`` is what a store may hold for them.
"""

from importlib import import_module
from pkgutil import iter_modules

for _found in iter_modules(__path__):
    if not _found.name.endswith("_kernels"):
        import_module(f"{__name__}.{_found.name}")
