"""The operation: attention decayed by distance, its tables, its layout, its engines.

``layout`` says where graphs lie, ``decay`` makes ``tables`` of factors (``fused_decay``: in one
kernel), ``draws`` is the hash behind all randomness. ``operation`` checks a call (``arguments``)
and gives it to an engine, as far as ``availability`` allows:

* the definition: ``reference``;
* on a CPU: ``cpu`` with ``cpu_kernels`` over ``cpu_products``, made of vectors (``lanes``), by
  ``loops`` that numba compiles;
* on a GPU: ``fused``; ``launch`` chooses between ``small_kernels``, ``row_forward`` and
  ``row_backward``, ``tiled_forward``, ``tiled_query_gradients`` and ``tiled_key_gradients``, in
  ``tiles``. They share ``pair_kernels``, ``product_kernels``, ``draw_kernels``, ``lane_kernels``
  (``lane_sums``) and ``row_operands``.

``selfcheck`` holds engines to the definition; ``compiling`` and ``once`` are for ``torch.compile``
and for second derivatives.
"""

from gradformer.attention.availability import use_engine
from gradformer.attention.decay import Decay
from gradformer.attention.layout import Layout, Rows
from gradformer.attention.operation import decay_attention, joint_attention
from gradformer.attention.tables import Table, Tables

__all__ = [
    "Decay",
    "Layout",
    "Rows",
    "Table",
    "Tables",
    "decay_attention",
    "joint_attention",
    "use_engine",
]
