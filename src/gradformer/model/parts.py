"""Norms, dropout and stochastic depth that know which rows are real and how draws are keyed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gradformer.attention.availability import exporting, runs_kernels
from gradformer.attention.draws import Site, drop, drop_rows, share
from gradformer.attention.layout import Rows
from gradformer.attention.loops.running import runs_loops
from gradformer.model.fused.norm import Norms, fused_norms
from gradformer.model.parallel import is_shared, total

LEAST_LOOPED = 1_000_000  # numbers, below which they stay in the cache and loops save no time


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over the real rows of a packed tensor [rows, c]; padded rows come out as zero.

    Processes that share a batch share its statistics. A training batch of a single row has no
    variance: it is normalised by the running statistics.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        rows: Rows,
        seeds: Tensor | None = None,
        *,
        before: Dropout | None = None,
        add: Tensor | None = None,
        relu: bool = False,
        after: Dropout | None = None,
        plus: Tensor | None = None,
    ) -> Tensor:
        """plus + after(ReLU(norm(before(x) + add))), of which all but the norm may be absent.

        ``before`` and ``after`` are dropouts, drawn from ``seeds``; kernels do all at once.
        """
        late = None if after is None else after.draw(rows, seeds)
        if self.runs_kernels(x):
            x, early = _inside(x, before, rows, seeds)
            return fused_norms((x,), add, plus, Norms((self,), (early,), rows, relu, late))
        x = x if before is None else before(x, rows, seeds)
        if self._runs_loops(x, add, plus, rows):
            from gradformer.model.loops.norm import looped_norm

            y = looped_norm(x, add, plus if late is None else None, self, relu)
            if late is None:
                return y
        else:
            y = self._plain(x if add is None else add + x, rows)
            y = y.relu() if relu else y
        y = y if late is None else late(y)
        return y if plus is None else plus + y

    def runs_kernels(self, x: Tensor) -> bool:
        """Whether kernels take ``x``; their places in it are 32-bit numbers."""
        alone = not (self.training and (is_shared() or self.momentum is None))
        alone = alone and self.weight.dtype == torch.float32
        return alone and runs_kernels(x) and x.numel() < 1 << 31  # sizes are unknown to a trace

    def _runs_loops(self, x: Tensor, add: Tensor | None, plus: Tensor | None, rows: Rows) -> bool:
        """Whether compiled loops take it: not padding, nor a derivative in eval mode."""
        given = [t for t in (x, add, plus, self.weight, self.bias) if t is not None]
        if not runs_loops(*given) or x.numel() < LEAST_LOOPED:  # sizes are unknown to a trace
            return False
        exact = {t.dtype for t in given} == {torch.float32} and x.dim() == 2 and len(x) > 1
        alike = all(t.shape == x.shape for t in (add, plus) if t is not None)
        if not exact or not alike or rows.mask is not None:
            return False
        derived = torch.is_grad_enabled() and any(t.requires_grad for t in given)
        alone = not is_shared() and self.momentum is not None
        return alone if self.training else not derived

    def _plain(self, x: Tensor, rows: Rows) -> Tensor:
        if self.training and (rows.mask is not None or is_shared()):
            mask = x.new_ones(len(x), dtype=torch.bool) if rows.mask is None else rows.mask
            return self._masked(x, mask[:, None])
        batch_statistics = self.training
        if x.shape[0] < 2:  # asked, not computed with: a compiler's size makes no bool
            batch_statistics = False
        y = torch.batch_norm(
            x,
            self.weight,
            self.bias,
            self.running_mean,
            self.running_var,
            batch_statistics,
            self._batch_weight() if batch_statistics else 0.0,
            self.eps,
            torch.backends.cudnn.enabled,
        )
        return rows.zero_padding(y)

    def _batch_weight(self) -> float:
        """What this batch counts in the running statistics; without a momentum all batches count
        alike, as ``torch.optim.swa_utils.update_bn`` wants it."""
        if self.momentum is not None:
            return self.momentum
        self.num_batches_tracked.add_(1)
        return 1.0 / float(self.num_batches_tracked)

    def _masked(self, x: Tensor, mask: Tensor) -> Tensor:
        real = torch.where(mask, x, 0.0).to(self.weight.dtype)  # sums of bf16 would round
        count = total(mask.sum().to(real.dtype))
        several = count > 1
        mean = torch.where(several, total(real.sum(0)) / count.clamp(min=1), self.running_mean)
        centred = torch.where(mask, real - mean, 0.0)
        square = total(centred.square().sum(0))
        variance = torch.where(several, square / count.clamp(min=1), self.running_var)
        with torch.no_grad():
            momentum = several * self._batch_weight()
            unbiased = square / (count - 1).clamp(min=1)
            self.running_mean += momentum * (mean - self.running_mean)
            self.running_var += momentum * (unbiased - self.running_var)
        y = centred * (variance + self.eps).rsqrt() * self.weight + self.bias
        return torch.where(mask, y, 0.0).to(x.dtype)


@dataclass(frozen=True, eq=False)
class Draw:
    """A dropout at work: share ``p``, the rows that key it, seed (trial seed, step, site) [3]."""

    p: float
    rows: Rows
    seed: Tensor
    whole_graphs: bool = False

    @property
    def scale(self) -> float:
        """What is kept grows by this factor."""
        return 1.0 / (1.0 - self.p)

    def __call__(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling() and not exporting():
            from gradformer.model.fused.drop_operator import drop_operator

            return drop_operator(x, self)
        if runs_kernels(x):
            from gradformer.model.fused.drop import fused_drop

            return _Drawn.apply(x, self, fused_drop)
        if x.dtype == torch.float32 and runs_loops(x):
            from gradformer.model.loops.drop import looped_drop

            return _Drawn.apply(x, self, looped_drop)
        return (drop_rows if self.whole_graphs else drop)(x, self.p, self.rows, self.seed)


class _Drawn(torch.autograd.Function):
    """``drop(x, draw)``; on the way back the same draws are made again, for the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, draw: Draw, drop: Callable[[Tensor, Draw], Tensor]) -> Tensor:
        ctx.draw = draw
        return drop(x, draw)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return ctx.draw(grad), None, None


