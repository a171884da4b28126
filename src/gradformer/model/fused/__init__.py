"""Parts of the model as autograd functions that are kernels, for a GPU.

The plain forms are in :mod:`gradformer.model`. The Triton code is in
:mod:`gradformer.model.kernels`, or beside the function.

* what enters the first layer: ``encoding``;
* message passing: ``messages``, ``edge_attention``, and ``gated`` with the norm of its edge states
  inside (``edge_norm``);
* ``linear`` maps, batch ``norm``, dropout: ``drop`` (``drop_operator`` where torch compiles);
* sums over the nodes of a graph: ``pool``.

``pieces`` collects what their backward passes leave of the gradients of parameters, for one last
sum.
"""
