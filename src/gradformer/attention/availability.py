"""Whether Triton kernels can run here, and if not, why."""

from __future__ import annotations

import os
from functools import cache

import torch
from torch import Tensor


@cache
def _triton_error() -> str | None:
    try:
        import triton  # noqa: F401
    except ImportError as error:
        return f"Triton cannot be imported ({error}); install it with pip install 'gradformer[gpu]'"
    return None


def interpreting() -> bool:
    """Whether Triton kernels run in its interpreter, on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def why_no_triton(device: torch.device, *, interpret: bool = False) -> str | None:
    """Why Triton kernels cannot run on ``device``, or None if they can.

    ``interpret`` accepts Triton's interpreter, which is for tests: slow, and on any device.
    """
    if error := _triton_error():
        return error
    if device.type == "cuda" or (interpret and interpreting()):
        return None
    return f"Triton kernels need a CUDA device, the tensors are on {device.type}"


def runs_kernels(x: Tensor) -> bool:
    """Whether Triton kernels take ``x`` in place of plain torch code.

    They compute in float32 at most, and stand back when the reference engine is asked for.
    """
    from gradformer.attention import operation

    engine = operation.current_engine()
    if engine == "reference" or x.dtype == torch.float64 or not x.numel():
        return False
    return why_no_triton(x.device, interpret=engine == "fused") is None
