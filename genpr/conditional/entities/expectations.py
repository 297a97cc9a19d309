"""What is expected in each image, and what its answer says, with one name for each entity."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from genpr.conditional.entities.answer import Answer, Unreadable
from genpr.conditional.entities.matching import matched
from genpr.conditional.entities.names import Names
from genpr.conditional.entities.read import read_entities
from genpr.conditional.entities.records import EXPECTED_FIELDS, FOUND_FIELDS, Record, Records, records_of
from genpr.conditional.entities.text_files import shown
from genpr.conditional.entities.vocabulary import Vocabulary
from genpr.conditional.entities.words import is_none
from genpr.errors import DataError, UsageError

_LONGEST_SHOWN = 200
_SEPARATORS = (";", "；", "|", "\n", "、", "，", ",")


@dataclass(frozen=True)
class Expectations:
    """What is expected.

    Attributes:
        ids: Of images, as in the file; "[3]" where it has none.
        expected: Entities by image.
        excluded: Entities that must not be there by image; None where nothing is excluded anywhere.
        groups: What images with the same prompt share, by image.
        origin: Where it comes from.
        records: As they were read.
        from_prompts: Whether entities were looked for in prompts.
    """

    ids: tuple[str, ...]
    expected: tuple[tuple[str, ...], ...]
    excluded: tuple[tuple[str, ...], ...] | None
    groups: tuple[str, ...]
    origin: str
    records: Records
    from_prompts: bool

    def select(self, rows: Sequence[int]) -> Expectations:
        """Those of some images, in this order."""

        def some(values: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(values[row] for row in rows)

        return replace(
            self,
            ids=some(self.ids),
            expected=some(self.expected),
            excluded=None if self.excluded is None else some(self.excluded),
            groups=some(self.groups),
            records=replace(self.records, rows=some(self.records.rows)),
        )


@dataclass(frozen=True)
class FoundEntities:
    """What answers say.

    Attributes:
        answers: By image, as they were read.
        found: Entities by image; None where the answer could not be read.
        texts: How each answer begins.
        origin: Where they come from.
    """

    answers: tuple[Answer | Unreadable, ...]
    found: tuple[tuple[str, ...] | None, ...]
    texts: tuple[str, ...]
    origin: str


_CLOSED = "the vocabulary, which is closed; add it there, or give its alias"


def read_expectations(
    source: object,
    names: Names,
    vocabulary: Vocabulary | None,
    exclude: Iterable[str] = (),
    *,
    closed: str | None = _CLOSED,
) -> Expectations:
    """Expected entities from a file, a mapping or a sequence; texts are prompts, in which the vocabulary is looked for.

    Args:
        source: See `genpr.score_entities`.
        names: Learns the names of all expected entities.
        vocabulary: What to look for in prompts.
        exclude: What must not be in any image.
        closed: What an entity is not in that is not in the vocabulary, and what to do, for the message; None if such are
            welcome.

    Raises:
        UsageError: There are prompts and no vocabulary ("no-vocabulary"), or as `records_of`.
        DataError: An entry cannot be read ("bad-expectation"), or as `records_of`.
    """
    records = records_of(source, EXPECTED_FIELDS, "expected", "expected entities", text="prompt")
    barred = tuple(exclude)
    from_prompts = not any("expected" in row.fields for row in records.rows)
    if from_prompts and vocabulary is None and any("prompt" in row.fields for row in records.rows):
        raise UsageError(
            f"{shown(records.origin)} holds prompts and no lists of expected entities; to look for entities in prompts, a "
            "vocabulary is needed",
            code="no-vocabulary",
        )
    expected, excluded, groups, ids = [], [], [], []
    for i, row in enumerate(records.rows):
        prompt = row.fields.get("prompt")
        if from_prompts:
            expected.append(vocabulary.find(_text(prompt, row, records)) if vocabulary is not None else ())
        elif "expected" not in row.fields:
            raise DataError(
                f"{shown(records.origin)}, {row.place}: there is no list of expected entities; write an empty one where nothing "
                "is expected",
                code="bad-expectation",
                path=records.origin,
            )
        else:
            expected.append(names.all_of(_listed(row.fields["expected"], row, records, "expected")))
        beside = [name for name in expected[-1] if vocabulary is not None and name not in vocabulary]
        if beside and closed is not None:
            raise DataError(
                f"{shown(records.origin)}, {row.place}: {shown(beside[0])!r} is expected and not in {closed}",
                code="bad-expectation",
                path=records.origin,
            )
        excluded.append(
            names.all_of([*barred, *_listed(row.fields.get("excluded"), row, records, "excluded")])
        )
        ids.append(row.id or f"[{i}]")
        groups.append(str(row.fields.get("group") or prompt or ids[-1]))
    return Expectations(
        ids=tuple(ids),
        expected=tuple(expected),
        excluded=tuple(excluded) if any(excluded) else None,
        groups=tuple(groups),
        origin=records.origin,
        records=records,
        from_prompts=from_prompts,
    )


def _text(prompt: object, row: Record, records: Records) -> str:
    if not isinstance(prompt, str) or not prompt.strip():
        raise DataError(
            f"{shown(records.origin)}, {row.place}: needed is a prompt, found {shown(repr(prompt))}",
            code="bad-expectation",
            path=records.origin,
        )
    return prompt


def _listed(value: object, row: Record, records: Records, what: str) -> tuple[str, ...]:
    """Names in a list, or in a text with separators; nothing and an empty text are no names."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return ()
    if isinstance(value, str) and value.strip()[0] not in "[{":
        return tuple(name.strip() for name in _separated(value))
    if isinstance(value, set | frozenset | tuple):
        value = sorted(value, key=str)
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(value)
    outcome = read_entities(value)  # a list of objects with names, or JSON in a cell
    if isinstance(outcome, Unreadable):
        raise DataError(
            f"{shown(records.origin)}, {row.place}: the {what} entities cannot be read ({outcome.reason}); write them as "
            f"a;b;c or as a JSON list, found {shown(repr(value))}",
            code="bad-expectation",
            path=records.origin,
        )
    return outcome.entities


