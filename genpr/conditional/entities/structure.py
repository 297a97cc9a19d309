"""The list of entities within a JSON value, whatever it is called and wrapped in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from genpr.conditional.entities.answer import NotReadable, check_number, each_once, the_same
from genpr.conditional.entities.word_lists import (
    CLASS_KEYS,
    ERROR_KEYS,
    NAME_KEYS,
    PRESENT_KEYS,
    STATUS_KEYS,
    WRAP_KEYS,
)
from genpr.conditional.entities.words import (
    is_negative,
    is_none,
    is_prose,
    is_refusal,
    is_remark,
    mark_at_end,
    rank_of_key,
    squeezed,
    without_more,
    yes_or_no,
)

MORE = "words for more left out"
_MOST_DEPTH = 6
_LONGEST_NAME = 120
_EMPHASIS = "*_`\"'“”‘’「」『』 \t\r\n"
_LIST_MARKS = (",", "，", "、", "；", ";", "\n")

Text = Callable[[str, bool], tuple[str, ...] | None]
"""Reads a string within the JSON: the names that it lists; None where it lists none. Told whether its key names entities."""


def names_in(value: object, read_text: Text, repairs: list[str]) -> tuple[str, ...] | None:
    """The entities that a JSON value lists; None where it lists nothing of the kind, such as [1, 2].

    Raises:
        NotReadable: It lists several things, or holds something else where names should be.
    """
    if isinstance(value, list):
        return _names(value, repairs)
    if isinstance(value, dict):
        found = _from_object(value, read_text, repairs)
        return _marked(value, repairs) if found is None else found
    return read_text(value, False) if isinstance(value, str) else None


def _from_object(value: Mapping[str, Any], read_text: Text, repairs: list[str]) -> tuple[str, ...] | None:
    for rank in range(3):
        under = [found for key, found in _walk(value, 0) if rank_of_key(key) == rank]
        readings = [names for found in under if (names := _under_key(found, read_text, repairs)) is not None]
        if (one := the_same(readings, "under keys that name entities")) is not None:
            return one
    if any(squeezed(key) in ERROR_KEYS and found for key, found in value.items()):
        raise NotReadable("error-message", "it is an error message, and no answer")
    others = [(key, _elsewhere(key, found, read_text, repairs)) for key, found in _walk(value, 0)]
    known = [(key, names) for key, names in others if names is not None]
    one = the_same([names for _, names in known], "under keys that do not say what they are")
    if one is not None and squeezed(known[0][0]) not in WRAP_KEYS:
        _add(repairs, f"the list stood under {known[0][0][:40]!r}")
    return one


def _walk(value: Mapping[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    """Every key with what stands under it, at any depth; not below remarks, nor below what says what is not there."""
    if depth > _MOST_DEPTH:
        raise NotReadable("too-long", "it is wrapped too deeply")
    check_number(len(value))
    for key, found in value.items():
        if is_remark(key) or is_negative(key):
            continue
        yield key, found
        if isinstance(found, dict) and rank_of_key(key) is None:
            yield from _walk(found, depth + 1)
        elif _is_wrapping(key, found):
            yield from _walk(found[0], depth + 1)


def _is_wrapping(key: str, value: Any) -> bool:  # noqa: ANN401 - any JSON
    """Whether it is a list around one object that names nothing itself."""
    is_alone = isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict)
    return (
        is_alone and squeezed(key) in WRAP_KEYS and not {*map(squeezed, value[0])} & (NAME_KEYS | CLASS_KEYS)
    )


def _under_key(value: object, read_text: Text, repairs: list[str]) -> tuple[str, ...] | None:
    """What stands under a key that names entities."""
    if isinstance(value, str):
        return (
            ()
            if is_none(value)
            else _only(read_text(value, True), "the text under the key lists no entities")
        )
    if isinstance(value, list):
        return _only(_names(value, repairs), "the list holds no names")
    if isinstance(value, dict):
        check_number(len(value))
        marks = {name: _mark(mark) for name, mark in value.items()}
        if marks and None not in marks.values():
            _add(repairs, "names with yes or no")
            return each_once(name for name, mark in marks.items() if mark)
        return _only(_from_object(value, read_text, repairs), "there is an object where the list should be")
    if value is None:
        raise NotReadable(
            "no-list", "the list is null, which says neither that there are entities nor that there are none"
        )
    return None  # such as "present": true


def _marked(value: Mapping[str, Any], repairs: list[str]) -> tuple[str, ...] | None:
    """The names in an object of two or more names with true or false, or all with yes or no; None where it is none."""
    values = [_present(found) if isinstance(found, dict) else found for found in value.values()]
    marks = [yes_or_no(mark) for mark in values]
    if (
        len(marks) < 2
        or None in marks
        or len(set(map(type, values))) > 1
        or any(map(_is_about_answer, value))
    ):
        return None
    _add(repairs, "names with yes or no")
    return each_once(name for name, mark in zip(value, marks, strict=True) if mark)


def _is_about_answer(key: str) -> bool:
    """Whether a key with true or false says something about the answer, such as success, and names no entity."""
    word = squeezed(key)
    is_word = word in STATUS_KEYS | ERROR_KEYS | NAME_KEYS | CLASS_KEYS | PRESENT_KEYS | WRAP_KEYS
    is_question = word.startswith(("is", "has")) and key[:3].lower().rstrip("_ -") in ("is", "has")
    return is_word or is_question or rank_of_key(key) is not None or is_negative(key) or is_remark(key)


def _present(item: Mapping[str, Any]) -> object:
    """What an object says about whether it is there; None where it says nothing."""
    return next((found for key, found in item.items() if squeezed(key) in PRESENT_KEYS), None)


def _mark(value: object) -> bool | None:
    """Whether something is there, by yes, no, or how often it is there."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value > 0
    return yes_or_no(value)


