"""Read which entities an answer of a language model lists, however it is wrapped; or say why that is not known.

Models that should answer in JSON give JSON with other keys, more wrapping, explanations, Markdown, or plain text. What can mean one
thing only is read, and repairs are recorded; everything else is unreadable, which is not "found nothing".
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from genpr.conditional.answer_json import (
    InvalidJSONError,
    LenientJSONParser,
    names_in_json,
    parse_strict_json,
)
from genpr.conditional.answer_text import Known, names_in_text
from genpr.conditional.answer_words import (
    WRAPPER_KEYS,
    AnswerParseError,
    key_priority,
    normalize_key,
    single_list,
    unique_names,
)

MAX_CHARACTERS = 50_000
"""Of an answer; a longer one is no list of entities."""

_MAX_FENCES, _MAX_BRACKETS, _MAX_NESTED = 50, 50, 3
_LANGUAGE = re.compile(r"[ \t]*+[\w+-]{0,20}+[ \t]*+(?=[\n\[{])")
_THOUGHTS = ("</think>", "</thinking>")
_BRACKET = re.compile(r"[\[{]")
_LIKE_JSON = re.compile(r"[\[{]\s*+(?:[\"'“\[{\]}]|[^\W\d]\w{0,40}+\s*+[:：])|\{")


@dataclass(frozen=True)
class Answer:
    """A list of entities that was read.

    Attributes:
        entities: As they were written, each once; empty if the answer says that there are none.
        how: In which form they were written, such as "JSON" or "bullet list".
        repaired: What was not as it should be, and could mean one thing only; empty if nothing.
    """

    entities: tuple[str, ...]
    how: str
    repaired: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unreadable:
    """An answer whose list cannot be read; it is counted as a failure of reading, and not as "nothing found".

    Attributes:
        code: Stable identifier in kebab-case.
        reason: Why, in words.
    """

    code: str
    reason: str


def read_entities(answer: object, *, known: Known | None = None) -> Answer | Unreadable:
    """Read the entities that an answer lists.

    Args:
        answer: The text of a language model, or what a JSON parser made of it.
        known: Says whether there is an entity of such a name. It is called with answers that are a name and nothing else:
            they are a list of one if it is known, and unreadable if not, for an error message looks alike.

    Returns:
        The entities as they were written, each once; or why they cannot be read. It never raises, whatever is given.

    Example:
        >>> read_entities('Sure! {"result": {"实体": ["cat", "dog"]}, "explanation": "I see a cat."}').entities
        ('cat', 'dog')
        >>> read_entities("实体列表：Python, Java, C++").entities
        ('Python', 'Java', 'C++')
        >>> read_entities("none"), read_entities("I'm sorry, I can't help with that.").code
        (Answer(entities=(), how='a word for none', repaired=()), 'refusal')
    """
    reader = _Reader(known)
    try:
        names, how = reader.text(answer if isinstance(answer, str) else _as_json(answer), 0)
    except AnswerParseError as outcome:
        return Unreadable(outcome.code, outcome.reason)
    except RecursionError:
        return Unreadable("too-long", "it is nested too deeply for a list of entities")
    return Answer(unique_names(names), how, tuple(dict.fromkeys(reader.repairs)))


class _Reader:
    """Reads one answer, and collects what it repairs."""

    def __init__(self, known: Known | None) -> None:
        self.repairs: list[str] = []
        self._known = known

    def text(self, text: str, depth: int, *, named: bool = False) -> tuple[tuple[str, ...], str]:
        """The names in a text, and the form in which they stand there."""
        start = max((text.rfind(mark) + len(mark) for mark in _THOUGHTS if mark in text), default=0)
        body = text[start:].strip("\ufeff\u200b \t\r\n")
        if not body:
            raise AnswerParseError("empty", "it is empty")
        if len(body) > MAX_CHARACTERS:
            raise AnswerParseError(
                "too-long", f"it has {len(body):,} characters, too many for a list of entities"
            )
        if body[:10].lower().startswith(("<think>", "<thinking>")):
            raise AnswerParseError("cut-off", "it breaks off while the model is still thinking")
        if (inner := _within_tags(body)) is not None and depth < _MAX_NESTED:
            return self.text(inner, depth + 1, named=named)
        if "```" in body:
            return self._fences(body, depth)
        try:
            value = parse_strict_json(body)
        except ValueError:
            found = self._json_within(body, depth)
            if found is not None:
                return found, "JSON with text around"
            return names_in_text(body, self.repairs, self._known, named=named)
        names = self._names(value, depth, self.repairs)
        if names is None:
            raise AnswerParseError("no-list", "there is no list of names in the JSON")
        return names, "JSON"

    def _names(self, value: object, depth: int, repairs: list[str]) -> tuple[str, ...] | None:
        """The names in a JSON value; an object of yes and no is one if all its keys are known names."""
        if isinstance(value, dict) and value and self._known is not None and all(map(self._known, value)):
            value = {"entities": value}
        return names_in_json(value, lambda inner, named: self._nested(inner, depth + 1, named), repairs)

    def _nested(self, text: str, depth: int, named: bool) -> tuple[str, ...]:
        """The names in a string within JSON, which may itself be JSON; `named` if its key names entities."""
        if depth > _MAX_NESTED:
            raise AnswerParseError("too-long", "it is wrapped too deeply")
        self.repairs.append("a list written as text")
        return self.text(text, depth, named=named)[0]

    def _fences(self, body: str, depth: int) -> tuple[tuple[str, ...], str]:
        """The list in a code fence; the text around it is ignored."""
        parts = body.split("```")
        inside = [part for part in parts[1::2] if part.strip()]
        if depth > _MAX_NESTED or len(inside) > _MAX_FENCES or not inside:
            raise AnswerParseError("no-list", "its code fences hold no list")
        starts = [0 if (word := _LANGUAGE.match(part)) is None else word.end() for part in inside]
        found = [self.text(part[start:], depth + 1) for part, start in zip(inside, starts, strict=True)]
        if len(parts) % 2 == 0:
            self.repairs.append("code fence not closed")
        names = single_list([names for names, _ in found], "in code fences")
        return names or (), f"{found[0][1]} in a code fence"

    def _json_within(self, body: str, depth: int) -> tuple[str, ...] | None:
        """The list in the JSON that a text holds; None if it holds none."""
        noted: list[str] = []
        parser, readings, position = LenientJSONParser(body, noted), [], 0
        is_bare = (
            body[0] == "[" and body.rstrip(" .。")[-1] == "]" and body.count("[") == body.count("]") == 1
        )
        for _ in range(_MAX_BRACKETS):
            bracket = _BRACKET.search(body, position)
            if bracket is None:
                break
            start = bracket.start()
            try:
                value, position = parser.value_at(start, bare=is_bare)
            except InvalidJSONError as error:
                if not _LIKE_JSON.match(body, start):
                    position = start + 1
                    continue
                raise error.as_parse_error("its JSON") from error
            if not value and not _is_alone_on_line(body, start, position):
                continue  # such as the box in "- [ ] cat"
            names = self._names(value, depth, noted)
            if names is None and isinstance(value, dict):
                raise AnswerParseError("no-list", "there is no list of names in the JSON")
            if names is not None:
                readings.append(names)
        else:
            raise AnswerParseError("several-lists", "it holds too many pieces of JSON")
        self.repairs += noted
        return single_list(readings, "in JSON")


def _as_json(answer: object) -> str:
    """A parsed answer as the text that it was parsed from."""
    found = list(answer) if isinstance(answer, tuple | set | frozenset) else answer
    if not isinstance(found, list | dict):
        raise AnswerParseError("no-list", "it is neither text nor a list of names")
    try:
        return json.dumps(found, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise AnswerParseError("no-list", "it holds values that JSON does not have") from error


def _within_tags(body: str) -> str | None:
    """The content of `<answer>...</answer>` or the like around all of a text; None where there are no such tags."""
    tag = body[1:].partition(">")[0] if body[:1] == "<" and body[-1:] == ">" else ""
    is_tag = tag[:40] == tag and (normalize_key(tag) in WRAPPER_KEYS or key_priority(tag) is not None)
    return body[len(tag) + 2 : -len(tag) - 3] if is_tag and body.endswith(f"</{tag}>") else None


def _is_alone_on_line(body: str, start: int, end: int) -> bool:
    """Whether nothing else is on its line, but a label in front of it."""
    before = body[body.rfind("\n", 0, start) + 1 : start].strip(" *_`")
    after = body[end:].partition("\n")[0].strip(" *_`.。")
    return not after and (not before or before[-1] in ":：")
