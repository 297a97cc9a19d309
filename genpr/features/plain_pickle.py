"""Read dicts of numbers, texts and NumPy arrays from a pickle; no name in it is imported or called.

The opcodes are checked before the standard library interprets them, and names stand for the constructors below. Importing this
module does not import torch.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, NamedTuple, NoReturn

import numpy as np

MAX_BYTES = 2**28
"""Limit of the file, of the decoded texts, and of all covariances in float64; ten times the size of EDM2's files."""
_MAX_OPCODES = 100_000
_DTYPES = {"f4", "f8", "i4", "i8", "u1"}
_NAMES = {
    *("numpy ndarray", "numpy dtype", "_codecs encode"),
    *(f"numpy.{core}.multiarray {name}" for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *(f"numpy.{core}.numeric _frombuffer" for core in ("core", "_core")),
}
_TUPLES = {"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
_OPCODES = _TUPLES | {
    *("PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"),
    *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *(
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "SHORT_BINBYTES",
        "BINBYTES",
        "BINBYTES8",
        "BYTEARRAY8",
    ),
    *("EMPTY_TUPLE", "EMPTY_DICT", "SETITEM", "SETITEMS", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD"),
}


def read_plain_pickle(data: bytes) -> object:
    """The dict, number, text or array in a pickle of protocol 2 to 5; ValueError for others. Arrays are views of the data."""
    _check_opcodes(data)
    try:
        return _Reader(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, AttributeError, LookupError, EOFError, TypeError) as error:
        raise ValueError(f"its opcodes are inconsistent ({error})") from error


def _check_opcodes(data: bytes) -> None:
    """Refuse other opcodes than those of arrays, too many, and tuples used twice, whose hash could take any time."""
    last, tuples, n_kept, end = "", set[object](), 0, 0
    for count, (opcode, argument, position) in enumerate(pickletools.genops(data)):
        name = opcode.name
        if name not in _OPCODES:
            _refuse(f"opcode {name}")
        if count > _MAX_OPCODES:
            raise ValueError(f"it has more than {_MAX_OPCODES:,} opcodes")
        if name in {"MEMOIZE", "BINPUT", "LONG_BINPUT"}:
            number = n_kept if argument is None else argument
            (tuples.add if last in _TUPLES else tuples.discard)(number)
            n_kept += 1
        elif name in {"BINGET", "LONG_BINGET"} and argument in tuples:
            _refuse("a tuple used twice")
        last, end = name, (position or 0) + 1
    if end != len(data):
        raise ValueError("bytes follow its end")


class _Reader(pickle.Unpickler):
    """An unpickler that resolves no names."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.left = MAX_BYTES  # remaining bytes of decoded texts

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as the library declares it
        """The constructor of a known name."""
        if f"{module} {name}" not in _NAMES:
            _refuse(f"{module} {name}")
        return _Constructor(name, self)


class _Constructor(NamedTuple):
    """Makes what the function of a name would; a tuple, since opcodes may set attributes of other objects."""

    what: str
    reader: _Reader

    def __call__(self, *given: object) -> object:
        match (self.what, *given):
            case ("_reconstruct", _Constructor("ndarray"), (0,), bytes()):
                return _Array((0,))
            case ("dtype", str(kind), int(), int()) if kind in _DTYPES:
                return _Dtype(kind)
            case ("encode", str(text), "latin1"):
                self.reader.left -= len(text)
                if self.reader.left < 0:
                    raise ValueError(f"its texts decode to more than {MAX_BYTES:,} bytes")
                return text.encode("latin1")
            case (
                "_frombuffer",
                bytes() | bytearray() as data,
                _Dtype() as dtype,
                tuple(shape),
                "C" | "F" as order,
            ):
                return np.frombuffer(data, dtype.numpy).reshape(shape, order=order)
            case ("scalar", _Dtype() as dtype, bytes(data)):
                return np.frombuffer(data, dtype.numpy).item()
        return _refuse(f"{self.what} with unsupported arguments")


class _Dtype:
    """The dtype of an array; a later opcode sets its byte order."""

    def __init__(self, kind: str) -> None:
        self.kind = self.numpy = kind

    def __setstate__(self, state: object) -> None:
        match state:
            case (int(), "<" | ">" | "|" as order, None, None, None, int(), int(), int()):
                self.numpy = order + self.kind
            case _:
                _refuse("a state of a dtype")


class _Array(np.ndarray):
    """An array, empty until a later opcode sets its content."""

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401 - of NumPy's own pickles
        match state:
            case (int(), tuple(shape), _Dtype() as dtype, int(fortran), bytes(data)):
                np.frombuffer(data, dtype.numpy).reshape(shape)  # or a ValueError, before NumPy allocates
                super().__setstate__((1, shape, np.dtype(dtype.numpy), bool(fortran), data))  # type: ignore[arg-type]
            case _:
                _refuse("a state of an array")


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"only pickles of plain arrays are read, found {what[:100]}; nothing was executed")
