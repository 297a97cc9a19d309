"""Lists of entities in JSON: lenient parsing, and the list within a value, whatever it is called and wrapped in.

Language models write JSON with other quotes, other commas and Python's words; it is read where it can mean one thing only. Nothing
is evaluated. Depth and work are bounded, so that no input takes long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from genpr.conditional.answer_words import (
    CLASS_KEYS,
    ERROR_KEYS,
    NAME_KEYS,
    PRESENT_KEYS,
    STATUS_KEYS,
    WRAP_KEYS,
    AnswerParseError,
    check_count,
    is_negative,
    is_none,
    is_prose,
    is_refusal,
    is_remark,
    mark_at_end,
    normalize_key,
    rank_of_key,
    single_list,
    unique_names,
    without_etc,
    yes_or_no,
)
from genpr.limits import parse_json

_MOST_DEPTH = 24
_MOST_STEPS = 20_000
_OPEN_OBJECT, _CLOSE_OBJECT = "{｛", "}｝"
_OPEN_LIST, _CLOSE_LIST = "[［【", "]］】"
OPENING = _OPEN_OBJECT + _OPEN_LIST
_CLOSING_QUOTES = {
    '"': '"',
    "'": "'",
    "“": "”“",
    "‘": "’‘",
    "「": "」",
    "『": "』",
    "＂": "＂",
    "«": "»",
    "`": "`",
    "”": "”",
    "’": "’",
}
_COMMAS, _COLONS = ",，、;；", ":："
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"[-+]?\d[\d.eE+-]*")
_WORD = re.compile(r"[A-Za-z]+")
_KEY = re.compile(r"[^\W\d]\w*")
_BARE = re.compile(r"[^\[\]{}\"“”‘「」『』,，、;；:：\n`]+")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_CONSTANTS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_STRINGS = {
    quotes: re.compile(rf"[^\\{re.escape(quotes)}]*(?:\\.[^\\{re.escape(quotes)}]*)*", re.DOTALL)
    for quotes in set(_CLOSING_QUOTES.values())
}


class InvalidJSONError(Exception):
    """This is no JSON that could be repaired; `at_end` if only its end is missing."""

    def __init__(self, *, at_end: bool = False) -> None:
        super().__init__("invalid JSON")
        self.at_end = at_end

    def as_parse_error(self, what: str) -> AnswerParseError:
        """The error for an answer with it."""
        if self.at_end:
            return AnswerParseError("cut-off", f"{what} breaks off, so what else was in it is not known")
        return AnswerParseError("damaged", f"{what} is damaged, and could be mended in several ways")


def parse_strict_json(text: str) -> Any:  # noqa: ANN401 - whatever it holds
    """The value of a text that is JSON as a whole.

    Raises:
        ValueError: It is not.
        AnswerParseError: One key has two values ("several-lists").
    """
    return parse_json(text, pairs=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and found[key] != value:
            raise AnswerParseError(
                "several-lists", f"the key {key[:40]!r} stands there twice, with different values"
            )
        found[key] = value
    return found


class LenientJSONParser:
    """Reads values out of one text, with one allowance of work for all of them.

    Args:
        text: Everything.
        repairs: Gets what was repaired, in words.
    """

    def __init__(self, text: str, repairs: list[str]) -> None:
        self._text, self._repairs, self._steps = text, repairs, 0

    def value_at(self, position: int, *, bare: bool = False) -> tuple[Any, int]:
        """The value that begins at `position`, and where it ends.

        Args:
            position: Of its first character.
            bare: Whether items of a list may stand without quotes, as in [cat, dog].

        Raises:
            InvalidJSONError: There is no value.
            AnswerParseError: It takes too much work ("too-long"), or one key has two values ("several-lists").
        """
        return self._value(self._skip(position), 0, bare)

    def _repair(self, what: str) -> None:
        _add_repair(self._repairs, what)

    def _skip(self, position: int) -> int:
        found = _SPACE.match(self._text, position)
        return found.end() if found else position

    def _at(self, position: int) -> str:
        if position >= len(self._text):
            raise InvalidJSONError(at_end=True)
        return self._text[position]

    def _value(self, position: int, depth: int, bare: bool) -> tuple[Any, int]:
        self._steps += 1
        if self._steps > _MOST_STEPS or depth > _MOST_DEPTH:
            raise AnswerParseError("too-long", "it is nested too deeply, or too long for a list of entities")
        c = self._at(position)
        if c in _OPEN_OBJECT:
            return self._object(position, depth)
        if c in _OPEN_LIST:
            return self._list(position, depth, bare or depth > 0, _CLOSE_LIST)
        if c in _CLOSING_QUOTES:
            return self._string(position)
        return self._plain(position, bare)

    def _plain(self, position: int, bare: bool) -> tuple[Any, int]:
        """A number, a constant, or a name without quotes."""
        text = self._text
        whole = _BARE.match(text, position)
        if whole and bare and not _NUMBER.fullmatch(whole[0].strip()) and whole[0].strip() not in _CONSTANTS:
            if whole.end() == len(text):
                raise InvalidJSONError(at_end=True)
            self._repair("names without quotes")
            return whole[0].strip(), whole.end()
        if word := _WORD.match(text, position):
            if word[0] not in _CONSTANTS:
                raise InvalidJSONError(at_end=word.end() == len(text))
            if word[0][0].isupper():
                self._repair("Python's None, True or False")
            return _CONSTANTS[word[0]], word.end()
        if number := _NUMBER.match(text, position):
            return 0.0, number.end()  # which one does not matter: a number names nothing
        raise InvalidJSONError

    def _string(self, position: int) -> tuple[str, int]:
        text, quotes = self._text, _CLOSING_QUOTES[self._text[position]]
        body = _STRINGS[quotes].match(text, position + 1)
        if body is None or body.end() >= len(text):
            raise InvalidJSONError(at_end=True)
        if text[position] != '"':
            self._repair("single quotes" if text[position] == "'" else "typographic quotes")
        return _unescaped(body[0]), body.end() + 1

    def _list(self, position: int, depth: int, bare: bool, closing: str) -> tuple[list[Any], int]:
        found: list[Any] = []
        if self._text[position] not in "[{":
            self._repair("Chinese punctuation")
        position = self._skip(position + 1)
        while self._at(position) not in closing:
            value, position = self._value(position, depth + 1, bare)
            found.append(value)
            position = self._after_value(position, closing, value)
        if self._text[position] not in "]}":
            self._repair("Chinese punctuation")
        return found, position + 1

    def _after_value(self, position: int, closing: str, value: object) -> int:
        """Where the next value begins, or the end is."""
        after = self._skip(position)
        c = self._at(after)
        if c in closing:
            return after
        if c not in _COMMAS:
            if "\n" in self._text[position:after] and isinstance(value, str) and c in _CLOSING_QUOTES:
                self._repair("missing comma")
                return after
            raise InvalidJSONError
        if c != ",":
            self._repair("Chinese punctuation")
        after = self._skip(after + 1)
        if self._at(after) in closing:
            self._repair("trailing comma")
        return after

    def _object(self, position: int, depth: int) -> tuple[Any, int]:
        pairs: list[tuple[str, Any]] = []
        start = position
        if self._text[position] != "{":
            self._repair("Chinese punctuation")
        position = self._skip(position + 1)
        while self._at(position) not in _CLOSE_OBJECT:
            key, position = self._key(position)
            position = self._skip(position)
            if self._at(position) not in _COLONS:
                if pairs or self._text[position] not in _COMMAS + _CLOSE_OBJECT:
                    raise InvalidJSONError
                self._repair("a set in braces")
                return self._list(start, depth, False, _CLOSE_OBJECT)
            if self._text[position] != ":":
                self._repair("Chinese punctuation")
            value, position = self._value(self._skip(position + 1), depth + 1, False)
            pairs.append((key, value))
            position = self._after_value(position, _CLOSE_OBJECT, None)
        return _object(pairs), position + 1

    def _key(self, position: int) -> tuple[str, int]:
        self._steps += 1
        if self._text[position] in _CLOSING_QUOTES:
            return self._string(position)
        bare = _KEY.match(self._text, position)
        if bare is None:
            raise InvalidJSONError
        self._repair("keys without quotes")
        return bare[0], bare.end()


def _unescaped(body: str) -> str:
    if "\\" not in body:
        return body

    def char(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    text = _ESCAPE.sub(char, body)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


MORE = "words for more left out"
_MOST_WRAPPED = 6
_LONGEST_NAME = 120
_EMPHASIS = "*_`\"'“”‘’「」『』 \t\r\n"
_LIST_MARKS = (",", "，", "、", "；", ";", "\n")

Text = Callable[[str, bool], tuple[str, ...] | None]
"""Reads a string within the JSON: the names that it lists; None where it lists none. Told whether its key names entities."""


def names_in_json(value: object, read_text: Text, repairs: list[str]) -> tuple[str, ...] | None:
    """The entities that a JSON value lists; None where it lists nothing of the kind, such as [1, 2].

    Raises:
        AnswerParseError: It lists several things, or holds something else where names should be.
    """
    if isinstance(value, list):
        return _names(value, repairs)
    if isinstance(value, dict):
        found = _from_object(value, read_text, repairs)
        return _flagged_names(value, repairs) if found is None else found
    return read_text(value, False) if isinstance(value, str) else None


def _from_object(value: Mapping[str, Any], read_text: Text, repairs: list[str]) -> tuple[str, ...] | None:
    for rank in range(3):
        under = [found for key, found in _walk(value, 0) if rank_of_key(key) == rank]
        readings = [names for found in under if (names := _under_key(found, read_text, repairs)) is not None]
        if (one := single_list(readings, "under keys that name entities")) is not None:
            return one
    if any(normalize_key(key) in ERROR_KEYS and found for key, found in value.items()):
        raise AnswerParseError("error-message", "it is an error message, and no answer")
    others = [(key, _elsewhere(key, found, read_text, repairs)) for key, found in _walk(value, 0)]
    known = [(key, names) for key, names in others if names is not None]
    one = single_list([names for _, names in known], "under keys that do not say what they are")
    if one is not None and normalize_key(known[0][0]) not in WRAP_KEYS:
        _add_repair(repairs, f"the list stood under {known[0][0][:40]!r}")
    return one


def _walk(value: Mapping[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    """Every key with what stands under it, at any depth; not below remarks, nor below what says what is not there."""
    if depth > _MOST_WRAPPED:
        raise AnswerParseError("too-long", "it is wrapped too deeply")
    check_count(len(value))
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
        is_alone
        and normalize_key(key) in WRAP_KEYS
        and not {*map(normalize_key, value[0])} & (NAME_KEYS | CLASS_KEYS)
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
        check_count(len(value))
        marks = {name: _mark(mark) for name, mark in value.items()}
        if marks and None not in marks.values():
            _add_repair(repairs, "names with yes or no")
            return unique_names(name for name, mark in marks.items() if mark)
        return _only(_from_object(value, read_text, repairs), "there is an object where the list should be")
    if value is None:
        raise AnswerParseError(
            "no-list", "the list is null, which says neither that there are entities nor that there are none"
        )
    return None  # such as "present": true


def _flagged_names(value: Mapping[str, Any], repairs: list[str]) -> tuple[str, ...] | None:
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
    _add_repair(repairs, "names with yes or no")
    return unique_names(name for name, mark in zip(value, marks, strict=True) if mark)


def _is_about_answer(key: str) -> bool:
    """Whether a key with true or false says something about the answer, such as success, and names no entity."""
    word = normalize_key(key)
    is_word = word in STATUS_KEYS | ERROR_KEYS | NAME_KEYS | CLASS_KEYS | PRESENT_KEYS | WRAP_KEYS
    is_question = word.startswith(("is", "has")) and key[:3].lower().rstrip("_ -") in ("is", "has")
    return is_word or is_question or rank_of_key(key) is not None or is_negative(key) or is_remark(key)


def _present(item: Mapping[str, Any]) -> object:
    """What an object says about whether it is there; None where it says nothing."""
    return next((found for key, found in item.items() if normalize_key(key) in PRESENT_KEYS), None)


def _mark(value: object) -> bool | None:
    """Whether something is there, by yes, no, or how often it is there."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value > 0
    return yes_or_no(value)


