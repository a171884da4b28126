"""The edge norm inside the gated convolution: e' = e + drop(ReLU(norm(u))), and its slopes.

For many edges. The moments of u come from the convolution's kernel over nodes, and e' is made by
the next convolution, while it maps it: so forward u is read by no kernel for the norm alone.
Backward the gradient of u is made by the convolution's own kernel, from the sums made here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from gradformer.attention.kernels.tiles import block_of
from gradformer.graphs.batch import Edges
from gradformer.model.fused.messages import edge_rows
from gradformer.model.fused.norm import Norms

ROWS = 64  # of a tile
MERGE = {"BLOCK_N": 1024, "BLOCK_C": 4, "num_warps": 8}  # of all nodes' moments
SLOPE_PIECES, SLOPE_ROWS = 528, 32  # at most, four on each core; edges of a tile of theirs
SUMS = {"BLOCK_T": 256, "BLOCK_C": 8, "num_warps": 8}  # of their sums


class Slopes:
    """Sums of the norm's slopes that come from the layer behind, with the gradient of e'.

    The kernel that makes this gradient has it at hand. It is all of the gradient only if nothing
    else is made of e': so the sums hold for this tensor, unchanged, and for no other.
    """

    _found: tuple[Tensor, int, Tensor] | None = None

    def leave(self, grad: Tensor, partial: Tensor) -> None:
        self._found = grad, grad._version, partial

    def take(self, grad: Tensor) -> Tensor | None:
        """The sums [programs, 2, c] for what has arrived at e', if they are known."""
        found, self._found = self._found, None
        if found is None or grad._version != found[1]:
            return None
        return found[2] if grad.data_ptr() == found[0].data_ptr() else None


@dataclass(frozen=True, eq=False)
class Origin:
    """What e' is made of.

    Attributes:
        update: the norm with what follows it.
        e, u: [edges, c].
        stats: [3, c].
        learned: γ and β, as they were.
        kept: whether the layer that made u keeps e for its backward pass. Then e' need not be
            kept: it can be made again.
        passes: [edges, blocks of 16 channels] of int32, which of them go through; written with e',
            where there is a dropout.
        slopes: what that layer is told of its gradient.
    """

    update: Norms
    e: Tensor
    u: Tensor
    stats: Tensor
    learned: tuple[Tensor, Tensor]
    kept: bool
    passes: Tensor | None
    slopes: Slopes = field(default_factory=Slopes)

    @property
    def norm(self) -> tuple[Any, ...]:
        """What kernels that make e' take of it beside e."""
        update, draw = self.update, self.update.after
        keys = (None,) * 3 if draw is None else (draw.rows.graph_id, draw.rows.index, draw.seed)
        return (self.u, *self.learned, self.stats, self.passes, *keys, *update.numbers[4:])


@dataclass(frozen=True, eq=False)
class Unmade:
    """Edge states e' that are not there yet.

    The next gated convolution makes them while it has what they are made of; whoever else wants
    them asks for :meth:`made`. ``states`` [edges, c] is a node of the autograd graph into which
    nothing is written yet.
    """

    states: Tensor
    origin: Origin
    edges: Edges

    def made(self) -> Tensor:
        """e' [edges, c], 0 in padded rows."""
        from gradformer.model.kernels.edge_states import update_kernel

        origin, (count, channels), ptr = self.origin, self.states.shape, self.edges.target_ptr
        given, e_row = edge_rows(origin.e)
        update_kernel[(-(-count // ROWS),)](
            given, self.states, ptr, len(ptr) - 1, count, *origin.norm,
            C=channels, E_ROW=e_row, ROWS=ROWS, BLOCK_C=block_of(channels), num_warps=8,
        )  # fmt: skip
        return self.states


States = TypeVar("States", Tensor, Tensor | None)


def made(e: States | Unmade) -> States | Tensor:
    """The edge states ``e`` themselves."""
    return e.made() if isinstance(e, Unmade) else e


def stats_of(update: Norms, moments: Tensor | None, edges: Edges) -> Tensor:
    """stats [3, c]: of u whose moments are given, otherwise the running ones."""
    from gradformer.model.kernels.edge_states import moments_kernel

    norm, ptr = update.norms[0], edges.target_ptr
    stats = norm.weight.new_empty(3, norm.num_features)
    moments_kernel[(-(-norm.num_features // MERGE["BLOCK_C"]),)](
        moments, norm.running_mean, norm.running_var, stats, ptr, len(ptr) - 1,
        norm.momentum or 0.0, norm.eps, C=norm.num_features, **MERGE,
    )  # fmt: skip
    return stats


def slopes_of(
    update: Norms,
    gamma: Tensor,
    beta: Tensor,
    grad: Tensor,
    u: Tensor,
    stats: Tensor,
    edges: Edges,
    passes: Tensor | None,
    partial: Tensor | None,
) -> tuple[tuple[Any, ...], list[Tensor | None]]:
    """What the kernels take of the norm; gradients of γ and β, None if left in pieces.

    ``grad`` is that of e' [edges, c], and ``partial`` sums of its slopes if they are known.
    """
    from gradformer.model.kernels.edge_gradients import slope_kernel, slope_sums_kernel

    channels, ptr = u.shape[1], edges.target_ptr
    factors = torch.empty_like(stats)
    made = [torch.empty_like(gamma), torch.empty_like(beta)]
    rooms = made if update.room is None else update.room.open(u.device)
    dropout = passes, update.numbers[4]
    if partial is None:
        partial = stats.new_empty(min(-(-len(u) // SLOPE_ROWS), SLOPE_PIECES), 2, channels)
        slope_kernel[(len(partial),)](
            grad, u, gamma, beta, stats, partial, ptr, len(ptr) - 1, *dropout,
            C=channels, ROWS=SLOPE_ROWS, num_warps=4,
        )  # fmt: skip
    slope_sums_kernel[(-(-channels // SUMS["BLOCK_C"]),)](
        partial, gamma, stats, *rooms, factors, len(partial), C=channels, **SUMS
    )
    return (beta, stats, factors, *dropout), [*made] if update.room is None else [None, None]
