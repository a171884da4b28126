"""Recipes, the training step, trials and runs; and what a run is asked afterwards.

What is trained: a ``recipe`` of ``sections``, whose texts ``options`` reads, on ``data`` that
``origins`` finds. A ``trial`` is one seed; in ``fine_tuning`` it begins with the weights of another
run. It has ``weights`` in one vector, ``losses`` (``fused_loss``) and an ``optimizer``
(``fused_update``), together a ``step``: ``capture`` records it, with kernels of ``precompile``, or
it has as many ``threads`` as it is worth. ``loop`` trains trials, ``epochs`` of them, until they
end or someone asks to ``stop``; on a CPU in ``lanes``, as far as ``memory`` goes.

A run is a ``folder`` that ``fit`` begins and ``trials`` fills, all or nothing (``files``): each
``checkpoint``, ``records``, ``keepsakes``; ``progress`` is shown, ``distributed`` processes share
it, and nothing that is ``ambient`` in torch changes it. ``run`` opens it: ``inference`` over
``outputs``, ``metrics``, in the user's ``wording``; ``export`` with a ``card`` and a ``program``. A
``search`` carries out a ``plan`` and writes down ``attempts``.
"""
