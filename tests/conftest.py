"""What tests share: where reference numbers and raw data lie, docs' scripts, one thread each, what
torch is asked to do."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

if os.environ.get("TRITON_INTERPRET") == "1":  # as by `make test`: what CI tests, on any machine
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # some machines say AMX and lack it
torch.set_num_threads(1)
if DEVICE == "cpu":  # Triton reads it when it is imported: kernels run in its interpreter
    os.environ.setdefault("TRITON_INTERPRET", "1")
    if importlib.util.find_spec("triton") is not None:
        from .interpreter import find_builtins_once

        find_builtins_once()
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and stays so
ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("GRADFORMER_SHARED", ROOT.parent / "shared"))


def shared_path(*parts: str) -> Path:
    """A path under the shared folder; skips the test with a reason where it is absent."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is absent: set GRADFORMER_SHARED to where golden, data, paper are")
    return path


def docs_script(name: str) -> ModuleType:
    """A script of the folder docs, which is no package, as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.append(str(ROOT / "docs"))  # where a script finds others when it is run
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop()
    return module


class Operations(TorchDispatchMode):
    """The names of all that torch does inside."""

    def __init__(self) -> None:
        super().__init__()
        self.names = set[str]()

    def __torch_dispatch__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def device() -> str:
    """Where Triton kernels run: on the GPU, or on the CPU in Triton's interpreter."""
    return DEVICE


@pytest.fixture
def data_mirror() -> Path:
    """The mirror of raw dataset files."""
    return shared_path("data")


@pytest.fixture
def golden_folder() -> Path:
    """The reference numbers of the models."""
    return shared_path("golden")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked ``gpu`` are skipped where there is none."""
    if DEVICE == "cuda":
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
