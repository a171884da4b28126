"""Gradformer: encoders, local modules, the layer, heads, the model; and kernels for its parts.

``base`` is the face of all models (``own``: those of users). From input to output: ``encoders``,
``layer`` with a ``local`` module (``gated``), ``heads``; together ``gradformer``, and ``official``
for the authors' checkpoints. ``conv`` is the layer for PyG. All are made of ``parts`` (norms,
dropout), linear ``maps``, sums over ``segments`` and ``edge_attention``; ``parallel`` adds up over
processes.

Each part has its plain form here. Where they pay, kernels stand in for it on a GPU (``fused``, with
their Triton code in ``kernels``), and compiled ``loops`` on a CPU.
"""
