"""The Triton code of :mod:`gradformer.model.fused`, by the same names.

* ``norm``, over ``norm_tiles``;
* ``gated``, over nodes; over edges ``edge_map`` and ``edge_states`` forward, ``edge_gradients`` and
  ``map_gradients`` (``map_weights``) backward, all in ``edge_tiles``;
* ``messages`` and ``edge_attention``;
* ``linear``;
* ``pieces``, the last sum of all gradients.
"""
