"""Compile the tiled kernels for Hopper, on any machine, and print what the wide way rests on.

One JSON object a line: the kernel, its dynamic shared memory in bytes, and the layouts of all
assembly that takes 32 registers at once.

    python tests/attention/wide_kernels.py <head width>
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gradformer.attention.launch import Tiles, forward_tiles, key_tiles, query_tiles
from gradformer.attention.tiled_backward import key_gradient_kernel, query_gradient_kernel
from gradformer.attention.tiled_forward import forward_kernel

TYPES = {
    "*bf16": "q k v out grad dq dk dv",
    "*fp32": "lse stats mul add mul_jacobian add_jacobian partial_mul partial_add bias dbias",
    "*i32": "node_ptr graph_id",
    "*i64": "pair_ptr packed_ptr seed",
    "*u8": "distance",
    "fp32": "scale dropout_scale",
}


def compiled(kernel: Any, tiles: Tiles, constants: dict[str, Any]) -> Any:
    options = {name: value for name, value in tiles.options.items() if value is not None}
    constants |= {name: options.pop(name) for name in ("BLOCK_M", "BLOCK_N")}
    types = {name: type_ for type_, names in TYPES.items() for name in names.split()}
    signature = {name: types.get(name, "i32") for name in kernel.arg_names}
    signature |= dict.fromkeys(constants, "constexpr")
    aligned = [
        place
        for place, (name, kind) in enumerate(signature.items())
        if name != "distance" and (kind.startswith("*") or name.endswith(("_row", "_head")))
    ]
    source = ASTSource(
        kernel, signature, constants, {(place,): [["tt.divisibility", 16]] for place in aligned}
    )
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


def main() -> None:
    d = int(sys.argv[1])
    common = {"D": d, "BLOCK_D": max(16, 1 << (d - 1).bit_length()), "PRECISION": "ieee"}
    common |= {"HAS_MUL": True, "HAS_ADD": False, "HAS_BIAS": False, "DROPOUT": False, "WIDE": 64}
    counts = {"MUL_COUNT": 2, "ADD_COUNT": 0, "NEED_BIAS": False}
    half = torch.bfloat16
    for kernel, tiles, more in (
        (forward_kernel, forward_tiles(half, d, True), {}),
        (query_gradient_kernel, query_tiles(half, d, True), counts),
        (key_gradient_kernel, key_tiles(half, d, True), {"SYMMETRIC": True}),
    ):
        found = compiled(kernel, tiles, common | more)
        text = found.asm["ttgir"]
        names = dict(re.findall(r"^(#\w+) = (#ttg\..*)$", text, re.MULTILINE))
        layouts = re.findall(r"packed_element = 32 .* -> tensor<[^,]*, (#\w+)>", text)
        line = {"kernel": kernel.__name__, "shared": found.metadata.shared}
        print(json.dumps(line | {"layouts": [names[layout] for layout in layouts]}))


if __name__ == "__main__":
    main()
