"""The engine that was asked for, and whether Triton kernels can run here; if not, why."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

from gradformer.attention.compiling import constant_when_compiled
from gradformer.errors import choice

ENGINES = ("auto", "reference", "fused")
OLDEST_TRITON = (3, 4)  # that can compile the kernels
PROVEN_RELEASES = ("3.6",)  # of Triton
_engine = "auto"


def current_engine() -> str:
    """``auto``, ``reference`` or ``fused``."""
    return _engine


@contextmanager
def use_engine(name: str) -> Iterator[None]:
    """The engine of the calls inside a ``with`` block, in all threads: backward passes and trials
    side by side have threads of their own. ``auto`` takes the fused one wherever it works."""
    global _engine
    before, _engine = _engine, choice("engine", name, ENGINES)
    try:
        yield
    finally:
        _engine = before


@cache
@constant_when_compiled
def _triton_error() -> str | None:
    try:
        import triton
    except ImportError as error:
        return f"Triton cannot be imported ({error}); install it with pip install 'gradformer[gpu]'"
    if tuple(map(int, triton.__version__.split(".")[:2])) < OLDEST_TRITON:
        need = "the kernels need Triton {}.{} or more, which comes with torch 2.8"
        return f"{need.format(*OLDEST_TRITON)}; installed is {triton.__version__}"
    return None


@cache
@constant_when_compiled
def _device_error(device: torch.device) -> str | None:
    if torch.version.cuda is None:
        return "the kernels are for GPUs of NVIDIA, and this torch is not built for CUDA"
    major, minor = torch.cuda.get_device_capability(device)
    if major < 8:
        name = torch.cuda.get_device_name(device)
        return f"the kernels need compute capability 8.0 or more, {name} has {major}.{minor}"
    return None


@constant_when_compiled
def _elsewhere(device: torch.device) -> str | None:
    """Kernels go to the current GPU, whatever device their tensors are on."""
    if device.index is None or device.index == (current := torch.cuda.current_device()):
        return None
    reason = (
        f"the kernels run on the current GPU, cuda:{current}, and the tensors are on {device}; "
        f"call torch.cuda.set_device({device.index})"
    )
    if _engine == "auto":
        warnings.warn(f"slow, as the fused engine is not taken: {reason}", stacklevel=3)
    return reason


@cache
def known_registers(device: torch.device) -> bool:
    """Whether tensor-core tiles lie in registers as :mod:`.kernels.pairs` needs for its wide way.

    Triton promises no such thing. It was seen, and results compared, with these releases on Hopper.
    """
    import triton

    release = ".".join(triton.__version__.split(".")[:2])
    hopper = device.type == "cuda" and torch.cuda.get_device_capability(device)[0] == 9
    return hopper and release in PROVEN_RELEASES


def interpreting() -> bool:
    """Whether Triton kernels run in its interpreter, on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def why_no_triton(device: torch.device) -> str | None:
    """Why Triton kernels cannot run on ``device``, or None if they can.

    Triton's interpreter is for tests: it is slow, and taken only when the engine is ``fused``.
    """
    if error := _triton_error():
        return error
    if device.type == "cuda":
        return _device_error(device) or _elsewhere(device)
    if _engine == "fused" and interpreting():
        return None
    return f"Triton kernels need a CUDA device, the tensors are on {device.type}"


def runs_kernels(x: Tensor) -> bool:
    """Whether Triton kernels take ``x`` in place of plain torch code.

    They compute in float32 at most, and stand back when the reference engine is asked for, and
    inside ``torch.compile``, where a compiler makes kernels of the plain code; only the attention
    is an operator there.
    """
    if _engine == "reference" or torch.compiler.is_compiling():
        return False
    if x.dtype == torch.float64 or not x.numel():
        return False
    return why_no_triton(x.device) is None


@constant_when_compiled  # torch 2.11 says yes inside ``torch.compile`` too
def exporting() -> bool:
    """Whether ``torch.export`` is tracing: then no value can be read back."""
    asked = getattr(torch.compiler, "is_exporting", None)  # torch 2.7 and later
    return asked is not None and bool(asked())