class Dropout(Site):
    """Dropout on [rows, c], drawn by the hash of :mod:`gradformer.attention.draws`."""

    whole_graphs = False

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.p = share(p)

    def draw(self, rows: Rows, seeds: Tensor | None) -> Draw | None:
        """What it does to ``rows`` now, or None if nothing."""
        if not self.training or self.p == 0.0:
            return None
        return Draw(self.p, rows, self.seed(seeds), self.whole_graphs)

    def forward(self, x: Tensor, rows: Rows, seeds: Tensor | None) -> Tensor:
        draw = self.draw(rows, seeds)
        return x if draw is None else draw(x)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class DropPath(Dropout):
    """Stochastic depth: the branch is left out for whole graphs at a time."""

    whole_graphs = True


def _inside(
    x: Tensor, dropout: Dropout | None, rows: Rows, seeds: Tensor | None
) -> tuple[Tensor, Draw | None]:
    """A dropout that a norm's kernel shall draw; stochastic depth is done at once."""
    draw = None if dropout is None else dropout.draw(rows, seeds)
    return (draw(x), None) if draw is not None and draw.whole_graphs else (x, draw)


class Branch(NamedTuple):
    """norm(before(x) + add), the last where there is a ``residual``."""

    norm: BatchNorm
    x: Tensor
    before: Dropout
    residual: bool = True


def norm_pair(
    first: Branch, second: Branch, add: Tensor, rows: Rows, seeds: Tensor | None
) -> Tensor:
    """The sum of two norms, with the same residual ``add`` [rows, c]; kernels do all at once.

    The second branch has it only if the first one does.
    """
    assert first.residual or not second.residual
    norms = first.norm, second.norm
    alike = len({(norm.training, norm.momentum, norm.eps) for norm in norms}) == 1
    if alike and all(branch.norm.runs_kernels(branch.x) for branch in (first, second)):
        xs, draws = zip(*(_inside(b.x, b.before, rows, seeds) for b in (first, second)))
        own = add if first.residual else None
        return fused_norms(xs, own, None, Norms(norms, draws, rows, both=second.residual))

    def half(b: Branch, plus: Tensor | None) -> Tensor:
        own = add if b.residual else None
        return b.norm(b.x, rows, seeds, before=b.before, add=own, plus=plus)

    return half(second, half(first, None))
