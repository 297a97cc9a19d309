"""Read dicts of numbers, texts and NumPy arrays from a pickle with an interpreter that neither imports nor calls anything.

A pickle is a program. `pickletools` of the standard library parses its opcodes without executing them. The opcodes that
NumPy's arrays need are interpreted here, and all others are errors. Importing this module does not import torch.
"""

from __future__ import annotations

import io
import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

MAX_BYTES = 2**28
"""Limit of the file, of the decoded texts, and of all covariances in float64; ten times the size of EDM2's files."""
_MAX_OPCODES, _MAX_MARKS, _MAX_AXES = 100_000, 16, 8
_DTYPES = {"f4", "f8", "i4", "i8", "u1"}
_NAMES = {
    *("numpy ndarray", "numpy dtype", "_codecs encode"),
    *(f"numpy.{core}.multiarray {name}" for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *(f"numpy.{core}.numeric _frombuffer" for core in ("core", "_core")),
}


@dataclass(frozen=True)
class _Name:
    """The last part of one of `_NAMES`, never resolved to an object."""

    what: str


@dataclass(eq=False)
class _Dtype:
    """The dtype of an array; its byte order is set by a later opcode."""

    kind: str
    order: str = "<"

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.kind)


@dataclass(eq=False)
class _Array:
    """An array, empty until its content is set by a later opcode."""

    values: Any = None


def read_plain_pickle(data: bytes) -> object:
    """The dict, number, text or array in a pickle of protocol 2 to 5; ValueError for others. Arrays are views of the data.

    The keys of dicts are texts. No pickle can import, call or execute anything.
    """
    reader, file = _Reader(), io.BytesIO(data)
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(file)):
            if count > _MAX_OPCODES:
                raise ValueError(f"it has more than {_MAX_OPCODES:,} opcodes")
            if opcode.name == "STOP":
                break
            reader.step(opcode.name, argument)
        if file.read(1):
            raise ValueError("bytes follow its end")
        value = reader.pop()
    except (IndexError, KeyError) as error:  # an empty stack, or an unknown memo entry
        raise ValueError(f"its opcodes are inconsistent ({type(error).__name__})") from error
    return value.values if isinstance(value, _Array) else value


class _Reader:
    """The stack and the memo of an unpickler."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._outer: list[list[Any]] = []  # the stacks below each open group
        self._memo: dict[int, Any] = {}
        self._left = MAX_BYTES  # remaining bytes of decoded texts

    def pop(self) -> Any:  # noqa: ANN401 - whatever a pickle holds
        """The topmost value."""
        return self._stack.pop()

    def step(self, name: str, argument: Any) -> None:  # noqa: ANN401 - of the opcode
        """Interpret one opcode."""
        if name in _VALUES:
            self._stack.append(argument)
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name])
        elif name in _STEPS:
            _STEPS[name](self, _COUNTS.get(name, argument))
        elif name not in {"PROTO", "FRAME"}:
            _refuse(f"opcode {name}")

    def _mark(self, _argument: object) -> None:
        if len(self._outer) == _MAX_MARKS:
            raise ValueError("it is nested too deeply")
        self._outer.append(self._stack)
        self._stack = []

    def _pop_to_mark(self) -> list[Any]:
        values, self._stack = self._stack, self._outer.pop()
        return values

    def _keep(self, argument: int | None) -> None:
        self._memo[len(self._memo) if argument is None else argument] = self._stack[-1]

    def _recall(self, argument: int) -> None:
        self._stack.append(self._memo[argument])

    def _new_dict(self, _argument: object) -> None:
        self._stack.append({})

    def _tuple(self, count: int | None) -> None:
        values = self._pop_to_mark() if count is None else [self.pop() for _ in range(count)][::-1]
        self._stack.append(tuple(values))

    def _set_items(self, count: int | None) -> None:
        values = self._pop_to_mark() if count is None else [self.pop(), self.pop()][::-1]
        held = self._stack[-1]
        if type(held) is not dict or len(values) % 2:
            _refuse("items of something that is not a dict")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if type(key) is not str:  # hashing nested tuples may not terminate
                _refuse(f"a key of type {type(key).__name__}")
            held[key] = value.values if isinstance(value, _Array) else value

    def _global(self, argument: str | None) -> None:
        if argument is None:
            name, module = self.pop(), self.pop()
            argument = (
                f"{module} {name}" if type(name) is type(module) is str else "a name that is not a text"
            )
        if argument not in _NAMES:
            _refuse(argument)
        self._stack.append(_Name(argument.rpartition(" ")[2]))

    def _reduce(self, _argument: object) -> None:
        given, function = self.pop(), self.pop()
        if not isinstance(function, _Name) or type(given) is not tuple:
            _refuse("a call")
        match (function.what, *given):
            case ("_reconstruct", _Name("ndarray"), (0,), bytes()):
                self._stack.append(_Array())
            case ("dtype", str(kind), int(), int()) if kind in _DTYPES:
                self._stack.append(_Dtype(kind))
            case ("encode", str(text), "latin1"):
                self._left -= len(text)
                if self._left < 0:
                    raise ValueError(f"its texts decode to more than {MAX_BYTES:,} bytes")
                self._stack.append(text.encode("latin1"))
            case (
                "_frombuffer",
                bytes() | bytearray() as data,
                _Dtype() as dtype,
                tuple(shape),
                "C" | "F" as order,
            ):
                self._stack.append(_Array(self._array(data, dtype, shape, order)))
            case ("scalar", _Dtype() as dtype, bytes(data)):
                self._stack.append(self._array(data, dtype, (), "C").item())
            case (what, *_):
                _refuse(f"{what} with unsupported arguments")

    def _build(self, _argument: object) -> None:
        state, held = self.pop(), self._stack[-1]
        match (held, state):
            case (_Dtype(), (int(), "<" | ">" | "|" as order, None, None, None, int(), int(), int())):
                held.order = order
            case (_Array(), (int(), tuple(shape), _Dtype() as dtype, int(fortran), bytes(data))):
                held.values = self._array(data, dtype, shape, "F" if fortran else "C")
            case _:
                _refuse(f"a state of {type(held).__name__.strip('_')}")

    def _array(self, data: bytes | bytearray, dtype: _Dtype, shape: tuple[Any, ...], order: str) -> Any:  # noqa: ANN401
        if len(shape) > _MAX_AXES or any(type(side) is not int or side < 0 for side in shape):
            raise ValueError("an array has an invalid shape")
        needed = math.prod(shape) * dtype.numpy.itemsize
        if needed != len(data):
            raise ValueError(f"an array of shape {shape} needs {needed:,} bytes and has {len(data):,}")
        return np.frombuffer(data, dtype.numpy).reshape(shape, order="F" if order == "F" else "C")


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"only pickles of plain arrays are read, found {what[:100]}; nothing was executed")


_VALUES = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
_VALUES |= {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
_VALUES |= {"SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_COUNTS = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "SETITEM": 1}
_STEPS: dict[str, Callable[[_Reader, Any], None]] = {
    "MARK": _Reader._mark,
    "EMPTY_DICT": _Reader._new_dict,
    **dict.fromkeys(("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"), _Reader._tuple),
    **dict.fromkeys(("SETITEM", "SETITEMS"), _Reader._set_items),
    **dict.fromkeys(("MEMOIZE", "BINPUT", "LONG_BINPUT"), _Reader._keep),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _Reader._recall),
    **dict.fromkeys(("GLOBAL", "STACK_GLOBAL"), _Reader._global),
    "REDUCE": _Reader._reduce,
    "BUILD": _Reader._build,
}
