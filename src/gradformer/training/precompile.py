"""All kernels that a step is made of, compiled at once.

Triton compiles a kernel when it is first launched. A deep model has dozens, and one after the other
they take a minute or more. Most of a compiler's work needs no Python, so threads can share it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gradformer.attention.availability import why_no_triton
from gradformer.cores import cores

aten = torch.ops.aten
EMPTY = (aten.empty, aten.empty_like, aten.new_empty, aten.empty_strided, aten.new_empty_strided)


class Zeros(TorchDispatchMode):
    """New memory is filled with zeros: what nobody writes may still be used as an index."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        return found.zero_() if func.overloadpacket in EMPTY else found


def compile_kernels(body: Callable[[], object], stream: torch.cuda.Stream) -> None:
    """Compile all kernels that ``body`` launches, and launch none.

    It is run on ``stream``, whose kernels do nothing meanwhile; those that other threads launch on
    their own streams do. What goes wrong here is left for the real run to tell.
    """
    device = stream.device
    if why_no_triton(device) is not None:
        return
    from triton.runtime.jit import JITFunction

    compiled, known = JITFunction.run, set[Hashable]()

    def note(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        if torch.cuda.current_stream(device) != stream:
            return compiled(kernel, *args, grid=grid, warmup=warmup, **options)
        key = (kernel.fn, *map(_kind, args), *((n, _exact_kind(x)) for n, x in options.items()))
        if key not in known:
            known.add(key)
            kernel.device_caches[device.index]  # made here: two threads would make it twice
            pool.submit(compiled, kernel, *args, grid=grid, warmup=True, **options)
        return None

    workers = ThreadPoolExecutor(cores(), "kernels", torch.cuda.set_device, (device,))
    with workers as pool, _run_by(JITFunction, note), suppress(Exception), Zeros():  # type: ignore[no-untyped-call]
        body()


@contextmanager
def _run_by(kind: Any, run: Callable[..., Any]) -> Iterator[None]:
    """What launches kernels of a ``kind`` is ``run``."""
    before, kind.run = kind.run, run
    try:
        yield
    finally:
        kind.run = before


def _kind(value: Any) -> Hashable:
    """What of an argument, at most, decides which kernel is compiled."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int, value == 1, value % 16 == 0, value >> 31
    return float if isinstance(value, float) else _exact_kind(value)


def _exact_kind(value: Any) -> Hashable:
    """As it is, unless it is a tensor."""
    if isinstance(value, Tensor):
        return value.dtype, value.data_ptr() % 16 == 0
    return type(value), value
