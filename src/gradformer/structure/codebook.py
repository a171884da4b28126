"""What a pair's byte means: one byte a pair, 256 values of ψ a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError

UNREACHABLE = 255
"""The byte of a pair without a path, in every codebook."""

SATURATED = 254
"""The largest byte of a pair with a path; longer distances share it."""

FAR = 510.0
"""ψ of an unreachable pair: so far that any decay below 1 has vanished."""


@dataclass(frozen=True, eq=False)
class Codebook:
    """ψ for each byte: ``values`` [256] float64, in whose unit a decay's start points are.

    >>> HOPS.values[[0, 7, 254, 255]].tolist()
    [0.0, 7.0, 254.0, 510.0]
    >>> Codebook.from_dict(HOPS.to_dict()) == HOPS
    True
    """

    name: str
    values: NDArray[np.float64]

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        if values.shape != (256,) or not np.isfinite(values).all():
            raise InputError(
                f"codebook {self.name!r}: values have shape {values.shape}, "
                "expected 256 finite numbers, one for each byte"
            )
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Codebook)
            and self.name == other.name
            and np.array_equal(self.values, other.values)
        )

    def __hash__(self) -> int:
        return hash((self.name, self.values.tobytes()))

    @classmethod
    def uniform(cls, name: str, largest: float) -> Codebook:
        """Bytes 0…254 spread evenly over ψ from 0 to ``largest``."""
        values = np.arange(256, dtype=np.float64) * (largest / SATURATED)
        values[UNREACHABLE] = FAR
        return cls(name, values)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Codebook:
        """The inverse of :meth:`to_dict`."""
        return cls(saved["name"], saved["values"])

    def to_dict(self) -> dict[str, Any]:
        """Name and values as plain numbers, for JSON."""
        return {"name": self.name, "values": self.values.tolist()}

    def encode(self, psi: NDArray[Any]) -> NDArray[np.uint8]:
        """The byte of the nearest value for each ψ ≥ 0; infinite ψ is unreachable.

        ψ is rounded to a millionth of the range first, so that two orders of summation that differ
        in their last bits give the same byte.
        """
        known = self.values[: SATURATED + 1]
        grain = max(float(known[-1]), 1.0) * 1e-6
        steady = np.where(np.isinf(psi), 0.0, np.rint(psi / grain) * grain)
        nearest = np.searchsorted((known[1:] + known[:-1]) / 2, steady)
        return np.where(np.isinf(psi), UNREACHABLE, nearest).astype(np.uint8)


HOPS = Codebook.uniform("hops", SATURATED)
"""The codebook of shortest-path hops: the byte is the distance."""

FIXED = {
    "hops": HOPS,
    "curvature": Codebook.uniform("curvature-ollivier", 25.4),
    "similarity": Codebook.uniform("similarity", 2.0),
}
"""The codebook of each index where graphs come one at a time: curvature in steps of 0.1."""
