"""The edge norm inside the gated convolution: e' = e + drop(ReLU(norm(u))), and its slopes.

For many edges. The moments of u come from the kernel that makes u, so that forward u is read once;
backward the gradient of u is made by the convolution's own kernel, from the sums made here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gradformer.graphs.batch import Edges
from gradformer.model.fused_messages import edge_rows
from gradformer.model.fused_norm import Norms

ROWS = 64  # of a tile
MERGE = {"BLOCK_C": 8, "num_warps": 8}  # of all programs' moments
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


@dataclass(frozen=True)
class Origin:
    """What e' was made of: enough to make it again, so that it need not be kept.

    Attributes:
        update: the norm with what follows it.
        e: [edges, c]; None if the layer that made e' does not keep it.
        u: [edges, c], kept by that layer.
        stats: [3, c].
        slopes: what that layer is told of its gradient.
    """

    update: Norms
    e: Tensor | None
    u: Tensor
    stats: Tensor
    slopes: Slopes = field(default_factory=Slopes)

    @classmethod
    def of(cls, e: Tensor) -> Origin | None:
        """That of the edge states ``e``, if a gated convolution made them."""
        found: Origin | None = getattr(e.grad_fn, "origin", None)
        return found if e.output_nr == 0 else None


def norm_of(update: Norms, u: Tensor, stats: Tensor) -> list[Any]:
    """What the kernels take of u and of the norm that made e' of it and of e."""
    norm = update.norms[0]
    return [u, norm.weight, norm.bias, stats, *_draw(update, u)]


def moments_of(u: Tensor, update: Norms | None, programs: int) -> Tensor | None:
    """Room for mean and Σ (u − mean)² of each program's edges, where they are asked for."""
    if update is None or not update.norms[0].training:
        return None
    return torch.empty(programs, 2, u.shape[1], dtype=torch.float32, device=u.device)


def updated(
    update: Norms, u: Tensor, e: Tensor, moments: Tensor | None, rows: int, edges: Edges
) -> tuple[Tensor, Tensor]:
    """e' [edges, c] and stats [3, c]; ``moments`` are those of shares in tiles of ``rows``."""
    from gradformer.model.edge_state_kernels import moments_kernel, update_kernel

    norm, (count, channels), (given, e_row) = update.norms[0], u.shape, edge_rows(e)
    nodes, stats = len(edges.target_ptr) - 1, norm.weight.new_empty(3, channels)
    pieces = 1 if moments is None else len(moments)
    moments_kernel[(-(-channels // MERGE["BLOCK_C"]),)](
        u if moments is None else moments, norm.running_mean, norm.running_var, stats,
        edges.target_ptr, nodes, pieces, norm.momentum or 0.0, norm.eps,
        C=channels, ROWS=rows, TRAINING=moments is not None,
        BLOCK_P=max(16, 1 << (pieces - 1).bit_length()), **MERGE,
    )  # fmt: skip
    new = torch.empty_like(u, dtype=torch.promote_types(u.dtype, e.dtype))
    update_kernel[(-(-count // ROWS),)](
        u, given, new, norm.weight, norm.bias, stats, edges.target_ptr, nodes, count,
        *_draw(update, u), C=channels, E_ROW=e_row, **_tile(channels, update),
    )  # fmt: skip
    return new, stats


def slopes_of(
    update: Norms, grad: Tensor, u: Tensor, stats: Tensor, edges: Edges, partial: Tensor | None
) -> tuple[list[Any], list[Tensor | None]]:
    """What the kernels take of the norm; gradients of γ and β, None if left in pieces.

    ``grad`` is that of e' [edges, c], and ``partial`` sums of its slopes if they are known.
    """
    from gradformer.model.edge_gradient_kernels import slope_kernel, slope_sums_kernel

    gamma, beta = update.norms[0].weight, update.norms[0].bias
    channels, ptr = u.shape[1], edges.target_ptr
    factors = torch.empty_like(stats)
    made = [torch.empty_like(gamma), torch.empty_like(beta)]
    rooms = made if update.room is None else update.room.open(u.device)
    learned, draw = [gamma, beta, stats], _draw(update, u)
    if partial is None:
        partial = stats.new_empty(min(-(-len(u) // SLOPE_ROWS), SLOPE_PIECES), 2, channels)
        slope_kernel[(len(partial),)](
            grad, u, *learned, partial, ptr, len(ptr) - 1, *draw,
            C=channels, ROWS=SLOPE_ROWS, DROP=update.after is not None, num_warps=4,
        )  # fmt: skip
    slope_sums_kernel[(-(-channels // SUMS["BLOCK_C"]),)](
        partial, gamma, stats, *rooms, factors, len(partial), C=channels, **SUMS
    )
    return [*learned, factors, *draw], [*made] if update.room is None else [None, None]


def _draw(update: Norms, dummy: Tensor) -> list[Any]:
    """What keys the draws of the dropout; its seed, factor and threshold."""
    return [update.rows.graph_id, update.rows.index, update.seeds(dummy)[2], *update.numbers[4:]]


def _tile(channels: int, update: Norms) -> dict[str, Any]:
    block = max(16, 1 << (channels - 1).bit_length())
    return {"BLOCK_C": block, "ROWS": ROWS, "DROP": update.after is not None, "num_warps": 8}
