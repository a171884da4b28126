"""The Triton code of the attention, and what launches it.

``launch`` chooses the kernels that take a batch, and their ``tiles``:

* graphs of one tile: ``small``;
* small graphs with narrow float32 heads: ``row_forward`` and ``row_backward``, whose programs are
  single warps, over ``row_operands``, ``lanes`` and ``lane_sums``;
* graphs of any size: ``tiled_forward``, ``tiled_query_gradients`` and ``tiled_key_gradients``.

They share what is done with ``pairs``, ``products`` on tensor cores, and ``draws``. ``decay`` makes
the tables of a decay. ``once`` marks backward passes that are kernels, here and in other rooms:
they have no second derivative.
"""
