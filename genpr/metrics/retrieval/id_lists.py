"""Lists of ids as users give them: of one query or of many, checked once."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import DataError, UsageError
from genpr.metrics.given import as_list, is_number

Id: TypeAlias = Hashable
Ids: TypeAlias = Collection[Id] | NDArray[np.generic] | Tensor
"""Ids of one query: texts, numbers or anything that can be hashed, but no collections."""

_COLLECTIONS = (list, tuple, set, frozenset, np.ndarray, Tensor)
_PLAIN = {str, int, bytes}
_SHOWN = 60  # characters of a user's value in a message


def queries_of(
    expected: Ids | Sequence[Ids], retrieved: Ids | Sequence[Ids]
) -> tuple[list[list[Id]], list[list[Id]]]:
    """Expected and retrieved ids, a list per query.

    Raises:
        UsageError: Something is no list of ids, or both are not of equally many queries ("bad-ids").
        DataError: There is no query, or an id cannot be hashed or compared ("bad-ids").
    """
    ours, theirs = _listed(expected, "expected"), _listed(retrieved, "retrieved")
    if _is_many(ours, "expected") or (not ours and _is_many(theirs, "retrieved")):
        both = [
            [_listed(ids, f"{name} of query {at}") for at, ids in enumerate(side)]
            for side, name in ((ours, "expected"), (theirs, "retrieved"))
        ]
    else:
        both = [[ours], [theirs]]
    if any(isinstance(side, AbstractSet) for side in (retrieved, *theirs)):
        raise UsageError("retrieved holds a set, which has no order; give a list, best first", code="bad-ids")
    if len(both[0]) != len(both[1]):
        raise UsageError(
            f"expected and retrieved must hold one list per query, but hold {len(both[0]):,} and {len(both[1]):,}",
            code="bad-ids",
        )
    if not both[0]:
        raise DataError("expected holds no query", code="bad-ids")
    for side, name in zip(both, ("expected", "retrieved"), strict=True):
        _check_ids(side, name)
    _refuse_different_kinds(*both)
    return both[0], both[1]


def grades_of(
    expected: Sequence[Sequence[Id]], relevance: Mapping[Id, float] | Sequence[Mapping[Id, float]]
) -> list[list[float]]:
    """The grade of each expected id.

    Args:
        expected: Different ids, a list per query.
        relevance: As users give it.

    Raises:
        DataError: Not a grade for each expected id and for no other ("bad-relevance").
    """
    tables = [relevance] if isinstance(relevance, Mapping) else relevance
    is_right = isinstance(tables, Sequence) and all(isinstance(table, Mapping) for table in tables)
    if not is_right or len(tables) != len(expected):
        raise DataError("relevance must hold one mapping from ids to grades per query", code="bad-relevance")
    for at, (ids, table) in enumerate(zip(expected, tables, strict=True)):
        for one in set(ids) ^ set(table):
            which = "lacks a grade of the expected id" if one in ids else "grades an id that is not expected,"
            raise DataError(f"relevance of query {at} {which} {_shown(one)}", code="bad-relevance")
        for one, grade in table.items():
            if not is_number(grade):
                raise DataError(
                    f"relevance of {_shown(one)} must be a number, not {_shown(grade)}", code="bad-relevance"
                )
    return [[float(table[one]) for one in ids] for ids, table in zip(expected, tables, strict=True)]


def _listed(value: object, what: str) -> list[Id]:
    try:
        return as_list(value)
    except TypeError as error:
        raise UsageError(
            f"{what} must be a list of ids, but {error}: {_shown(value)}", code="bad-ids"
        ) from error


def _is_many(listed: Sequence[object], name: str) -> bool:
    """Whether it is a list of lists."""
    are = [isinstance(one, _COLLECTIONS) for one in listed]
    if any(are) and not all(are):
        raise UsageError(
            f"{name} mixes ids and lists of ids; give one list of ids, or one list per query", code="bad-ids"
        )
    return any(are)


def _check_ids(queries: Sequence[Sequence[object]], name: str) -> None:
    for at, ids in enumerate(queries):
        if set(map(type, ids)) <= _PLAIN:
            continue  # millions of these are usual
        for one in ids:
            if isinstance(one, _COLLECTIONS) or not isinstance(one, Hashable):
                raise DataError(
                    f"{name} of query {at} holds a {type(one).__name__}, which is no id: {_shown(one)}",
                    code="bad-ids",
                )
            if one is None or not _equals_itself(one):
                raise DataError(f"{name} of query {at} holds {one!r}, which is no id", code="bad-ids")


def _equals_itself(one: object) -> bool:
    """NaN does not, and pandas' NA does not know."""
    try:
        return bool(one == one)
    except (TypeError, ValueError):
        return False


def _refuse_different_kinds(expected: Sequence[Sequence[Id]], retrieved: Sequence[Sequence[Id]]) -> None:
    """Texts and numbers never match: 1 and "1" are different ids."""
    types = [{one for ids in side for one in set(map(type, ids))} for side in (expected, retrieved)]
    kinds = [{issubclass(one, str) for one in of_side} for of_side in types]
    if all(kinds) and kinds[0].isdisjoint(kinds[1]):
        texts, others = ("expected", "retrieved") if True in kinds[0] else ("retrieved", "expected")
        raise DataError(
            f"ids of {texts} are texts and those of {others} are not, so none can match; were numbers read as text?",
            code="bad-ids",
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
