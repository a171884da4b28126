"""The operation: attention decayed by distance, its tables, its layout, its engines."""

from gradformer.attention.availability import current_engine, set_engine, use_engine
from gradformer.attention.decay import Decay
from gradformer.attention.layout import Layout, Rows
from gradformer.attention.operation import decay_attention, joint_attention, why_not_fused
from gradformer.attention.tables import Table, Tables

__all__ = [
    "Decay",
    "Layout",
    "Rows",
    "Table",
    "Tables",
    "current_engine",
    "decay_attention",
    "joint_attention",
    "set_engine",
    "use_engine",
    "why_not_fused",
]
