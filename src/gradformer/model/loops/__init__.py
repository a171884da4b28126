"""Parts of the model as loops for a CPU, which numba compiles: ``norm``, ``gated`` and ``drop``.

The plain forms are in :mod:`gradformer.model`. Where loops take their place, and what derivatives
they have, is told in :mod:`gradformer.attention.loops.running`.
"""
