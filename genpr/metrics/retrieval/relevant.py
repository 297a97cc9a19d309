"""Which candidates are relevant to each query, as users say it: checked once, then flat arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import DataError, UsageError
from genpr.metrics.given import MOST, as_list, check_choice
from genpr.metrics.retrieval.places import Counts, Numbers, Wanted

Gain: TypeAlias = Literal["linear", "exponential"]
Relevant: TypeAlias = NDArray[Any] | Tensor | Sequence[int] | Sequence[Iterable[int]]
"""One candidate per query, or several, as indices from 0."""

Grades: TypeAlias = NDArray[Any] | Tensor | Sequence[float] | Sequence[Iterable[float]]
"""How relevant each is, in the same shape."""


def check_ks(ks: object, *, most: int | None = None) -> list[int]:
    """Where rankings are cut, ascending.

    Raises:
        UsageError: Not integers of at least 1, twice the same ("bad-k"), or beyond the smallest pool ("k-beyond-pool").
    """
    try:
        listed = as_list(ks)
    except TypeError:
        listed = [ks]
    if not listed or any(
        isinstance(k, bool) or not isinstance(k, Integral) or not 1 <= int(k) <= MOST for k in listed
    ):
        raise UsageError(f"a ranking is cut at an integer of at least 1, not at {ks!r:.60}", code="bad-k")
    cuts = sorted(int(k) for k in listed)
    if any(a == b for a, b in pairwise(cuts)):
        raise UsageError(f"ks names a cut twice: {cuts}", code="bad-k")
    if most is not None and cuts[-1] > most:
        raise UsageError(
            f"k = {cuts[-1]} is beyond the smallest pool, of {most} candidates, where every ranking finds everything; "
            "choose smaller ks or larger pools",
            code="k-beyond-pool",
        )
    return cuts


def check_gain(gain: object) -> None:
    """Refuse anything but "linear" and "exponential".

    Raises:
        UsageError: "bad-gain".
    """
    check_choice(gain, "gain", {"linear": "g", "exponential": "2^g - 1"})


def gains_of(grades: Numbers, gain: Gain) -> Numbers:
    """What grades (p,) are worth in DCG.

    Raises:
        DataError: A grade is not positive and finite, or worth more than can be computed with ("bad-relevance").
    """
    with np.errstate(over="ignore"):
        gains = grades if gain == "linear" else np.exp2(grades) - 1
    bad = ~((grades > 0) & np.isfinite(gains) & (gains < 1e300) & (gains > 1e-300))
    if bad.any():
        raise DataError(
            f"relevance of what is relevant must be positive and finite, but {bad.sum():,} of {len(grades):,} are not; the "
            f"first is {grades[bad][0]}. Leave out what is not relevant",
            code="bad-relevance",
        )
    return gains


def wanted_of(
    relevant: Relevant, relevance: Grades | None, *, gain: Gain, candidates: int, n: int | None = None
) -> tuple[Wanted, Counts]:
    """What is relevant to each query, and the candidate (p,) that each of its items is.

    Args:
        relevant: As users give it.
        relevance: Grades in the same shape; None if all are of grade 1.
        gain: What grades are worth.
        candidates: Candidates that there are.
        n: Queries; None for as many as there are entries.

    Raises:
        DataError: Not one entry per query, not indices of candidates, one twice for a query ("bad-relevant"), or grades
            that do not fit ("bad-relevance").
    """
    check_gain(gain)
    rows = _rows(relevant, "relevant")
    if n is not None and len(rows) != n:
        raise DataError(
            f"relevant must hold one entry per query: {n:,} are needed, {len(rows):,} came",
            code="bad-relevant",
        )
    if not rows:
        raise DataError("relevant holds no query", code="bad-relevant")
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    flat = [index for row in rows for index in row]
    index = _indices(flat, candidates)
    wanted = Wanted(offsets, np.ones(len(flat)))
    _refuse_repeated(wanted.query, index)
    if relevance is None:
        return wanted, index
    grades = _rows(relevance, "relevance")
    if [len(row) for row in grades] != [len(row) for row in rows]:
        raise DataError(
            "relevance must hold a grade for each of relevant, in its shape", code="bad-relevance"
        )
    return Wanted(offsets, gains_of(_grades([grade for row in grades for grade in row]), gain)), index


def _rows(given: Relevant | Grades, name: str) -> list[Sequence[Any]]:
    """One list per query; a number alone stands for a list of one."""
    try:
        return [[row] if isinstance(row, Real) else as_list(row) for row in as_list(given)]
    except TypeError as error:
        raise DataError(
            f"{name} must be one number per query, or a list of them per query: {error}", code=f"bad-{name}"
        ) from error


def _indices(flat: Sequence[Any], candidates: int) -> Counts:
    for index in flat:
        if isinstance(index, bool) or not isinstance(index, Integral) or not 0 <= int(index) < candidates:
            raise DataError(
                f"relevant must hold indices of candidates, from 0 to {candidates - 1}, but one is {index!r:.60}",
                code="bad-relevant",
            )
    return np.array(flat, dtype=np.int64)


def _refuse_repeated(query: Counts, index: Counts) -> None:
    order = np.lexsort((index, query))
    same = (np.diff(query[order]) == 0) & (np.diff(index[order]) == 0)
    if same.any():
        at = order[int(np.argmax(same))]
        raise DataError(
            f"relevant names candidate {index[at]} twice for query {query[at]} (counted from 0)",
            code="bad-relevant",
        )


def _grades(flat: Sequence[Any]) -> Numbers:
    for grade in flat:
        if isinstance(grade, bool) or not isinstance(grade, Real) or math.isnan(grade):
            raise DataError(f"relevance must hold numbers, but one is {grade!r:.60}", code="bad-relevance")
    return np.array(flat, dtype=np.float64)
