r"""Batch norm with what stands around it as loops for a CPU; plainly ``parts.BatchNorm``.

.. math::
    y = \text{plus} + \operatorname{ReLU}(\hat z\, \gamma + \beta), \qquad
    \hat z = (z - \mu) / \sigma, \qquad z = x + \text{add}

Forward one pass over the rows makes the moments of z, one makes y; backward one makes the sums of
the slopes, one the gradient of z. Sums are made in pieces of :data:`ROWS` rows, which are added in
their order and in float64: any number of threads gives the same bits.

Shapes: x [rows, c]; add and plus [rows, c], or [1, c], one row for all; moments [pieces, 2, c], the
mean of a piece and the sum of squares around it; center (μ), scale (γ/σ), shift (β) [c]; slopes
[pieces, 2, c], the sums of dŷ and dŷ (z − μ). ``floor`` is 0 for a ReLU and −∞ without one.
"""

# The kernels' arguments are untyped.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from gradformer.attention.loops.attention import index
from gradformer.attention.loops.running import in_slices, plain_gradients, wants_plain
from gradformer.structure.parallel import inlined, vectorised

if TYPE_CHECKING:
    from gradformer.model.parts import BatchNorm

ROWS = 128
_0, _1, _ROWS = np.uintp(0), np.uintp(1), np.uintp(ROWS)
_ZERO = np.float32(0.0)


@inlined
def _piece(number, x):
    """The first row of a piece, and the first behind it."""
    first = number * _ROWS
    return first, min(first + _ROWS, index(x.shape[0]))


@inlined
def _step(x):
    """How far a row is from the next: 0 where one row stands for all."""
    return _1 if len(x) > 1 else _0


@vectorised
def moments_kernel(first_piece, last_piece, x, add, moments):
    c, step = index(x.shape[1]), _step(add)
    for piece in range(index(first_piece), index(last_piece)):
        first, last = _piece(piece, x)
        for i in range(first, last):
            for j in range(c):
                moments[piece, _0, j] += x[i, j] + add[i * step, j]
        for j in range(c):
            moments[piece, _0, j] /= np.float32(last - first)
        for i in range(first, last):
            for j in range(c):
                apart = x[i, j] + add[i * step, j] - moments[piece, _0, j]
                moments[piece, _1, j] += apart * apart


@vectorised
def forward_kernel(first_piece, last_piece, x, add, center, scale, shift, floor, plus, y):
    c, step, plus_step = index(x.shape[1]), _step(add), _step(plus)
    for piece in range(index(first_piece), index(last_piece)):
        first, last = _piece(piece, x)
        for i in range(first, last):
            for j in range(c):
                made = (x[i, j] + add[i * step, j] - center[j]) * scale[j] + shift[j]
                y[i, j] = (floor if made <= floor else made) + plus[i * plus_step, j]


@vectorised
def slopes_kernel(first_piece, last_piece, x, add, center, scale, shift, floor, grad, slopes):
    c, step = index(x.shape[1]), _step(add)
    for piece in range(index(first_piece), index(last_piece)):
        first, last = _piece(piece, x)
        for i in range(first, last):
            for j in range(c):
                apart = x[i, j] + add[i * step, j] - center[j]
                slope = _ZERO if apart * scale[j] + shift[j] <= floor else grad[i, j]
                slopes[piece, _0, j] += slope
                slopes[piece, _1, j] += slope * apart


@vectorised
def backward_kernel(
    first_piece, last_piece, x, add, center, scale, shift, floor, grad, mean, along, dz
):
    """dz = scale · (dŷ − mean − (z − μ) · along)."""
    c, step = index(x.shape[1]), _step(add)
    for piece in range(index(first_piece), index(last_piece)):
        first, last = _piece(piece, x)
        for i in range(first, last):
            for j in range(c):
                apart = x[i, j] + add[i * step, j] - center[j]
                slope = _ZERO if apart * scale[j] + shift[j] <= floor else grad[i, j]
                dz[i, j] = scale[j] * (slope - mean[j] - apart * along[j])


@np.errstate(invalid="ignore")  # ∞ − ∞: that a run diverges is told elsewhere
def _merged(moments: NDArray[Any], rows: int, eps: float) -> NDArray[Any]:
    """μ, 1/σ, and the variance without bias, of the moments of all pieces: [3, c]."""
    means, squares = moments.transpose(1, 0, 2).astype(np.float64)
    sizes = np.minimum(ROWS, rows - ROWS * np.arange(len(moments)))[:, None]
    mean = (sizes * means / rows).sum(0)
    square = (squares + sizes * (means - mean) ** 2).sum(0)
    return np.stack([mean, 1.0 / np.sqrt(square / rows + eps), square / (rows - 1)])


