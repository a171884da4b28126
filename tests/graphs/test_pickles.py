"""Published pickles are read as data; nothing that a file asks for is run."""

from __future__ import annotations

import collections
import io
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from gradformer.errors import InputError
from gradformer.graphs.sources import pickles


def roundtrip(value: Any, protocol: int = 4) -> Any:
    return pickles.load(pickle.dumps(value, protocol), "test")


@pytest.mark.parametrize("protocol", [3, 4])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.arange(6.0).reshape(2, 3, order="F"),
        np.array([True, False]),
        np.array([1, 2], dtype=">i4"),
        np.zeros((0, 3), np.float32),
    ],
)
def test_numpy_arrays(array: np.ndarray, protocol: int) -> None:
    found = roundtrip({"a": [array]}, protocol)["a"][0]
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype


def legacy_tensors(value: Any) -> bytes:
    """As pickle wrote tensors before torch stored them as zip files: what the ZINC files hold."""

    class Pickler(pickle.Pickler):
        def reducer_override(self, item: Any) -> Any:
            if isinstance(item, torch.Tensor):
                buffer = io.BytesIO()
                torch.save(item.storage(), buffer, _use_new_zipfile_serialization=False)
                storage = Storage(buffer.getvalue())
                rest = (item.storage_offset(), tuple(item.shape), item.stride(), False)
                hooks: Any = collections.OrderedDict()
                return torch._utils._rebuild_tensor_v2, (storage, *rest, hooks)
            if isinstance(item, Storage):
                return torch.storage._load_from_bytes, (item.content,)
            return NotImplemented

    buffer = io.BytesIO()
    Pickler(buffer, 4).dump(value)
    return buffer.getvalue()


class Storage:
    def __init__(self, content: bytes) -> None:
        self.content = content


@pytest.mark.filterwarnings("ignore:TypedStorage")
@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.uint8, torch.float32, torch.bool, torch.int16]
)
def test_torch_tensors(dtype: torch.dtype) -> None:
    base = torch.arange(24).to(dtype)
    tensors = [base, base[3:9], base.view(4, 6).T, base.view(2, 3, 4)[:, 1], base[:0], base[5]]
    found = pickles.load(legacy_tensors(tensors), "test")
    assert len(found) == len(tensors)
    for array, tensor in zip(found, tensors):
        np.testing.assert_array_equal(array, tensor.numpy())
        assert array.dtype == tensor.numpy().dtype


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_a_tensor_beyond_its_storage_is_refused() -> None:
    content = legacy_tensors(torch.arange(5))
    at = content.rindex(b"K\x05\x85")  # the size (5,)
    with pytest.raises(InputError, match="reaches beyond its storage"):
        pickles.load(content[: at + 1] + b"\x09" + content[at + 2 :], "test")


def test_sparse_matrices_and_default_dicts() -> None:
    matrix = csr_matrix(np.array([[0, 1.5], [2, 0]]))
    np.testing.assert_array_equal(roundtrip(matrix).toarray(), matrix.toarray())
    graph = collections.defaultdict(list, {0: [1, 2], 1: [0]})
    assert roundtrip(graph) == {0: [1, 2], 1: [0]}


class Evil:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        function, *arguments = self.call
        return function, tuple(arguments)


@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "numpy.load", "torch.load"])
def test_functions_are_not_called(name: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    calls = {
        "os.system": (os.system, f"touch {trace}"),
        "builtins.eval": (eval, f"open({str(trace)!r}, 'w')"),
        "numpy.load": (np.load, str(trace)),
        "torch.load": (torch.load, str(trace)),
    }
    with pytest.raises(InputError, match="not plain data; it was not run"):
        pickles.load(pickle.dumps([Evil(*calls[name])]), "test")
    assert not trace.exists()


def test_arrays_of_objects_are_refused() -> None:
    with pytest.raises(InputError, match="expected plain numbers"):
        roundtrip(np.array([{}, []], dtype=object))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 200))
def test_garbage_gives_our_error_only(noise: bytes, at: int) -> None:
    good = pickle.dumps({"train": np.arange(4), "test": [csr_matrix(np.eye(2))]}, 2)
    for content in (noise, good[:at] + noise + good[at + len(noise) :]):
        message = "file.pickle"
        try:
            pickles.load(content, "file.pickle")
        except InputError as error:
            message = str(error)
        assert "file.pickle" in message
