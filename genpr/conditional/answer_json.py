"""JSON in answers of language models: a lenient parser, and the list of names within a value.

The parser repairs only what has one meaning (quotes, trailing commas, bare words, Python constants). The library json-repair is
not used: it completes JSON that is cut off, keeps the last of two keys, splits at quotes within quotes, and took 48 s for an
answer of 60 kB.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from genpr.conditional.answer_words import (
    CLASS_KEYS,
    ERROR_KEYS,
    NAME_KEYS,
    PRESENT_KEYS,
    WRAPPER_KEYS,
    AnswerParseError,
    brackets_at_end,
    check_count,
    is_about_answer,
    is_negative,
    is_none,
    is_prose,
    is_refusal,
    is_remark,
    key_priority,
    mark_at_end,
    normalize_key,
    presence_mark,
    single_list,
    unique_names,
    without_etc,
    yes_or_no,
)
from genpr.limits import parse_json

MORE = "words for more left out"
EMPHASIS = "*_`\"'“”‘’ \t\r\n"

_MAX_DEPTH, _MAX_TOKENS = 24, 40_000
_TOKEN = re.compile(
    r"""\s*+(?:(?P<string>"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|[“”][^“”\\]*+[“”])|(?P<mark>[\[\]{},:，、;；：])"""
    r"""|(?P<word>[^\s\[\]{},:，、;；："'“”`「『【][^\[\]{},:，、;；："“”\n`]*+))""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_CONSTANTS = {
    "true": "true",
    "false": "false",
    "null": "null",
    "True": "true",
    "False": "false",
    "None": "null",
}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


class InvalidJSONError(Exception):
    """This is no JSON that could be repaired; `is_cut` if only its end is missing."""

    def __init__(self, *, is_cut: bool = False) -> None:
        super().__init__("invalid JSON")
        self.is_cut = is_cut

    def as_parse_error(self, what: str) -> AnswerParseError:
        """The error for an answer with it."""
        if self.is_cut:
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
        if found.setdefault(key, value) != value:
            raise AnswerParseError("several-lists", f"the key {key[:40]!r} has two different values")
    return found


class LenientJSONParser:
    """Reads JSON values out of one text by rewriting its tokens as strict JSON, with one limit of work for all of them.

    Args:
        text: Everything.
        repairs: Gets what was repaired, in words.
    """

    def __init__(self, text: str, repairs: list[str]) -> None:
        self._text, self._repairs, self._n_tokens = text, repairs, 0

    def value_at(self, position: int, *, bare: bool = False) -> tuple[Any, int]:
        """The value that begins with the bracket at `position`, and where it ends.

        Args:
            position: Of its first character.
            bare: Whether items of the outer list may stand without quotes, as in [cat, dog].

        Raises:
            InvalidJSONError: There is no value.
            AnswerParseError: It takes too much work ("too-long"), or one key has two values ("several-lists").
        """
        tokens: list[str] = []
        open_at: list[int] = []  # tokens that open lists and objects
        before = ""
        while not tokens or open_at:
            found = _TOKEN.match(self._text, position)
            self._n_tokens += 1
            if self._n_tokens > _MAX_TOKENS or len(open_at) > _MAX_DEPTH:
                raise AnswerParseError(
                    "too-long", "it is nested too deeply, or too long for a list of entities"
                )
            if found is None:
                rest = self._text[position:].lstrip()[:1]
                raise InvalidJSONError(is_cut=not rest or rest in "\"'“")
            if found["mark"]:
                self._add_mark(found["mark"], tokens, open_at)
            else:
                is_list = bool(open_at) and tokens[open_at[-1]][0] == "["
                value = self._value(found, is_bare=is_list and (bare or len(open_at) > 1))
                if tokens and tokens[-1][0] == '"' and tokens[-1] is before:
                    if not found["string"] or "\n" not in self._text[position : found.start("string")]:
                        raise InvalidJSONError
                    self._repair("missing comma")
                    tokens.append(",")
                tokens.append(value)
                before = value
            position = found.end()
        try:
            return parse_strict_json("".join(tokens)), position
        except ValueError as error:
            raise InvalidJSONError from error

    def _add_mark(self, mark: str, tokens: list[str], open_at: list[int]) -> None:
        mark, written = {"，": ",", "、": ",", ";": ",", "；": ",", "：": ":"}.get(mark, mark), mark
        if mark != written:
            self._repair("Chinese punctuation")
        if mark in "[{":
            open_at.append(len(tokens))
        elif mark in "]}" and open_at:
            if tokens[-1] == "," and tokens[-2][0] not in "[{":
                self._repair("trailing comma")
                tokens.pop()
            opened = tokens[open_at.pop()]
            mark = "]" if mark == "}" and opened == "[ " else mark
            if opened[0] + mark not in ("[]", "{}"):
                raise InvalidJSONError
        elif mark == "," and tokens[open_at[-1]] == "{" and len(tokens) - open_at[-1] == 2:
            self._repair("a set in braces")
            tokens[open_at[-1]] = "[ "
        tokens.append(mark)

    def _value(self, found: re.Match[str], *, is_bare: bool) -> str:
        """A string, constant, number or bare word as JSON."""
        if text := found["string"]:
            if text[0] == '"':
                return json.dumps(_unescaped(text[1:-1]))
            self._repair("single quotes" if text[0] == "'" else "typographic quotes")
            return json.dumps(_unescaped(text[1:-1]))
        word = found["word"].strip()
        is_key = self._text[found.end() : found.end() + 1] in (":", "：") and word.isidentifier()
        if word in _CONSTANTS and not is_key:
            if word[0].isupper():
                self._repair("Python's None, True or False")
            return _CONSTANTS[word]
        if _NUMBER.fullmatch(word):
            return str(float(word)) if word.lstrip("-").startswith("0") or "." in word else word
        if found.end() == len(self._text):
            raise InvalidJSONError(is_cut=True)
        if not is_key and not is_bare:
            raise InvalidJSONError
        self._repair("keys without quotes" if is_key else "names without quotes")
        return json.dumps(word)

    def _repair(self, what: str) -> None:
        add_repair(self._repairs, what)


def _unescaped(body: str) -> str:
    if "\\" not in body:
        return body

    def char(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(char, body).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def add_repair(repairs: list[str], what: str) -> None:
    """Note a repair once."""
    if what not in repairs:
        repairs.append(what)


_MAX_WRAPPERS = 6
_LONGEST_NAME = 120
_SEPARATORS = (",", "，", "、", "；", ";", "\n")

ReadText = Callable[[str, bool], tuple[str, ...] | None]
"""Reads a string within the JSON: its names; None where it lists none. The flag says whether its key names entities."""


def names_in_json(value: object, read_text: ReadText, repairs: list[str]) -> tuple[str, ...] | None:
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


def _from_object(value: Mapping[str, Any], read_text: ReadText, repairs: list[str]) -> tuple[str, ...] | None:
    for priority in range(3):
        under = [found for key, found in _walk(value, 0) if key_priority(key) == priority]
        readings = [names for found in under if (names := _under_key(found, read_text, repairs)) is not None]
        if (one := single_list(readings, "under keys that name entities")) is not None:
            return one
    if any(normalize_key(key) in ERROR_KEYS and found for key, found in value.items()):
        raise AnswerParseError("error-message", "it is an error message, and no answer")
    others = [(key, _under_other_key(key, found, read_text, repairs)) for key, found in _walk(value, 0)]
    known = [(key, names) for key, names in others if names is not None]
    one = single_list([names for _, names in known], "under keys that do not say what they are")
    if one is not None and normalize_key(known[0][0]) not in WRAPPER_KEYS:
        add_repair(repairs, f"the list stood under {known[0][0][:40]!r}")
    return one


def _walk(value: Mapping[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    """Every key with its value, at any depth; without remarks, and without what is said to be absent."""
    if depth > _MAX_WRAPPERS:
        raise AnswerParseError("too-long", "it is wrapped too deeply")
    check_count(len(value))
    for key, found in value.items():
        if is_remark(key) or is_negative(key):
            continue
        yield key, found
        if isinstance(found, dict) and key_priority(key) is None:
            yield from _walk(found, depth + 1)
        elif _is_wrapper(key, found):
            yield from _walk(found[0], depth + 1)


def _is_wrapper(key: str, value: Any) -> bool:  # noqa: ANN401 - any JSON
    """Whether it is a list around one object that names nothing itself."""
    is_alone = isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict)
    return (
        is_alone
        and normalize_key(key) in WRAPPER_KEYS
        and not {*map(normalize_key, value[0])} & (NAME_KEYS | CLASS_KEYS)
    )


def _under_key(value: object, read_text: ReadText, repairs: list[str]) -> tuple[str, ...] | None:
    """The names under a key that names entities; None for a value such as true."""
    if value is None:
        raise AnswerParseError("no-list", "the list is null, which says nothing about entities")
    if isinstance(value, str):
        names = () if is_none(value) else read_text(value, True)
    elif isinstance(value, list):
        names = _names(value, repairs)
    elif isinstance(value, dict):
        check_count(len(value))
        marks = {
            name: presence_mark(mark) if isinstance(mark, int) else yes_or_no(mark)
            for name, mark in value.items()
        }
        if marks and None not in marks.values():
            add_repair(repairs, "names with yes or no")
            return unique_names(name for name, mark in marks.items() if mark)
        names = _from_object(value, read_text, repairs)
    else:
        return None
    if names is None:
        raise AnswerParseError("no-list", "there is no list of names under the key")
    return names


def _flagged_names(value: Mapping[str, Any], repairs: list[str]) -> tuple[str, ...] | None:
    """The names in an object of two or more names with true or false, or all with yes or no; None where it is none."""
    values = [_present(found) if isinstance(found, dict) else found for found in value.values()]
    marks = [yes_or_no(mark) for mark in values]
    is_uniform = len(set(map(type, values))) == 1
    if len(marks) < 2 or None in marks or not is_uniform or any(map(is_about_answer, value)):
        return None
    add_repair(repairs, "names with yes or no")
    return unique_names(name for name, mark in zip(value, marks, strict=True) if mark)


def _present(item: Mapping[str, Any]) -> object:
    """The value under a key such as "present"; None where there is none."""
    return next((found for key, found in item.items() if normalize_key(key) in PRESENT_KEYS), None)


def _under_other_key(
    key: str, value: object, read_text: ReadText, repairs: list[str]
) -> tuple[str, ...] | None:
    """The names under another key; text only where it is a wrapper."""
    if isinstance(value, list):
        return None if _is_wrapper(key, value) else _names(value, repairs)
    if normalize_key(key) not in WRAPPER_KEYS:
        return None
    if isinstance(value, str):
        return () if is_none(value) else read_text(value, False)
    return _flagged_names(value, repairs) if isinstance(value, dict) else None


def _names(items: list[Any], repairs: list[str]) -> tuple[str, ...] | None:
    """The names of a list of names, or of objects that hold names; None for a list of numbers."""
    if len(items) == 1 and isinstance(items[0], list):
        add_repair(repairs, "a list in a list")
        items = items[0]
    check_count(len(items))
    if items and all(isinstance(item, int | float) for item in items):
        return None
    names = [name for item in items if (name := _name(item, repairs))]
    if items and not any(isinstance(item, dict) for item in items):
        kept = without_etc(names)
        if not kept:
            raise AnswerParseError("no-list", "the names in the list are empty")
        if kept != names:
            add_repair(repairs, MORE)
        names = kept
    if any(map(is_none, names)):
        if len(names) > 1:
            raise AnswerParseError("contradiction", "the list holds names, and a word for none")
        add_repair(repairs, "a list with a word for none")
        return ()
    if len(items) == 1 and isinstance(items[0], str) and any(mark in names[0] for mark in _SEPARATORS):
        raise AnswerParseError("several-in-one", "the only name of the list has a comma in it")
    return unique_names(names)


def _name(item: object, repairs: list[str]) -> str | None:
    """The name that an item is or holds; None for an object that is marked as absent."""
    if isinstance(item, dict):
        add_repair(repairs, "objects with names")
        return _name_in(item)
    if not isinstance(item, str):
        raise AnswerParseError("no-name", f"the list holds {type(item).__name__} where a name should be")
    if len(item) > _LONGEST_NAME:
        raise AnswerParseError("prose", "the list holds a text that is too long for a name")
    if item.strip()[:1] in ("{", "["):
        raise AnswerParseError("no-name", "the list holds JSON where a name should be")
    name, mark = mark_at_end(item.strip(EMPHASIS))
    is_denied = is_negative(brackets_at_end(name)[1]) or (is_prose(name) and is_negative(name))
    if mark is not None or is_denied or is_refusal(name):
        raise AnswerParseError("contradiction", f"{item[:40]!r} may say that something is not there")
    return name


def _name_in(item: Mapping[str, Any]) -> str | None:
    if any(normalize_key(key) in PRESENT_KEYS for key in item):
        mark = yes_or_no(_present(item))
        if mark is None:
            raise AnswerParseError("no-name", f"{str(_present(item))[:40]!r} says neither yes nor no")
        if not mark:
            return None
    for keys in (NAME_KEYS, CLASS_KEYS):
        names = {
            value for key, value in item.items() if normalize_key(key) in keys and isinstance(value, str)
        }
        if len(names) > 1:
            raise AnswerParseError("no-name", "an item has several names")
        if names:
            return _name(names.pop(), [])
    raise AnswerParseError("no-name", "an item of the list has no key such as name, entity or 名称")
