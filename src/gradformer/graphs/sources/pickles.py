"""Published pickles, read without running anything that they ask for.

An unpickler is a small machine that calls the functions a file names. Here a file may name those
below and nothing else, and each is ours: it checks its arguments and makes numpy arrays, sparse
matrices, lists or dicts.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError

_STORAGES = {
    b"LongStorage": "<i8",
    b"IntStorage": "<i4",
    b"ShortStorage": "<i2",
    b"CharStorage": "i1",
    b"ByteStorage": "u1",
    b"BoolStorage": "?",
    b"DoubleStorage": "<f8",
    b"FloatStorage": "<f4",
}


def load(content: bytes, where: str) -> Any:
    """The lists, dicts and arrays in a pickle (Python 2 or 3); ``where`` names it in errors."""
    try:
        reader = _Reader(io.BytesIO(content), encoding="latin1")
        value = reader.load()
        return _plain(value) if reader.wraps else value
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except Exception as error:
        raise InputError(f"{where} is not a readable pickle: {error}") from None


class _Reader(pickle.Unpickler):
    wraps = False

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        allowed = _ALLOWED.get((module.replace("numpy._core", "numpy.core"), name))
        if allowed is None:
            raise InputError(
                f"the pickle names {module}.{name}, which is not plain data; it was not run. "
                "Use the published file"
            )
        self.wraps |= allowed in (_empty_array, _Csr)
        return allowed


class _Dtype:
    """numpy.dtype of plain numbers."""

    def __init__(self, name: str, *_: Any) -> None:
        self.dtype = np.dtype(str(name))
        if self.dtype.kind not in "biuf":
            raise InputError(f"the pickle holds an array of type {name!r}, expected plain numbers")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """numpy.ndarray as its pickled state: (version, shape, dtype, column order, bytes)."""

    value: NDArray[Any]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, columns_first, content = state
        if isinstance(content, str):
            content = content.encode("latin1")
        flat = np.frombuffer(content, dtype.dtype)
        self.value = flat.reshape(shape, order="F" if columns_first else "C")


class _Csr:
    """scipy.sparse.csr_matrix."""

    value: Any

    def __setstate__(self, state: dict[str, Any]) -> None:
        from scipy.sparse import csr_matrix

        parts = (state["data"].value, state["indices"].value, state["indptr"].value)
        self.value = csr_matrix(parts, shape=state["_shape"])
        self.value.check_format(full_check=True)


def _empty_array(*_: Any) -> _Array:
    return _Array()


def _empty_dict(*_: Any) -> dict[Any, Any]:
    return {}


def _only_named(*_: Any) -> None:
    raise InputError("it calls a type that may only be named")


def _storage(content: bytes) -> NDArray[Any]:
    """The numbers of a torch storage: five small pickles, a count in 8 bytes, the raw values."""
    begin = content.find(b"ctorch\n") + 7
    dtype = _STORAGES.get(content[begin : content.find(b"\n", begin)])
    keys = content.find(b"Q.\x80\x02]q\x00", begin)  # where the list of one storage key begins
    end = content.find(b"q\x01a.", keys) + 4
    if begin < 7 or dtype is None or keys < 0 or end < 4:
        raise InputError("it holds a tensor in a form that is not known")
    (count,) = struct.unpack_from("<q", content, end)
    values = np.frombuffer(content, dtype, offset=end + 8)
    if len(values) != count:
        raise InputError(f"it holds a tensor of {count} values, {len(values)} are there")
    return values


def _tensor(
    storage: NDArray[Any], offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any
) -> NDArray[Any]:
    """The view of ``storage`` that a tensor is."""
    last = offset + sum((n - 1) * step for n, step in zip(size, stride))
    if 0 in size:
        return np.empty(size, storage.dtype)
    if offset < 0 or min(stride, default=0) < 0 or last >= len(storage):
        raise InputError("it holds a tensor that reaches beyond its storage")
    if stride in ((1,), (*size[-1:], 1)):  # the common case, a vector or a whole matrix
        return storage[offset : last + 1].reshape(size)
    strides = tuple(step * storage.itemsize for step in stride)
    return np.lib.stride_tricks.as_strided(storage[offset:], size, strides)


def _plain(value: Any) -> Any:
    """``value`` with the arrays taken out of their wrappers."""
    if isinstance(value, _Array | _Csr):
        return value.value
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch.storage", "_load_from_bytes"): _storage,
    ("collections", "OrderedDict"): _empty_dict,
    ("collections", "defaultdict"): _empty_dict,
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy", "ndarray"): _only_named,
    ("numpy", "dtype"): _Dtype,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,
    ("scipy.sparse._csr", "csr_matrix"): _Csr,
    ("__builtin__", "list"): _only_named,
    ("builtins", "list"): _only_named,
}
