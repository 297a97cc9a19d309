"""Read the entities that an answer of a language model lists, or return the reason why it is unreadable.

An answer is read if it is JSON with one list of texts, a bulleted or numbered list, or names with commas. No form depends on
a language. All other answers are unreadable, which differs from an empty list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from genpr.conditional.vocabulary import normalize_name

MAX_CHARACTERS = 50_000
MAX_NAMES = 1_000


@dataclass(frozen=True)
class Answer:
    """A list of entities."""

    entities: tuple[str, ...]  # original spelling, without duplicates


@dataclass(frozen=True)
class Unreadable:
    """An answer that cannot be read; it counts as unreadable, and not as an empty list."""

    code: str  # "empty", "too-long", "refusal", "damaged", "ambiguous" or "no-list"
    reason: str  # for users


class _UnreadableError(Exception):
    """Raised with a code and a reason."""


_BRACKET = re.compile(r"[\[{]")
_FENCE_LANGUAGE = re.compile(r"[ \t]*+[\w+-]{0,20}+[ \t]*+(?=[\n\[{])")
_BULLET = re.compile(r"[•·・]|[-–*+](?=\s)|\(?\d{1,3}[.)．）](?!\d)|\d{1,3}、")
_COMMA = re.compile(r"[,，、،]")
_NO_NAME = (
    re.compile(  # sentences, several names in one, explanations, check marks, tables, tags and addresses
        r"[.。!?！？؟।…](?:\s|$)|[.。!?！？…]{2}|[,，、،؛:：](?:\s|$)|[，、،：！？。]|://|\s[-–—=]+\s|->|→"
        r"|\s\d{1,3}[.)]\s|[;；•|\t\r\n<>\[\]{}=「」『』【】✓✔✅☑✗✘❌☒☐①-⑳]"
    )
)
_JOINED = re.compile(r"(?:^|\s)(?:and|or|&)\s", re.IGNORECASE)
_REFUSAL = re.compile(
    r"i(?:'m| am)? (?:sorry|unable|not able|afraid|can't|cannot|won't|don't|do not|apologi[sz]e)|sorry|unfortunately"
    r"|as an? (?:ai|language model)|my apologies|抱歉|很抱歉|对不起|我?无法|我不能"
)
_EMPHASIS = "*_`\"'“”‘’ \t\r\n"
_SPACE = "\ufeff\u200b \t\r\n"


def read_entities(answer: object, *, known: Callable[[str], bool] | None = None) -> Answer | Unreadable:
    """Read the entities that an answer lists.

    Args:
        answer: The text of a language model, or the parsed JSON of one.
        known: Returns whether a name is that of an entity. An answer with nothing but a name is a list of one entity if the
            name is known, and unreadable otherwise, since it may be an error message.

    Returns:
        The entities in their original spelling without duplicates, or the reason why the answer is unreadable. No input
        raises an exception.

    Example:
        >>> read_entities('{"result": {"实体": ["cat", "dog"]}, "explanation": "I see a cat."}').entities
        ('cat', 'dog')
        >>> read_entities("猫、狗").entities
        ('猫', '狗')
        >>> read_entities("[]"), read_entities("I see a cat and a dog.").code
        (Answer(entities=()), 'no-list')
    """
    try:
        names = _names_in(answer, known or (lambda _: False))
    except _UnreadableError as outcome:
        return Unreadable(*outcome.args)
    except RecursionError:
        return Unreadable("too-long", "it is nested too deeply")
    if len(names) > MAX_NAMES:
        return Unreadable("too-long", f"it has more than {MAX_NAMES:,} names")
    if len(names) == 1 and is_none(names[0]):
        return Answer(())
    spelling: dict[str, str] = {}
    for name in names:
        spelling.setdefault(normalize_name(name), name)
    return Answer(tuple(spelling.values()))


def is_none(text: str) -> bool:
    """Whether a text states that there are no entities."""
    return len(text) < 20 and normalize_name(text) == "none"


def _names_in(answer: object, known: Callable[[str], bool]) -> list[str]:
    if not isinstance(answer, str):
        return _only_list(answer, known)
    text = answer.rpartition("</think>")[2].strip("\ufeff")
    if len(text) > MAX_CHARACTERS:
        raise _UnreadableError("too-long", "it is too long")
    bare = text.strip(_SPACE)
    if not bare:
        raise _UnreadableError("empty", "it is empty")
    if bare.startswith("<think"):
        raise _UnreadableError("damaged", "it ends within the reasoning of the model")
    if _REFUSAL.match(normalize_name(bare[:80])):
        raise _UnreadableError("refusal", "it is a refusal")
    if "```" in text:
        inside = [part for part in text.split("```")[1::2] if part.strip()]
        if len(inside) != 1:
            raise _UnreadableError("ambiguous", "it has several code fences, or an empty one")
        language = _FENCE_LANGUAGE.match(inside[0])
        text = inside[0][language.end() if language else 0 :]
    if bracket := _BRACKET.search(text):
        return _only_list(_json_at(text, bracket.start()), known)
    return _names_in_lines(text, known)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _UnreadableError("ambiguous", "a key of its JSON occurs twice")
    return found


_JSON = json.JSONDecoder(object_pairs_hook=_unique_keys, strict=False)


def _json_at(text: str, start: int) -> Any:  # noqa: ANN401 - any JSON
    """The only JSON value of a text, which begins at `start`."""
    try:
        value, end = _JSON.raw_decode(text, start)
    except ValueError as error:
        raise _UnreadableError("damaged", "its JSON is damaged or truncated") from error
    if _BRACKET.search(text, end):
        raise _UnreadableError("ambiguous", "it has several JSON values")
    if not value and (text[:start] + text[end:]).strip(_SPACE):
        raise _UnreadableError("no-list", "it has text around an empty list")  # such as "- [ ] cat"
    return value


def _only_list(value: object, known: Callable[[str], bool]) -> list[str]:
    """The names in the only list of texts in a value of JSON."""
    lists = list(_lists_in(value))
    if len(lists) > 1:
        raise _UnreadableError("ambiguous", "it has several lists")
    if not lists:
        raise _UnreadableError("no-list", "it has no list of names")
    names = [text.strip(_EMPHASIS) for text in lists[0]]
    if not all(name and len(name) <= 120 for name in names):
        raise _UnreadableError("no-list", "an item of the list is not a name")
    if len(names) == 1 and _COMMA.search(names[0]) and not known(names[0]):
        raise _UnreadableError("ambiguous", f"{names[0][:40]!r} may be one name or several")
    return names


def _lists_in(value: object) -> Iterator[list[str]]:
    """The lists of texts in a value of JSON, the empty ones among them, but no lists of other values."""
    if isinstance(value, dict):
        if value.get("error"):
            raise _UnreadableError("refusal", "it is an error message")
        values = list(value.values())
    elif isinstance(value, list | tuple):
        values = list(value)
        is_text = [isinstance(item, str) for item in values]
        if all(is_text):
            yield values
            return
        if any(is_text):
            raise _UnreadableError("no-list", "an item of the list is not a name")
    else:
        return
    for each in values:
        yield from _lists_in(each)


def _names_in_lines(text: str, known: Callable[[str], bool]) -> list[str]:
    """The names of a bulleted or numbered list, or of one line with commas."""
    lines = [line for line in text.splitlines() if line.strip(_SPACE)]
    bullets = [_BULLET.match(line.lstrip()) for line in lines]
    if any(bullets):
        if len({len(line) - len(line.lstrip()) for line in lines}) > 1:
            raise _UnreadableError("ambiguous", "it has nested lists, or text beside its list")
        names = [
            line.lstrip()[bullet.end() if bullet else 0 :]
            for line, bullet in zip(lines, bullets, strict=True)
        ]
    else:
        names = _COMMA.split(text)
    if len(lines) > 1 and not all(bullets):
        raise _UnreadableError("no-list", "it has lines that are no items of a list")
    names = [name.strip(_EMPHASIS + _SPACE) for name in names]
    for name in names:
        _check(name, known, is_item=all(bullets))
    if len(names) == 1 and not any(bullets) and not known(names[0]) and not is_none(names[0]):
        raise _UnreadableError("ambiguous", f"{names[0][:40]!r} may be a name or a message")
    return names


def _check(name: str, known: Callable[[str], bool], *, is_item: bool) -> None:
    """Raise an error for a text that is not a name."""
    if known(name) or is_none(name):
        return
    words = len(name.split())
    is_long = words > 8 or len(name) > (40 if words == 1 else 80)
    is_torn = len(re.findall("[(（]", name)) != len(re.findall("[)）]", name))
    if is_long or is_torn or _NO_NAME.search(name) or not any(c.isalpha() for c in name):
        raise _UnreadableError("no-list", f"{name[:40]!r} is not a name")
    if not is_item and _JOINED.search(name):
        raise _UnreadableError("ambiguous", f"{name[:40]!r} may be one name or two")
