"""What users give as lists, numbers and choices, taken for what it is or refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import UsageError

MOST = 10**15
"""More candidates, places or seeds than that are a mistake."""


def as_list(value: object) -> list[Any]:
    """A collection, in order, as a list; a list as it is.

    Raises:
        TypeError: It is none, or a text or a mapping.
    """
    if type(value) is list:
        return value
    if isinstance(value, np.ndarray | Tensor):
        value = value.tolist()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"a {type(value).__name__} is no list")
    return list(value)


def as_integers(value: object) -> NDArray[np.int64] | None:
    """Whole numbers in an array of any shape; None if they are no such."""
    try:
        array = value.cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    except (TypeError, ValueError):
        return None
    return array.astype(np.int64) if array.dtype.kind in "iu" and array.size else None


def is_number(value: object) -> bool:
    """Whether it is one number and no truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_choice(value: object, name: str, choices: Mapping[str, str]) -> None:
    """Refuse anything but one of these words.

    Args:
        value: What came.
        name: The option.
        choices: What each word means.

    Raises:
        UsageError: "bad-<name>".
    """
    if not isinstance(value, str) or value not in choices:
        words = " or ".join(f"{word!r} ({meaning})" for word, meaning in choices.items())
        raise UsageError(f"{name} must be {words}, not {value!r:.60}", code=f"bad-{name}")