def _separated(text: str) -> list[str]:
    """Split at one kind of separator, the surest that occurs: names in a user's own list need no guessing."""
    separator = next((mark for mark in _SEPARATORS if mark in text), None)
    return [text] if separator is None else text.split(separator)


def read_answers(source: object, asked: Expectations, names: Names) -> FoundEntities:
    """The answer to each expectation.

    Args:
        source: See `genpr.score_entities`.
        asked: What they are about.
        names: Knows the names of all expected entities.

    Raises:
        UsageError, DataError: As `records_of` and `matched`.
    """
    records = records_of(source, FOUND_FIELDS, "found", "answers", text="answer")
    rows = matched(asked.records, records)
    answers = tuple(_read(row, names) for row in rows)
    found = tuple(
        names.all_found(answer.entities) if isinstance(answer, Answer) else None for answer in answers
    )
    return FoundEntities(answers, found, tuple(_shown_answer(row) for row in rows), records.origin)


def _read(row: Record, names: Names) -> Answer | Unreadable:
    """A list of found entities, or a text of a model, in which a single name counts where it is known."""
    if "found" in row.fields:
        found = row.fields["found"]
        if isinstance(found, Answer | Unreadable):
            return found
        if isinstance(found, list | tuple | set | frozenset) and all(isinstance(name, str) for name in found):
            return Answer(() if len(found) == 1 and is_none(*found) else tuple(found), "list")
        return read_entities({"entities": found}, known=lambda name: names.known(name) is not None)
    answer: Any = row.fields.get("answer", "")
    return read_entities("" if answer is None else answer, known=lambda name: names.known(name) is not None)


def _shown_answer(row: Record) -> str:
    answer = row.fields.get("found", row.fields.get("answer", ""))
    if isinstance(answer, str):
        return answer[:_LONGEST_SHOWN]
    try:
        return json.dumps(answer, ensure_ascii=False)[:_LONGEST_SHOWN]
    except (TypeError, ValueError, RecursionError):
        return type(answer).__name__
