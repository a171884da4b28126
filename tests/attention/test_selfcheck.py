"""An engine that gives other numbers than the reference is found out, and said where."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gradformer.attention.kernels import launch
from gradformer.attention.selfcheck import why_not


def test_the_reference_works(device: str) -> None:
    assert why_not("reference", torch.device(device)) is None


def test_every_kind_of_kernel_is_tried(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forward, tried = launch.forward, set()

    def watched(problem: launch.Problem) -> Any:
        tried.add((problem.kind(backward=False), problem.q.dtype))
        return forward(problem)

    monkeypatch.setattr(launch, "forward", watched)
    assert why_not("fused", torch.device(device)) is None
    half = ("tiled", torch.float16)
    assert tried == {(kind, torch.float32) for kind in ("small", "rows", "tiled")} | {half}


def test_wrong_numbers_are_named(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backward = launch.backward

    def wrong(*given: Any) -> Any:
        gradients, *rest = backward(*given)
        gradients[0, 0, 0] += 1.0
        return gradients, *rest

    monkeypatch.setattr(launch, "backward", wrong)
    found = why_not("fused", torch.device(device))
    assert found is not None
    assert found.startswith("small graphs: gives other results than the reference (by ")
