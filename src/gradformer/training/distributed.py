"""Several processes, one batch: started by ``torchrun``, joined here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gradformer.errors import ConfigError, GradformerError
from gradformer.model.parallel import is_shared, shared_batch


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Join the processes that ``torchrun`` started; with a single process, nothing happens."""
    if processes() == 1 or is_shared():
        yield
        return
    # Signals and records are shared between hosts, gradients between devices.
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        with shared_batch():
            yield
    finally:
        torch.distributed.destroy_process_group()


def from_first(value: Any) -> Any:
    """The value that the first process has, in all of them."""
    if not is_shared():
        return value
    box = [value]
    torch.distributed.broadcast_object_list(box)
    return box[0]


def by_first(task: Callable[..., object], *arguments: Any) -> None:
    """Have the first process do something while the others wait.

    If it is refused, the first process says why and the others end silently.
    """
    refusal = None
    if is_first():
        try:
            task(*arguments)
        except GradformerError as error:
            refusal = error
    refused = from_first(refusal is not None)
    if refusal is not None:
        raise refusal
    if refused:
        raise SystemExit(1)


def place_in_batch() -> tuple[int, int]:
    """The number of this process among those that share the batch, and how many there are."""
    if not is_shared():
        return 0, 1
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def processes() -> int:
    """How many processes ``torchrun`` started, this one included."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process writes and speaks for all, joined to them or not."""
    return processes() == 1 or os.environ.get("RANK", "0") == "0"


def find_device(name: str | torch.device = "auto") -> torch.device:
    """``auto`` is this process's GPU if there is one, else the CPU; a GPU becomes the current one.

    Triton launches kernels on the current device, wherever their arguments are.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device: unknown name '{name}'; use auto, cpu, cuda or cuda:1")
    if device.type == "cpu":
        return device
    if not torch.cuda.is_available():
        raise ConfigError(f"device: {name} is asked for, but torch sees no GPU; use --device cpu")
    if device.index is None:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    try:
        torch.cuda.set_device(device)
    except RuntimeError:
        count = torch.cuda.device_count()
        raise ConfigError(f"device: there is no {device}; GPUs that torch sees: {count}") from None
    return device
