"""Tables that an attention looks up by the byte of a pair, and how their gradients are sent."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Shares:
    """Parameters of the tables of all layers, [layers, heads, p], for gradients in many summands.

    An engine whose programs have a summand each gives them as they are; those of all layers are
    added at once.
    """

    parameters: Tensor
    _made: dict[int, tuple[Tensor, ...]] = field(default_factory=dict)

    def of(self, layer: int, count: int) -> Tensor:
        """One layer's, as often as there will be summands: [heads, p, count]."""
        if count not in self._made:
            spread = self.parameters[..., None].expand(*self.parameters.shape, count)
            self._made[count] = spread.unbind()
        return self._made[count][layer]


@dataclass(frozen=True, eq=False)
class Table:
    """A table [heads, 256], and, if it has few parameters, how it changes with each of them.

    Shapes: value [heads, 256]; parameters [heads, p]; jacobian [p, heads, 256] without a graph.
    An engine may send the gradient through ``value``, or contract it with ``jacobian`` and send
    the result to ``parameters``, or its summands to :meth:`spread`: all are the same derivative.
    """

    value: Tensor
    parameters: Tensor | None = None
    jacobian: Tensor | None = None
    shares: Shares | None = None
    layer: int = 0

    def spread(self, count: int) -> Tensor:
        """The parameters for a gradient of ``count`` summands, [heads, p, count]."""
        assert self.parameters is not None
        if self.shares is None or count == 1:
            return self.parameters[..., None].expand(*self.parameters.shape, count)
        return self.shares.of(self.layer, count)


@dataclass(frozen=True, eq=False)
class Tables:
    """score ← score · mul[h, byte] + add[h, byte]; an absent table is 1 or 0 everywhere."""

    mul: Table | None
    add: Table | None
