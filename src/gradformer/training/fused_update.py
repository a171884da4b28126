"""What follows the gradient in two kernels: clipping, schedule, Adam, the step count, averaging.

The plain form is :meth:`gradformer.training.step.Step.update` with :mod:`.optimizer`. Rate and bias
corrections are made on the device in float64, as there.
"""

# The kernels' arguments are untyped.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from gradformer.attention.kernels.tiles import block_of
from gradformer.training.optimizer import BETAS, CLIP_EPS, EPSILON, Adam, Schedule

BLOCK = 1024
MOST_PIECES = 128  # every program of the second kernel reads all of them
PI = tl.constexpr(math.pi)


@triton.jit
def _rate(t, constants, COSINE: tl.constexpr):
    """η of step ``t`` (float64): see :class:`~gradformer.training.optimizer.Schedule`."""
    peak = tl.load(constants)
    warmup = tl.load(constants + 2)
    rate = peak
    if COSINE:
        lowest = tl.load(constants + 1)
        share = (t - warmup) / tl.load(constants + 3)
        share = tl.minimum(tl.maximum(share, 0.0), 1.0)
        rate = lowest + (peak - lowest) * (1.0 + tl.cos(share * PI)) / 2.0
    return tl.where(t < warmup, peak * (t + 1.0) / tl.maximum(warmup, 1.0), rate)


@triton.jit
def prepare_kernel(
    grad, pieces, numbers, count, constants, size, chunk, ema,
    COSINE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Σ g² of each chunk into ``pieces``; the first program also counts the step and makes

    ``numbers``: η, η / (1 − β₁ᵗ), √(1 − β₂ᵗ), and the share of the new weights in the average.
    """
    program = tl.program_id(0)
    first = program * chunk
    acc = tl.zeros([BLOCK], tl.float32)
    for start in range(first, tl.minimum(first + chunk, size), BLOCK):
        place = start + tl.arange(0, BLOCK)
        g = tl.load(grad + place, place < size, other=0.0)
        acc += g * g
    tl.store(pieces + program, tl.sum(acc))
    if program == 0:
        step = tl.load(count)
        tl.store(count, step + 1)
        t = step.to(tl.float64)
        rate = _rate(t, constants, COSINE).to(tl.float32)
        t += 1.0
        size_1 = 1.0 - tl.exp(t * tl.load(constants + 4))
        size_2 = 1.0 - tl.exp(t * tl.load(constants + 5))
        tl.store(numbers, rate)
        tl.store(numbers + 1, (rate.to(tl.float64) / size_1).to(tl.float32))
        tl.store(numbers + 2, tl.sqrt(size_2).to(tl.float32))
        # The average is short at first, so that it does not remember the initial weights.
        tl.store(numbers + 3, 1.0 - tl.minimum(((1.0 + t) / (10.0 + t)).to(tl.float32), ema))


@triton.jit
def update_kernel(
    vector, grad, mean, square, average, pieces, numbers, piece_count, size, parameters, decayed,
    clip, weight_decay, fresh_1, fresh_2, eps, clip_eps,
    PIECES: tl.constexpr, CLIP: tl.constexpr, ADAMW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adam on the first ``parameters`` numbers of ``vector``, then the average of all, if any."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    learned = place < parameters
    w = tl.load(vector + place, inside, other=0.0)
    if tl.program_id(0) * BLOCK < parameters:
        g = tl.load(grad + place, learned, other=0.0)
        m = tl.load(mean + place, learned, other=0.0)
        v = tl.load(square + place, learned, other=0.0)
        if CLIP:
            piece = tl.arange(0, PIECES)
            squares = tl.load(pieces + piece, piece < piece_count, other=0.0)
            norm = tl.sqrt_rn(tl.sum(squares))
            factor = clip / (norm + clip_eps)
            g *= tl.where(factor > 1.0, 1.0, factor)  # a norm that is not a number stays one
        shrink = tl.where(place < decayed, weight_decay, 0.0)
        if ADAMW:
            w *= 1.0 - tl.load(numbers) * shrink
        else:
            g += w * shrink
        m += fresh_1 * (g - m)
        v += fresh_2 * (g * g - v)
        change = tl.load(numbers + 1) * m / (tl.sqrt_rn(v) / tl.load(numbers + 2) + eps)
        w = tl.where(learned, w - change, w)
        tl.store(mean + place, m, learned)
        tl.store(square + place, v, learned)
        tl.store(vector + place, w, learned)
    if average is not None:
        a = tl.load(average + place, inside, other=0.0)
        tl.store(average + place, a + tl.load(numbers + 3) * (w - a), inside)


class FusedUpdate:
    """The update of one trial; see :meth:`gradformer.training.step.Step.update`."""

    def __init__(self, optimizer: Adam, schedule: Schedule, clip: float, ema: float) -> None:
        self.optimizer, self.schedule = optimizer, schedule
        # A whole number in a recipe would be an integer to the kernel.
        self.clip, self.ema, self.weight_decay = map(float, (clip, ema, optimizer.weight_decay))
        cosine_steps = max(schedule.steps - schedule.warmup, 1)
        self.constants = torch.tensor(
            [schedule.rate, schedule.lowest, schedule.warmup, cosine_steps]
            + [math.log(beta) for beta in BETAS],
            dtype=torch.float64,
            device=optimizer.mean.device,
        )

    def __call__(self, vector: Tensor, grad: Tensor, count: Tensor, average: Tensor | None) -> None:
        """Change ``vector`` [size] by ``grad`` [parameters], ``average`` [size] and ``count``."""
        adam, parameters = self.optimizer, len(grad)
        chunk = -(-parameters // (MOST_PIECES * BLOCK)) * BLOCK
        programs = -(-parameters // chunk)
        pieces, numbers = vector.new_empty(programs), vector.new_empty(4)
        prepare_kernel[(programs,)](
            grad, pieces, numbers, count, self.constants, parameters, chunk, self.ema,
            COSINE=self.schedule.kind == "cosine", BLOCK=BLOCK,
        )  # fmt: skip
        first, second = BETAS
        update_kernel[(-(-len(vector) // BLOCK),)](
            vector, grad, adam.mean, adam.square, average,
            pieces, numbers, programs, len(vector), parameters, adam.decayed,
            self.clip, self.weight_decay, 1.0 - first, 1.0 - second, EPSILON, CLIP_EPS,
            PIECES=block_of(programs, 1), CLIP=self.clip > 0.0, ADAMW=adam.kind == "adamw",
            BLOCK=BLOCK,
        )  # fmt: skip
