"""Compile kernels for Hopper, on any machine, and print what their assembly rests on.

One JSON object a line: the kernel; ``wide``, how many columns it orders anew, 0 for a row kernel;
its dynamic shared memory in bytes; and of each assembly how many registers it takes at once, the
shape of its tensors, and their layout.

    python tests/attention/compiled_kernels.py
"""

from __future__ import annotations

import json
import re
from typing import Any

import torch
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend

from gradformer.attention.kernels.row_backward import row_backward_kernel
from gradformer.attention.kernels.row_forward import row_forward_kernel
from gradformer.attention.kernels.tiled_forward import forward_kernel
from gradformer.attention.kernels.tiled_key_gradients import key_gradient_kernel
from gradformer.attention.kernels.tiled_query_gradients import query_gradient_kernel
from gradformer.attention.kernels.tiles import forward_tiles, key_tiles, query_tiles

TYPES = {
    "*fp32": "lse stats mul add mul_jacobian add_jacobian partial_mul partial_add bias dbias",
    "*i32": "node_ptr graph_id",
    "*i64": "pair_ptr packed_ptr seed",
    "*u8": "distance",
    "fp32": "scale dropout_scale",
}
ROWS = "q k v out grad dq dk dv"  # of the type at hand
ABSENT = ("bias", "packed_ptr", "dbias")
SUMMED = {"mul": None, "mul_jacobian": None, "seed": None}  # ``add`` alone, without dropout
BF16, FLOAT = torch.bfloat16, torch.float32


def counts(mul: int, add: int) -> dict[str, Any]:
    return {"MUL_COUNT": mul, "ADD_COUNT": add}


# kernel, its tiles, type, head width, constants
TILED: list[tuple[Any, Any, torch.dtype, int, dict[str, Any]]] = [
    (forward_kernel, forward_tiles, BF16, 128, {}),
    (key_gradient_kernel, key_tiles, BF16, 64, {"SYMMETRIC": True}),
    (key_gradient_kernel, key_tiles, FLOAT, 16, {"SYMMETRIC": True}),
    (query_gradient_kernel, query_tiles, BF16, 16, SUMMED | counts(0, 256)),
    (query_gradient_kernel, query_tiles, BF16, 64, counts(2, 256)),
    (query_gradient_kernel, query_tiles, FLOAT, 32, counts(256, 256)),
]
ONE_WARP: list[tuple[Any, dict[str, Any]]] = [
    (row_forward_kernel, {"D": 16, "SYMMETRIC": True}),
    (row_backward_kernel, {"D": 6, "SYMMETRIC": False} | counts(2, 256)),
]


def main() -> None:
    for kernel, tiles, dtype, d, flags in TILED:
        wide, precision = (64, "ieee") if dtype == BF16 else (32, "tf32x3")
        chosen = tiles(dtype, d, wide).options
        options = {name: value for name, value in chosen.items() if value is not None}
        constants = {name: options.pop(name) for name in ("BLOCK_M", "BLOCK_N")} | flags
        constants |= {"D": d, "BLOCK_D": max(16, 1 << (d - 1).bit_length())}
        constants |= {name: None for name in ABSENT if name in kernel.arg_names}
        show(kernel, dtype, constants | {"PRECISION": precision, "WIDE": wide}, options)
    for kernel, flags in ONE_WARP:
        constants = flags | {"EXACT": True, "INTERPRET": False}
        show(kernel, FLOAT, constants, {"num_warps": 1, "num_stages": 1})


def show(
    kernel: Any, dtype: torch.dtype, constants: dict[str, Any], options: dict[str, Any]
) -> None:
    types = {name: type_ for type_, names in TYPES.items() for name in names.split()}
    types |= dict.fromkeys(ROWS.split(), "*bf16" if dtype == BF16 else "*fp32")
    signature = {name: types.get(name, "i32") for name in kernel.arg_names}
    signature |= dict.fromkeys(constants, "constexpr")
    aligned = [
        place
        for place, (name, kind) in enumerate(signature.items())
        if name != "distance" and (kind.startswith("*") or name.endswith(("_row", "_head")))
    ]
    divisible = {(place,): [["tt.divisibility", 16]] for place in aligned}
    text, shared = lowered(ASTSource(kernel, signature, constants, divisible), options)
    names = dict(re.findall(r"^(#\w+) = (#ttg\..*)$", text, re.MULTILINE))
    found = re.findall(
        r"elementwise_inline_asm .*packed_element = (\d+) .* -> tensor<([^,]*)x\w+, (#\w+)>", text
    )
    line = {"kernel": kernel.__name__, "wide": constants.get("WIDE", 0), "shared": shared}
    assembly = [(int(registers), shape, names[layout]) for registers, shape, layout in found]
    print(json.dumps(line | {"assembly": assembly}))


def lowered(source: ASTSource, options: dict[str, Any]) -> tuple[str, int]:
    """Triton's text with layouts, and the dynamic shared memory; no machine code, which is slow."""
    target = GPUTarget("cuda", 90, 32)
    backend = make_backend(target)
    chosen = backend.parse_options(options)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module: Any = source.make_ir(
        target,
        chosen,
        backend.get_codegen_implementation(chosen),
        backend.get_module_map(),
        context,
    )
    stages: dict[str, Any] = {}
    backend.add_stages(stages, chosen, source.language)
    metadata = dict(vars(chosen))
    for name in ("ttir", "ttgir"):
        module = stages[name](module, metadata)
    text = str(module)
    stages["llir"](module, metadata)
    return text, metadata["shared"]


if __name__ == "__main__":
    main()