def _only(names: tuple[str, ...] | None, why: str) -> tuple[str, ...]:
    if names is None:
        raise AnswerParseError("no-list", why)
    return names


def _elsewhere(key: str, value: object, read_text: Text, repairs: list[str]) -> tuple[str, ...] | None:
    """What stands under another key; text only where it is a wrapping."""
    if isinstance(value, list):
        return None if _is_wrapping(key, value) else _names(value, repairs)
    if isinstance(value, str) and normalize_key(key) in WRAP_KEYS:
        return () if is_none(value) else read_text(value, False)
    if isinstance(value, dict) and normalize_key(key) in WRAP_KEYS:
        return _flagged_names(value, repairs)
    return None


def _names(items: list[Any], repairs: list[str]) -> tuple[str, ...] | None:
    """The names of a list of names, or of objects that hold names; None for a list of numbers."""
    if len(items) == 1 and isinstance(items[0], list):
        _add_repair(repairs, "a list in a list")
        items = items[0]
    check_count(len(items))
    if items and all(isinstance(item, int | float) for item in items):
        return None
    names = [_name(item, repairs) for item in items]
    kept = [name for name in names if name]
    if items and not any(isinstance(item, dict) for item in items):
        listed = kept
        kept = without_etc(listed)
        if not kept:
            raise AnswerParseError("no-list", "the names in the list are empty")
        if kept != listed:
            _add_repair(repairs, MORE)
    if any(is_none(name) for name in kept):
        if len(kept) > 1:
            raise AnswerParseError(
                "contradiction", "the list holds names, and a word that says that there are none"
            )
        _add_repair(repairs, "a list with a word for none")
        return ()
    if len(items) == 1 and isinstance(items[0], str) and any(mark in kept[0] for mark in _LIST_MARKS):
        raise AnswerParseError(
            "several-in-one", "the list holds one name that may be several, for it has a comma in it"
        )
    return unique_names(kept)


