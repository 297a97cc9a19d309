"""JSON as language models write it: other quotes, other commas, Python's words; read where it can mean one thing only.

Nothing is evaluated. Depth and work are bounded, so that no input takes long.
"""

from __future__ import annotations

import re
from typing import Any

from genpr.conditional.entities.answer import NotReadable
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


class DamagedJsonError(Exception):
    """This is no JSON that could be repaired; `at_end` if only its end is missing."""

    def __init__(self, *, at_end: bool = False) -> None:
        super().__init__("damaged")
        self.at_end = at_end


def strict(text: str) -> Any:  # noqa: ANN401 - whatever it holds
    """The value of a text that is JSON as a whole.

    Raises:
        ValueError: It is not.
        NotReadable: One key has two values ("several-lists").
    """
    return parse_json(text, pairs=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and found[key] != value:
            raise NotReadable(
                "several-lists", f"the key {key[:40]!r} stands there twice, with different values"
            )
        found[key] = value
    return found


class LooseJson:
    """Reads values out of one text, with one allowance of work for all of them.

    Args:
        text: Everything.
        repairs: Gets what was repaired, in words.
    """

    def __init__(self, text: str, repairs: list[str]) -> None:
        self._text, self._repairs, self._steps = text, repairs, 0

    def value_at(self, place: int, *, bare: bool = False) -> tuple[Any, int]:
        """The value that begins at `place`, and where it ends.

        Args:
            place: Of its first character.
            bare: Whether items of a list may stand without quotes, as in [cat, dog].

        Raises:
            DamagedJsonError: There is no value.
            NotReadable: It takes too much work ("too-long"), or one key has two values ("several-lists").
        """
        return self._value(self._skip(place), 0, bare)

    def _repair(self, what: str) -> None:
        if what not in self._repairs:
            self._repairs.append(what)

    def _skip(self, place: int) -> int:
        found = _SPACE.match(self._text, place)
        return found.end() if found else place

    def _at(self, place: int) -> str:
        if place >= len(self._text):
            raise DamagedJsonError(at_end=True)
        return self._text[place]

    def _value(self, place: int, depth: int, bare: bool) -> tuple[Any, int]:
        self._steps += 1
        if self._steps > _MOST_STEPS or depth > _MOST_DEPTH:
            raise NotReadable("too-long", "it is nested too deeply, or too long for a list of entities")
        c = self._at(place)
        if c in _OPEN_OBJECT:
            return self._object(place, depth)
        if c in _OPEN_LIST:
            return self._list(place, depth, bare or depth > 0, _CLOSE_LIST)
        if c in _CLOSING_QUOTES:
            return self._string(place)
        return self._plain(place, bare)

    def _plain(self, place: int, bare: bool) -> tuple[Any, int]:
        """A number, a constant, or a name without quotes."""
        text = self._text
        whole = _BARE.match(text, place)
        if whole and bare and not _NUMBER.fullmatch(whole[0].strip()) and whole[0].strip() not in _CONSTANTS:
            if whole.end() == len(text):
                raise DamagedJsonError(at_end=True)
            self._repair("names without quotes")
            return whole[0].strip(), whole.end()
        if word := _WORD.match(text, place):
            if word[0] not in _CONSTANTS:
                raise DamagedJsonError(at_end=word.end() == len(text))
            if word[0][0].isupper():
                self._repair("Python's None, True or False")
            return _CONSTANTS[word[0]], word.end()
        if number := _NUMBER.match(text, place):
            return 0.0, number.end()  # which one does not matter: a number names nothing
        raise DamagedJsonError

    def _string(self, place: int) -> tuple[str, int]:
        text, quotes = self._text, _CLOSING_QUOTES[self._text[place]]
        body = _STRINGS[quotes].match(text, place + 1)
        if body is None or body.end() >= len(text):
            raise DamagedJsonError(at_end=True)
        if text[place] != '"':
            self._repair("single quotes" if text[place] == "'" else "typographic quotes")
        return _unescaped(body[0]), body.end() + 1

    def _list(self, place: int, depth: int, bare: bool, closing: str) -> tuple[list[Any], int]:
        found: list[Any] = []
        if self._text[place] not in "[{":
            self._repair("Chinese punctuation")
        place = self._skip(place + 1)
        while self._at(place) not in closing:
            value, place = self._value(place, depth + 1, bare)
            found.append(value)
            place = self._after_value(place, closing, value)
        if self._text[place] not in "]}":
            self._repair("Chinese punctuation")
        return found, place + 1

    def _after_value(self, place: int, closing: str, value: object) -> int:
        """Where the next value begins, or the end is."""
        after = self._skip(place)
        c = self._at(after)
        if c in closing:
            return after
        if c not in _COMMAS:
            if "\n" in self._text[place:after] and isinstance(value, str) and c in _CLOSING_QUOTES:
                self._repair("missing comma")
                return after
            raise DamagedJsonError
        if c != ",":
            self._repair("Chinese punctuation")
        after = self._skip(after + 1)
        if self._at(after) in closing:
            self._repair("trailing comma")
        return after

    def _object(self, place: int, depth: int) -> tuple[Any, int]:
        pairs: list[tuple[str, Any]] = []
        start = place
        if self._text[place] != "{":
            self._repair("Chinese punctuation")
        place = self._skip(place + 1)
        while self._at(place) not in _CLOSE_OBJECT:
            key, place = self._key(place)
            place = self._skip(place)
            if self._at(place) not in _COLONS:
                if pairs or self._text[place] not in _COMMAS + _CLOSE_OBJECT:
                    raise DamagedJsonError
                self._repair("a set in braces")
                return self._list(start, depth, False, _CLOSE_OBJECT)
            if self._text[place] != ":":
                self._repair("Chinese punctuation")
            value, place = self._value(self._skip(place + 1), depth + 1, False)
            pairs.append((key, value))
            place = self._after_value(place, _CLOSE_OBJECT, None)
        return _object(pairs), place + 1

    def _key(self, place: int) -> tuple[str, int]:
        self._steps += 1
        if self._text[place] in _CLOSING_QUOTES:
            return self._string(place)
        bare = _KEY.match(self._text, place)
        if bare is None:
            raise DamagedJsonError
        self._repair("keys without quotes")
        return bare[0], bare.end()


def _unescaped(body: str) -> str:
    if "\\" not in body:
        return body
    text = _ESCAPE.sub(lambda found: _escape(found[1]), body)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(code: str) -> str:
    return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)
