"""Gradformer: encoders, local modules, the layer, heads, the model; and kernels for its parts.

``base`` is the face of all models (``own``: those of users). From input to output: ``encoders``,
``layer`` with a ``local`` module (``gated``), ``heads``; together ``gradformer``, and ``official``
for the authors' checkpoints. ``conv`` is the layer for PyG. All are made of ``parts`` (norms,
dropout), linear ``maps``, sums over ``segments`` and ``edge_attention``; ``parallel`` adds up over
processes.

Each part has a plain form, and beside it, where they pay, kernels (``fused_…``, an autograd
function whose Triton code is in ``…_kernels``) or loops for a CPU (``norm_loops``,
``gated_loops``, ``drop_loops``):

* ``fused_norm``: ``norm_kernels`` over ``norm_tile_kernels``;
* ``fused_gated``, with ``fused_edge_norm``: ``gated_kernels``, ``edge_map_kernels``,
  ``edge_state_kernels``, ``edge_gradient_kernels``, ``map_gradient_kernels``,
  ``map_weight_kernels``, all over ``edge_tile_kernels``;
* ``fused_messages``: ``message_kernels``; ``fused_edge_attention``: ``edge_attention_kernels``;
* ``fused_linear``: ``linear_kernels``; ``fused_drop`` (``drop_operator`` where torch compiles),
  ``fused_encoding``, ``fused_pool``;
* ``pieces``: ``piece_kernels``, the last sum of all gradients.
"""
