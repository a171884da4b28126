"""Fixtures of the tests that hold kernels to their plain forms."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def on_the_device(device: str) -> Iterator[None]:
    """New tensors are made where Triton kernels run."""
    with torch.device(device):
        yield
