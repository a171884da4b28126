"""All shortest paths of a batch in one kernel, which follows the first edges hop by hop."""

# The kernel's arguments are untyped.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from gradformer.zoo.path_bias import Start

PAIRS = 128  # of a program


@triton.jit(do_not_specialize=["pairs", "empty"])
def path_kernel(
    first_edge, target, node, row, size, first_node, begin, out, pairs, empty,
    HOPS: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """out [pairs, HOPS] as :meth:`PathBias.paths`; grid (pairs / PAIRS,)."""
    pair = tl.program_id(0).to(tl.int64) * PAIRS + tl.arange(0, PAIRS)
    going = pair < pairs
    here = tl.load(node + pair, going, other=0)
    first_row = tl.load(row + pair, going, other=0)
    step = tl.load(size + pair, going, other=0)
    start = tl.load(first_node + pair, going, other=0)
    edges = tl.load(begin + pair, going, other=0)
    for hop in range(HOPS):
        local = tl.load(first_edge + first_row + here * step, going, other=-1).to(tl.int64)
        going = going & (local >= 0)
        edge = edges + local
        tl.store(out + pair * HOPS + hop, tl.where(going, edge, empty), pair < pairs)
        here = tl.load(target + edge, going, other=0).to(tl.int64) - start


def follow_paths(first_edge: Tensor, target: Tensor, start: Start, hops: int, empty: int) -> Tensor:
    """Edges at the first ``hops`` hops of each path, [pairs, hops] int64; ``empty`` behind its end.

    ``first_edge`` is a flat pair array, −1 where no path goes on; ``target`` [edges or more].
    """
    pairs = len(start.node)
    out = start.node.new_empty(pairs, hops)
    path_kernel[(-(-pairs // PAIRS),)](
        first_edge, target, *(t.contiguous() for t in start), out, pairs, empty,
        HOPS=hops, PAIRS=PAIRS,
    )  # fmt: skip
    return out
