"""The decay: tables per head that turn a distance byte into a factor and a summand of a score."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, logsigmoid

from gradformer.attention.availability import runs_kernels
from gradformer.attention.tables import Shares, Table, Tables
from gradformer.errors import ConfigError, at_least, choice, finite
from gradformer.structure.codebook import HOPS, Codebook

SHAPES = ("exponential", "linear", "free")
TARGETS = ("logit", "weight")
UNREACHABLE = ("far", "full", "blocked")
LEAST_WIDTH = 1e-2  # from start to end of the linear shape


class Decay(nn.Module):
    r"""λ, start points and shape of the decay; makes the tables that the attention looks up.

    .. math::
        M_h(\psi) = \lambda^{f(\psi - sp_h)}, \quad f(t) = \max(t, 0) + \text{slope}\cdot\min(t, 0)
        \qquad\text{or}\qquad
        M_h(\psi) = \operatorname{clamp}\Bigl(\frac{end_h - \psi}{end_h - sp_h}, 0, 1\Bigr)

    acting on the logit (the paper's equation: score · M) or on the weight (score + log M).

    Args:
        heads: number of heads.
        decay: λ in [0, 1]; 1 is plain attention.
        start: initial start point sp, in the unit of the codebook; ``spread`` s > 0 places the
            heads evenly over [start − s, start + s].
        sets: 1 shares the start points between all layers; the number of layers gives each its own.
        shape: ``exponential``, ``linear`` (with a learnable end point), or ``free``: every entry
            of the table is learned, beginning at the exponential.
        on: ``logit`` or ``weight``.
        slope: of f below the start point (LeakyReLU); 0 is the paper's ReLU.
        unreachable: byte 255 is ``far`` (its ψ in the codebook), ``full`` (M = 1) or ``blocked``.
        learn_decay: learn λ per head, as a sigmoid.
        profile: add a learned table, zero at first, to the score.
        end: initial end point of the linear shape.
        codebook: ψ of each byte.
    """

    def __init__(
        self,
        heads: int,
        *,
        decay: float = 0.6,
        start: float = 2.0,
        spread: float = 0.0,
        sets: int = 1,
        shape: str = "exponential",
        on: str = "logit",
        slope: float = 0.0,
        unreachable: str = "far",
        learn_decay: bool = False,
        profile: bool = False,
        end: float = 10.0,
        codebook: Codebook = HOPS,
    ) -> None:
        super().__init__()
        self.shape = choice("decay.shape", shape, SHAPES)
        self.on = choice("decay.on", on, TARGETS)
        self.unreachable = choice("decay.unreachable", unreachable, UNREACHABLE)
        at_least("heads", heads, 1)
        at_least("sets", sets, 1)
        numbers = {"decay": decay, "start": start, "spread": spread, "slope": slope, "end": end}
        for name, value in numbers.items():
            finite(name, value)
        if shape == "linear" and end <= start + spread:
            raise ConfigError(f"end: must lie beyond the start points, got {end}")
        _check_rate(decay, shape, on, slope, learn_decay)
        self.heads, self.sets, self.decay, self.slope = heads, sets, decay, slope
        self._codebook = _psi(codebook)
        here = torch.empty(0).device
        # No state dict brings it, so it is real also where parameters are meta.
        psi = self._codebook.to("cpu" if here.type == "meta" else here, copy=True)
        self.register_buffer("psi", psi, persistent=False)
        self.psi: Tensor

        offsets = torch.linspace(-spread, spread, heads) if heads > 1 else torch.zeros(1)
        starts = (start + offsets).repeat(sets, 1)  # [sets, heads]
        self.raw_decay: nn.Parameter | None = None
        self.end: nn.Parameter | None = None
        self.free: nn.Parameter | None = None
        self.profile = nn.Parameter(torch.zeros(sets, heads, 256)) if profile else None
        self.start: Tensor | None
        if shape == "free":
            self.start = None
            factor = decay ** self._ramp(starts)
            self.free = nn.Parameter(factor if on == "logit" else factor.clamp(min=1e-30).log())
            return
        if shape == "exponential" and not learn_decay and decay in (0.0, 1.0):
            self.register_buffer("start", starts)  # no gradient reaches it
        else:
            self.start = nn.Parameter(starts)
        if shape == "linear":
            self.end = nn.Parameter(torch.full((sets, heads), float(end)))
        if learn_decay:
            raw = math.log(decay) - math.log1p(-decay)
            self.raw_decay = nn.Parameter(torch.full((sets, heads), raw))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move all tensors; ``to_empty`` leaves nothing in them, so ψ gets its values again."""
        super()._apply(fn, recurse)
        if not self.psi.is_meta:
            self.psi.copy_(self._codebook)
        return self

    def no_weight_decay(self) -> list[nn.Parameter]:
        """All parameters: a start point has no reason to be drawn to 0."""
        return list(self.parameters())

    def extra_repr(self) -> str:
        """The options; of start points, end points and a learned λ the values of now."""
        rate = None if self.raw_decay is None else self.raw_decay.sigmoid()
        said = {
            "heads": self.heads,
            "decay": self.decay if rate is None else _range(rate),
            "start": None if self.start is None else _range(self.start),
            "end": None if self.end is None else _range(self.end),
            "sets": self.sets,
            "shape": self.shape,
            "on": self.on,
            "slope": self.slope,
            "unreachable": self.unreachable,
            "profile": None if self.profile is None else True,
        }
        return ", ".join(f"{name}={value}" for name, value in said.items() if value is not None)

    def _ramp(self, start: Tensor) -> Tensor:
        """f(ψ − sp), [..., 256]; 0 for unreachable pairs unless they are ``far``."""
        t = self.psi.to(start) - start[..., None]
        if self.unreachable != "far":
            t = _without_last(t)
        return leaky_relu(t, self.slope)

    def forward(self, uses: int = 1) -> list[Tables]:
        """The tables of each set (one for all layers, or one for each layer).

        The tables of a single set are listed ``uses`` times, and the gradients of all uses are
        added at once.
        """
        mul, add = self._shape_tables()
        if self.profile is not None:
            full = add.value + self.profile if add is not None else self.profile
            add = Table(full)
        if self.unreachable == "blocked":
            mul, add = self._blocked(mul, add)
        return [Tables(*both) for both in zip(self._split(mul, uses), self._split(add, uses))]

    def _shape_tables(self) -> tuple[Table | None, Table | None]:
        if self.free is not None:
            table = Table(self.free)
        elif self.shape == "linear":
            table = self._linear()
        else:
            table = self._exponential()
        return (table, None) if self.on == "logit" else (None, table)

    def _exponential(self) -> Table:
        assert self.start is not None
        if runs_kernels(self.start) and self.start.dtype == torch.float32:
            from gradformer.attention.kernels.decay import exponential_tables

            value, jacobian = exponential_tables(
                self.start,
                self.raw_decay,
                self.psi,
                self.decay,
                self.slope,
                self.on,
                self.unreachable == "far",
            )
            return Table(value, self._learned(), jacobian)
        ramp = self._ramp(self.start)  # [sets, heads, 256]
        if self.raw_decay is not None:
            decay, rate = self.raw_decay.sigmoid()[..., None], logsigmoid(self.raw_decay)[..., None]
        else:
            decay = torch.full_like(self.start, self.decay)[..., None]
            rate = decay.log() if self.decay > 0.0 else torch.zeros_like(decay)
        if self.on == "logit":
            value = decay**ramp
        elif self.raw_decay is None and self.decay == 0.0:
            value = torch.where(ramp > 0, -math.inf, 0.0 * ramp)
        else:
            value = ramp * rate
        with torch.no_grad():
            outer = value if self.on == "logit" else torch.ones_like(value)
            beyond = self.psi > self.start[..., None]
            above = beyond + self.slope * ~beyond
            above = above if self.unreachable == "far" else _without_last(above)
            columns = [-outer * rate * above.to(outer.dtype)]
            if self.raw_decay is not None:
                # ∂/∂raw = ∂/∂λ · λ(1 − λ): λ^f → f λ^f (1 − λ), f ln λ → f (1 − λ)
                columns.append(ramp * outer * (1 - decay))
        return Table(value, self._learned(), torch.stack(columns))

    def _learned(self) -> Tensor:
        """Start points, and λ as it is learned, or end points, [sets, heads, 1 or 2]."""
        assert self.start is not None
        second = self.end if self.shape == "linear" else self.raw_decay
        if second is None:
            return self.start[..., None]
        return torch.stack([self.start, second], dim=-1)

    def _linear(self) -> Table:
        assert self.start is not None
        assert self.end is not None
        psi, start, end = self.psi, self.start[..., None], self.end[..., None]
        width = (end - start).clamp(min=LEAST_WIDTH)
        line = (end - psi) / width
        ramp = line.clamp(0.0, 1.0)
        if self.unreachable != "far":
            ramp = torch.cat([ramp[..., :255], torch.ones_like(ramp[..., 255:])], dim=-1)
        value, least = ramp, torch.finfo(ramp.dtype).tiny
        if self.on == "weight":
            value = torch.where(ramp > 0, ramp.clamp(min=least).log(), -math.inf)
        with torch.no_grad():
            outer = ((line >= 0) & (line <= 1)) / width
            if self.on == "weight":
                outer = torch.where(ramp > 0, outer / ramp.clamp(min=least), 0.0)
            outer = outer if self.unreachable == "far" else _without_last(outer)
            turn = ramp * (end - start >= LEAST_WIDTH)  # a width at its least does not change
            jacobian = torch.stack([outer * turn, outer * (1 - turn)])
        return Table(value, self._learned(), jacobian)

    def _split(self, table: Table | None, uses: int) -> list[Table | None]:
        """The table of each set, or the one of all ``uses``."""
        count = uses if self.sets == 1 else self.sets
        if table is None:
            return [None] * count
        values = table.value.expand(count, -1, -1).unbind()
        if table.parameters is None or table.jacobian is None:
            return [Table(value) for value in values]
        shares = Shares(table.parameters.expand(count, -1, -1))
        parameters = shares.parameters.unbind()
        jacobians = table.jacobian.expand(-1, count, -1, -1).unbind(1)
        of_each = zip(values, parameters, jacobians)
        return [Table(*of_one, shares, layer) for layer, of_one in enumerate(of_each)]

    def _blocked(self, mul: Table | None, add: Table | None) -> tuple[Table | None, Table]:
        """Byte 255 at −inf, whatever the score is."""
        last = torch.arange(256, device=self.psi.device) == 255
        if add is None:
            zero = torch.zeros(self.sets, self.heads, 256, device=self.psi.device)
            return mul, Table(zero.masked_fill(last, -math.inf))
        jacobian = None if add.jacobian is None else _without_last(add.jacobian)
        return mul, Table(add.value.masked_fill(last, -math.inf), add.parameters, jacobian)


def _check_rate(decay: float, shape: str, on: str, slope: float, learn_decay: bool) -> None:
    """Raise a :class:`ConfigError` unless λ suits the shape."""
    if not 0.0 <= decay <= 1.0:
        raise ConfigError(f"decay: λ must lie in [0, 1], got {decay}")
    if slope and shape == "linear":
        raise ConfigError("slope: the linear decay has none; leave it at 0")
    if slope and decay == 0.0:
        raise ConfigError("slope: must be 0 at λ = 0, or M below the start is infinite")
    if learn_decay and (decay in (0.0, 1.0) or shape != "exponential"):
        raise ConfigError("learn_decay: needs the exponential shape and 0 < λ < 1 at first")
    if shape == "free" and on == "weight" and decay == 0.0:
        raise ConfigError("decay: a free profile on the weight cannot begin at λ = 0 (log 0)")


def _psi(codebook: Codebook) -> Tensor:
    """ψ of each byte, [256] float32 on the CPU."""
    if not isinstance(codebook, Codebook):
        raise ConfigError(
            f"codebook: got {type(codebook).__name__}, expected a gradformer.structure.Codebook, "
            "as AddDistance(…).codebook is"
        )
    return torch.tensor(codebook.values, dtype=torch.float32, device="cpu")


def _range(x: Tensor) -> str:
    """The least and the largest number, or the one that all are."""
    if x.is_meta:
        return "?"
    low, high = (round(float(end), 4) for end in x.detach().aminmax())
    return f"{low}" if low == high else f"{low}…{high}"


def _without_last(x: Tensor) -> Tensor:
    """``x`` [..., 256] with a zero for byte 255."""
    return torch.cat([x[..., :255], torch.zeros_like(x[..., 255:])], dim=-1)
