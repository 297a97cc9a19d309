"""Read dicts of numbers, texts and NumPy arrays from a pickle, of which nothing else is resolved or called.

Importing this module does not import torch.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

MAX_BYTES = 2**28
"""Limit of the file, of the decoded texts, and of all covariances in float64; ten times the size of EDM2's files."""
_MAX_OPCODES, _MAX_AXES = 100_000, 8
_OPCODES = """
PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT SHORT_BINUNICODE BINUNICODE BINUNICODE8
SHORT_BINBYTES BINBYTES BINBYTES8 BYTEARRAY8 EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT SETITEM SETITEMS
GLOBAL STACK_GLOBAL MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET REDUCE BUILD
"""
_DTYPES = ("f4", "f8", "i4", "i8", "u1")


def read_plain_pickle(data: bytes) -> object:
    """The dict, number, text or array in a pickle of protocol 2 to 5; ValueError for others.

    The keys of dicts are texts. No pickle can import anything, call anything but the functions below, or change an object that
    it did not make.
    """
    try:
        end, allowed = 0, set(_OPCODES.split())
        for count, (opcode, _, position) in enumerate(pickletools.genops(data)):
            if opcode.name not in allowed or count == _MAX_OPCODES:
                _refuse(f"opcode {opcode.name}, or more than {_MAX_OPCODES:,} opcodes")
            end = (position or 0) + 1
        if end != len(data):
            raise ValueError("bytes follow its end")
        return _Unpickler(data).load()
    except (pickle.UnpicklingError, EOFError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"its opcodes are inconsistent ({type(error).__name__})") from error


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"only pickles of plain arrays are read, found {what[:100]}; nothing was executed")


class _Unpickler(pickle._Unpickler):
    """Resolves the names of NumPy's arrays only, to functions that check their arguments.

    In contrast to `pickle.Unpickler`, the class in Python lets opcodes be replaced, and its memo takes no memory for large indices.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self._left = {"texts": MAX_BYTES, "arrays": MAX_BYTES}  # both may repeat a part of the file

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - a function or a text
        """What one of the known names stands for."""
        match module.replace("numpy._core", "numpy.core"), name:
            case "numpy", "ndarray":
                return "ndarray"
            case "numpy", "dtype":
                return _dtype
            case "numpy.core.multiarray", "_reconstruct":
                return _reconstruct
            case "numpy.core.multiarray", "scalar":
                return lambda dtype, data: _from_buffer(data, dtype, (), "C").item()
            case "numpy.core.numeric", "_frombuffer":
                return _from_buffer
            case "_codecs", "encode":
                return self._encode
        _refuse(f"{module} {name}")

    def _encode(self, text: str, encoding: str) -> bytes:
        self.spend("texts", len(text))
        return text.encode("latin1") if encoding == "latin1" else _refuse("another encoding")

    def spend(self, what: str, count: int) -> None:
        """Count bytes that are allocated."""
        self._left[what] -= count
        if self._left[what] < 0:
            raise ValueError(f"its {what} have more than {MAX_BYTES:,} bytes")


class _Dict(dict[str, Any]):
    def __setitem__(self, key: str, value: object) -> None:
        if type(key) is not str:  # hashing nested tuples may not terminate
            _refuse(f"a key of type {type(key).__name__}")
        super().__setitem__(key, value)


def _build(reader: Any) -> None:  # noqa: ANN401 - attributes without types
    """Set the byte order of a new dtype, or the content of a new array."""
    state, made = reader.stack.pop(), reader.stack[-1]
    match made, state:
        case np.dtype(), (int(), "<" | ">" | "|" as order, None, None, None, int(), int(), int()):
            made.__setstate__((3, order, None, None, None, -1, -1, 0))  # type: ignore[attr-defined]
        case np.ndarray(), (
            int(),
            tuple() as shape,
            np.dtype() as dtype,
            int() as is_fortran,
            bytes() as data,
        ):
            _check_size(shape, dtype, data)
            reader.spend("arrays", len(data))
            made.__setstate__((1, shape, dtype, is_fortran, data))  # type: ignore[arg-type]
        case _:
            _refuse(f"a state of {type(made).__name__}")


_Unpickler.dispatch = pickle._Unpickler.dispatch | {
    pickle.EMPTY_DICT[0]: lambda reader: reader.append(_Dict()),
    pickle.BUILD[0]: _build,
}


def _check_size(shape: tuple[Any, ...], dtype: np.dtype[Any], data: bytes) -> None:
    is_shape = len(shape) <= _MAX_AXES and all(type(side) is int and side >= 0 for side in shape)
    if not isinstance(dtype, np.dtype) or not is_shape or math.prod(shape) * dtype.itemsize != len(data):
        _refuse(f"{len(data):,} bytes with another shape or dtype")


def _dtype(kind: str, _align: object, _copy: object) -> np.dtype[Any]:
    """A new dtype, so that its state is not that of others."""
    if isinstance(kind, str) and kind in _DTYPES:
        return np.dtype(kind, copy=True)
    _refuse("a dtype of other values than numbers")


def _reconstruct(kind: object, shape: object, _code: object) -> NDArray[Any]:
    """A new array, whose state is set later."""
    if isinstance(kind, str) and kind == "ndarray" and shape == (0,):
        return np.empty(0)
    _refuse("a subclass of arrays")


def _from_buffer(data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], order: Any) -> NDArray[Any]:  # noqa: ANN401
    _check_size(shape, dtype, data)
    return np.frombuffer(data, dtype).reshape(shape, order=order)
