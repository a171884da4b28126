"""Missing labels, and the scale on which a regression is learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError
from gradformer.graphs.arrays import tupled


def is_labelled(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Where y has a label, same shape as y: not NaN for floats, not negative for classes."""
    return ~np.isnan(y) if y.dtype.kind == "f" else y >= 0


@dataclass(frozen=True)
class TargetScale:
    """Mean and standard deviation of each regression target: z = (y − mean) / std.

    A model learns z, which has the same size whatever the unit; predictions are given as y.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def fit(cls, y: NDArray[np.float32]) -> TargetScale:
        """The scale of y [rows, targets] of the training split; NaN is left out.

        A constant target keeps std 1, so that it is only shifted.
        """
        unlabelled = ~is_labelled(y).any(axis=0)
        if unlabelled.any():
            raise InputError(
                f"target {int(unlabelled.argmax())} has no value in the training split; "
                "leave it out, or split the data in another way"
            )
        values = y.astype(np.float64)
        mean, std = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
        # Rounding alone may give a constant column a tiny std.
        constant = std <= 1e-7 * np.abs(mean)
        return cls(tuple(mean.tolist()), tuple(np.where(constant, 1.0, std).tolist()))

    def invert(self, z: NDArray[Any]) -> NDArray[Any]:
        """z → y, in the user's units and as precise as z."""
        return (z.astype(np.float64) * self.std + self.mean).astype(z.dtype)

    def to_dict(self) -> dict[str, tuple[float, ...]]:
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> TargetScale:
        return cls(**tupled(saved))