def _only(names: tuple[str, ...] | None, why: str) -> tuple[str, ...]:
    if names is None:
        raise NotReadable("no-list", why)
    return names


def _elsewhere(key: str, value: object, read_text: Text, repairs: list[str]) -> tuple[str, ...] | None:
    """What stands under another key; text only where it is a wrapping."""
    if isinstance(value, list):
        return None if _is_wrapping(key, value) else _names(value, repairs)
    if isinstance(value, str) and squeezed(key) in WRAP_KEYS:
        return () if is_none(value) else read_text(value, False)
    if isinstance(value, dict) and squeezed(key) in WRAP_KEYS:
        return _marked(value, repairs)
    return None


def _names(items: list[Any], repairs: list[str]) -> tuple[str, ...] | None:
    """The names of a list of names, or of objects that hold names; None for a list of numbers."""
    if len(items) == 1 and isinstance(items[0], list):
        _add(repairs, "a list in a list")
        items = items[0]
    check_number(len(items))
    if items and all(isinstance(item, int | float) for item in items):
        return None
    names = [_name(item, repairs) for item in items]
    kept = [name for name in names if name]
    if items and not any(isinstance(item, dict) for item in items):
        listed = kept
        kept = without_more(listed)
        if not kept:
            raise NotReadable("no-list", "the names in the list are empty")
        if kept != listed:
            _add(repairs, MORE)
    if any(is_none(name) for name in kept):
        if len(kept) > 1:
            raise NotReadable(
                "contradiction", "the list holds names, and a word that says that there are none"
            )
        _add(repairs, "a list with a word for none")
        return ()
    if len(items) == 1 and isinstance(items[0], str) and any(mark in kept[0] for mark in _LIST_MARKS):
        raise NotReadable(
            "several-in-one", "the list holds one name that may be several, for it has a comma in it"
        )
    return each_once(kept)


def _name(item: object, repairs: list[str]) -> str | None:
    """The name that an item is or holds; None for an object that is marked as not there."""
    if isinstance(item, dict):
        _add(repairs, "objects with names")
        return _name_in(item)
    if not isinstance(item, str):
        raise NotReadable("no-name", f"the list holds {_kind(item)} beside or instead of names")
    if len(item) > _LONGEST_NAME:
        raise NotReadable("prose", "the list holds a text that is too long for a name")
    if item.strip()[:1] in ("{", "["):
        raise NotReadable("no-name", "the list holds JSON where a name should be")
    name, mark, behind = mark_at_end(item.strip(_EMPHASIS))
    is_remark_on_it = is_negative(behind) or (is_prose(name) and is_negative(name)) or is_refusal(name)
    if mark is not None or is_remark_on_it:
        raise NotReadable("contradiction", f"{item[:40]!r} may say that something is not there")
    return name


def _name_in(item: Mapping[str, Any]) -> str | None:
    for key, value in item.items():
        if squeezed(key) in PRESENT_KEYS:
            mark = yes_or_no(value)
            if mark is None:
                raise NotReadable(
                    "no-name", f"whether an item is there cannot be told from {str(value)[:40]!r}"
                )
            if not mark:
                return None
    for keys in (NAME_KEYS, CLASS_KEYS):
        names = {value for key, value in item.items() if squeezed(key) in keys and isinstance(value, str)}
        if len(names) > 1:
            raise NotReadable("no-name", "an item has several names, and nothing tells which one is meant")
        if names:
            return _name(names.pop(), [])
    raise NotReadable("no-name", "an item of the list has no key such as name, entity or 名称")


def _kind(item: object) -> str:
    kinds: dict[type, str] = {bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return kinds.get(type(item), "null")


def _add(repairs: list[str], what: str) -> None:
    if what not in repairs:
        repairs.append(what)
