"""GT for node classes: the same model and the same names."""

from __future__ import annotations

from tests.golden.adapters.gt import subjects

__all__ = ["subjects"]
