"""Dataclasses back from the plain JSON types that `dataclasses.asdict` gives."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_FARTHEST = 2**63  # of an integer; longer ones cannot even be printed


def rebuilt(kind: Any, record: Any) -> Any:  # noqa: ANN401 - as many types as there are records
    """A value of the type `kind` from its record.

    Args:
        kind: A dataclass, tuple[X, ...], tuple[X, Y], Mapping[str, X], a union with None, a Literal, or a plain JSON type.
        record: What JSON made of it.

    Raises:
        TypeError: It is no such record.
        ValueError: A number is not finite, or beyond 64 bits; or a list is of another length.
        KeyError: A field is missing that has no default.

    Example:
        >>> rebuilt(tuple[int, ...] | None, [1, 2]), rebuilt(int | None, None)
        ((1, 2), None)
    """
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        if record is None and type(None) in get_args(kind):
            return None
        (other,) = [each for each in get_args(kind) if each is not type(None)]
        return rebuilt(other, record)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        made: Any = kind
        known = [field for field in fields(kind) if field.name in record or not _has_default(field)]
        return made(**{field.name: rebuilt(hints[field.name], record[field.name]) for field in known})
    if origin is Literal:
        if record not in get_args(kind):
            raise TypeError(f"{record!r} is none of {get_args(kind)}")
        return record
    if origin is tuple:
        return _tuple(get_args(kind), record)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(record, Mapping):
            raise TypeError(f"{record!r} is no object")
        _, of_values = get_args(kind)
        return {str(key): rebuilt(of_values, value) for key, value in record.items()}
    return _plain(kind, record)


def _tuple(kinds: tuple[Any, ...], record: Any) -> tuple[Any, ...]:  # noqa: ANN401
    if not isinstance(record, list | tuple):
        raise TypeError(f"{record!r} is no list")
    if kinds[-1] is Ellipsis:
        return tuple(rebuilt(kinds[0], each) for each in record)
    return tuple(rebuilt(kind, each) for kind, each in zip(kinds, record, strict=True))


def _plain(kind: Any, record: Any) -> Any:  # noqa: ANN401
    """JSON does not tell 1 from 1.0, and a bool is no number."""
    accepted = (int, float) if kind is float else kind
    if not isinstance(record, accepted) or (kind in (int, float) and isinstance(record, bool)):
        raise TypeError(f"{record!r} is no {kind.__name__}")
    if isinstance(record, int) and not -_FARTHEST <= record < _FARTHEST:
        raise ValueError("a number has more than 64 bits")
    if isinstance(record, float) and not math.isfinite(record):
        raise ValueError(f"{record} is no finite number")
    return float(record) if kind is float else record


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING
