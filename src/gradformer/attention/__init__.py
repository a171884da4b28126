"""The operation: attention decayed by distance, its tables, its layout, its engines.

``layout`` says where graphs lie, ``decay`` makes ``tables`` of factors, ``draws`` is the hash
behind all randomness. ``operation`` checks a call (``arguments``) and gives it to an engine, as far
as ``availability`` allows:

* the definition: ``reference``;
* on a CPU: ``cpu``, made of the compiled ``loops``;
* on a GPU: ``fused``, made of the Triton ``kernels``.

``selfcheck`` holds engines to the definition; ``compiling`` is for ``torch.compile``.
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
