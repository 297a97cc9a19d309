"""Which answer belongs to which expectation."""

from __future__ import annotations

from genpr.conditional.entities.records import Record, Records
from genpr.conditional.entities.text_files import shown, some
from genpr.errors import DataError


def matched(asked: Records, answered: Records) -> list[Record]:
    """The answer to each record of the first, in its order.

    Raises:
        DataError: Ids do not match one to one ("ids-do-not-match").
    """
    if not asked.has_ids or not answered.has_ids:
        if asked.has_ids == answered.has_ids and len(asked.rows) == len(answered.rows):
            return list(answered.rows)
        kinds = [
            f"{shown(side.origin)} has {len(side.rows):,} records {_with(side)}" for side in (asked, answered)
        ]
        raise DataError(
            f"{' and '.join(kinds)}; needed are ids in both, or equally many records in the same order",
            code="ids-do-not-match",
            path=answered.origin,
        )
    by_id = {row.id: row for row in answered.rows}
    wanted = {row.id for row in asked.rows}
    missing = [row.id for row in asked.rows if row.id not in by_id]
    unknown = [name for name in by_id if name not in wanted]
    if missing or unknown:
        parts = (
            [f"no answer for {len(missing):,} of {len(asked.rows):,} ({some(missing)})"] if missing else []
        )
        parts += (
            [f"{len(unknown):,} with ids that {shown(asked.origin)} does not have ({some(unknown)})"]
            if unknown
            else []
        )
        hint = (
            "a record with an empty answer counts as unreadable"
            if missing
            else "ids must be equal letter by letter"
        )
        raise DataError(
            f"{shown(answered.origin)} has {' and '.join(parts)}; {hint}",
            code="ids-do-not-match",
            path=answered.origin,
        )
    return [by_id[row.id] for row in asked.rows]


def _with(side: Records) -> str:
    return "with ids" if side.has_ids else "without ids"