def _name(item: object, repairs: list[str]) -> str | None:
    """The name that an item is or holds; None for an object that is marked as not there."""
    if isinstance(item, dict):
        _add_repair(repairs, "objects with names")
        return _name_in(item)
    if not isinstance(item, str):
        kinds: dict[type, str] = {bool: "true or false", int: "a number", float: "a number", list: "a list"}
        kind = kinds.get(type(item), "null")
        raise AnswerParseError("no-name", f"the list holds {kind} beside or instead of names")
    if len(item) > _LONGEST_NAME:
        raise AnswerParseError("prose", "the list holds a text that is too long for a name")
    if item.strip()[:1] in ("{", "["):
        raise AnswerParseError("no-name", "the list holds JSON where a name should be")
    name, mark, behind = mark_at_end(item.strip(_EMPHASIS))
    is_remark_on_it = is_negative(behind) or (is_prose(name) and is_negative(name)) or is_refusal(name)
    if mark is not None or is_remark_on_it:
        raise AnswerParseError("contradiction", f"{item[:40]!r} may say that something is not there")
    return name


def _name_in(item: Mapping[str, Any]) -> str | None:
    for key, value in item.items():
        if normalize_key(key) in PRESENT_KEYS:
            mark = yes_or_no(value)
            if mark is None:
                raise AnswerParseError(
                    "no-name", f"whether an item is there cannot be told from {str(value)[:40]!r}"
                )
            if not mark:
                return None
    for keys in (NAME_KEYS, CLASS_KEYS):
        names = {
            value for key, value in item.items() if normalize_key(key) in keys and isinstance(value, str)
        }
        if len(names) > 1:
            raise AnswerParseError(
                "no-name", "an item has several names, and nothing tells which one is meant"
            )
        if names:
            return _name(names.pop(), [])
    raise AnswerParseError("no-name", "an item of the list has no key such as name, entity or 名称")


def _add_repair(repairs: list[str], what: str) -> None:
    if what not in repairs:
        repairs.append(what)
