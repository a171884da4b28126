"""Matrix products of float32 on tensor cores, which multiply numbers of tf32."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from gradformer.attention.product_kernels import _halves


@triton.jit
def _factors(x, EXACT: tl.constexpr):
    """x as :func:`_add_product` takes it; x itself if one product of tf32 is enough."""
    near, rest = x, x
    if EXACT:
        near, rest = _halves(x)
    return near, rest


@triton.jit
def _add_product(acc, a, b, EXACT: tl.constexpr):
    """acc + a b, of their factors.

    If EXACT, with errors as small as those of float32: each is the sum of two numbers of tf32, and
    of the four products only that of the two rests, beyond the precision of float32, is left out.
    """
    if EXACT:
        acc = tl.dot(a[1], b[0], acc, input_precision="tf32")
        acc = tl.dot(a[0], b[1], acc, input_precision="tf32")
    return tl.dot(a[0], b[0], acc, input_precision="tf32")
