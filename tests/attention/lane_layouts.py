"""Compile the row kernels for Hopper, on any machine, and print the layouts of their assembly.

One JSON object a line: the kernel, its shared memory in bytes, and for each assembly of tensors its
shape and layout.

    python -m tests.attention.lane_layouts
"""

from __future__ import annotations

import json
import re
from typing import Any

from triton.compiler import ASTSource

from gradformer.attention.row_backward import row_backward_kernel
from gradformer.attention.row_forward import row_forward_kernel
from tests.attention.wide_kernels import ROWS, TYPES, counts, lowered

FLAGS = {"HAS_MUL": True, "HAS_ADD": True, "DROPOUT": True, "EXACT": True, "INTERPRET": False}
GRADIENTS = {name: count for name, count in counts(2, 256).items() if name != "NEED_BIAS"}
VARIANTS: list[tuple[Any, dict[str, Any]]] = [
    (row_forward_kernel, {"D": 16, "SYMMETRIC": True}),
    (row_backward_kernel, {"D": 6, "SYMMETRIC": False} | GRADIENTS),
]


def main() -> None:
    types = {name: type_ for type_, names in TYPES.items() for name in names.split()}
    types |= dict.fromkeys(ROWS.split(), "*fp32")
    for kernel, more in VARIANTS:
        constants = FLAGS | more
        signature = {name: types.get(name, "i32") for name in kernel.arg_names}
        signature |= dict.fromkeys(constants, "constexpr")
        source = ASTSource(kernel, signature, constants, {})
        text, shared = lowered(source, {"num_warps": 1, "num_stages": 1})
        names = dict(re.findall(r"^(#\w+) = (#ttg\..*)$", text, re.MULTILINE))
        found = re.findall(r"elementwise_inline_asm .* -> tensor<(\d+)x[^,]*, (#\w+)>", text)
        layouts = [(int(size), names[layout]) for size, layout in found]
        print(json.dumps({"kernel": kernel.__name__, "shared": shared, "layouts": layouts}))


if __name__ == "__main__":
    main()
