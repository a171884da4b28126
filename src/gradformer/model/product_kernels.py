"""Matrix products of float32 on tensor cores, which multiply numbers of tf32."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _halves(x):
    """x as a number of tf32, the nearest, and a rest."""
    bits = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    near = bits.to(tl.float32, bitcast=True)
    return near, x - near


@triton.jit
def _add_product(acc, a, b, EXACT: tl.constexpr):
    """acc + a b.

    If EXACT, with errors as small as those of float32: each factor is the sum of two numbers of
    tf32, and of the four products only that of the two rests, beyond its precision, is left out.
    """
    if EXACT:
        a, a_rest = _halves(a)
        b, b_rest = _halves(b)
        acc = tl.dot(a_rest, b, acc, input_precision="tf32")
        acc = tl.dot(a, b_rest, acc, input_precision="tf32")
    return tl.dot(a, b, acc, input_precision="tf32")