class _Norm(torch.autograd.Function):
    """(x, add, plus, γ, β) → y; the norm's running statistics are moved on in training."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, add: Tensor | None, plus: Tensor | None, weight: Tensor, bias: Tensor,
        norm: BatchNorm, relu: bool,
    ) -> Tensor:  # fmt: skip
        if norm.training:
            center, inverse = _moments(x, add, norm)
        else:
            center, inverse = norm.running_mean, (norm.running_var + norm.eps).rsqrt()
        ctx.eps, ctx.relu = norm.eps, relu
        ctx.save_for_backward(x, add, weight, bias, center, inverse)
        y = x.new_empty(x.shape)
        around = _around(x, add, center, inverse * weight, bias, relu)
        _over_pieces(forward_kernel, *around, _rows(plus, x), y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, add, weight, bias, center, inverse = ctx.saved_tensors
        need_x, need_add, need_plus, *_ = ctx.needs_input_grad
        dplus = grad if need_plus else None
        if wants_plain(grad):

            def plain(x: Tensor, add: Tensor | None, weight: Tensor, bias: Tensor) -> list[Tensor]:
                z = x if add is None else x + add
                y = F.batch_norm(z, None, None, weight, bias, training=True, eps=ctx.eps)
                return [y.relu() if ctx.relu else y]

            needed = [ctx.needs_input_grad[n] for n in (0, 1, 3, 4)]
            dx, dadd, *learned = plain_gradients(plain, (x, add, weight, bias), needed, [grad])
            return dx, dadd, dplus, *learned, None, None
        around = _around(x, add, center, inverse * weight, bias, ctx.relu)
        slopes = np.zeros((_pieces(x), 2, x.shape[1]), np.float32)
        _over_pieces(slopes_kernel, *around, grad, slopes)
        with np.errstate(invalid="ignore"):
            dbias, along = torch.from_numpy(slopes.sum(0, dtype=np.float64))
        dweight = along * inverse
        mean, along = ((t / len(x)).float() for t in (dbias, dweight * inverse))
        dz = None
        if need_x or need_add:
            dz = x.new_empty(x.shape)
            _over_pieces(backward_kernel, *around, grad, mean, along, dz)
        return dz, dz if need_add else None, dplus, dweight.float(), dbias.float(), None, None


def _moments(x: Tensor, add: Tensor | None, norm: BatchNorm) -> tuple[Tensor, Tensor]:
    """μ and 1/σ of the batch, [c]; the running statistics are moved towards them."""
    moments = np.zeros((_pieces(x), 2, x.shape[1]), np.float32)
    _over_pieces(moments_kernel, x, _rows(add, x), moments)
    center, inverse, variance = torch.from_numpy(_merged(moments, len(x), norm.eps)).float()
    if norm.momentum:
        norm.running_mean.lerp_(center, norm.momentum)
        norm.running_var.lerp_(variance, norm.momentum)
    return center, inverse


def _pieces(x: Tensor) -> int:
    return -(-len(x) // ROWS)


def _rows(given: Tensor | None, x: Tensor) -> Tensor:
    """``given`` as kernels take it: one row of zeros if absent, one if it is the same for all."""
    if given is None:
        return x.new_zeros(1, x.shape[1])
    return given[:1] if given.stride(0) == 0 else given


def _around(
    x: Tensor, add: Tensor | None, center: Tensor, scale: Tensor, shift: Tensor, relu: bool
) -> tuple[Any, ...]:
    """What all kernels behind the moments are given first."""
    floor = np.float32(0.0 if relu else -np.inf)
    return x, _rows(add, x), center, scale, shift, floor


def _over_pieces(kernel: Any, x: Tensor, *given: Any) -> None:
    cost = np.full(_pieces(x), ROWS * x.shape[1])
    in_slices(kernel, cost, x, *given)


def looped_norm(
    x: Tensor, add: Tensor | None, plus: Tensor | None, norm: BatchNorm, relu: bool
) -> Tensor:
    """plus + ReLU(norm(x + add)) by loops, in float32; in eval mode it has no derivative."""
    return _Norm.apply(x, add, plus, norm.weight, norm.bias, norm, relu)
