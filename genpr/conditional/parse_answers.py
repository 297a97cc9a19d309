"""Parse the entities that an answer of a language model lists, or return the reason why it is unreadable.

An answer has lists, in JSON or in lines, with keys or labels. The list with a label of entities is read, or the only list.
Ambiguous answers are unreadable, which differs from an empty list.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from genpr.conditional.vocabulary import normalize_name

MAX_CHARACTERS = 50_000
MAX_NAMES = 1_000
_MAX_BRACKETS = 50
_COMMAS = "names with commas"


@dataclass(frozen=True)
class Answer:
    """A parsed list of entities."""

    entities: tuple[
        str, ...
    ]  # original spelling, without duplicates; empty if the answer states that there are none


@dataclass(frozen=True)
class Unreadable:
    """An answer that cannot be parsed; it counts as unreadable, and not as an empty list."""

    code: str  # "empty", "too-long", "refusal", "damaged", "ambiguous" or "no-list"
    reason: str  # for users


def read_entities(answer: object, *, known: Callable[[str], bool] | None = None) -> Answer | Unreadable:
    """Parse the entities that an answer lists.

    Args:
        answer: The text of a language model, or the parsed JSON of one.
        known: Returns whether a name is that of an entity. An answer with nothing but a name is a list of one entity if the
            name is known, and unreadable otherwise, since it may be an error message.

    Returns:
        The entities in their original spelling without duplicates, or the reason why the answer is unreadable. No input
        raises an exception.

    Example:
        >>> read_entities('Sure! {"result": {"实体": ["cat", "dog"]}, "explanation": "I see a cat."}').entities
        ('cat', 'dog')
        >>> read_entities("实体列表：Python, Java, C++").entities
        ('Python', 'Java', 'C++')
        >>> read_entities("none"), read_entities("I'm sorry, I can't help with that.").code
        (Answer(entities=()), 'refusal')
    """
    reader = _Reader(known if known is not None else lambda _: False)
    try:
        return reader.choose(reader.lists_in(answer))
    except _UnreadableError as outcome:
        return Unreadable(*outcome.args)
    except RecursionError:
        return Unreadable("too-long", "it is nested too deeply")


class _UnreadableError(Exception):
    """Raised with a code and a reason."""


@dataclass
class _List:
    """Lines of a text or items of JSON, with their keys or label."""

    label: str
    how: str = "lines"
    items: list[Any] = field(default_factory=list)
    indent: int = 0

    @property
    def is_of_entities(self) -> bool:
        return _marked(_LIST, self.label)


def _preferred(lists: list[_List]) -> list[_List]:
    """The lists with a label of entities, else those with bullets, else all without a label of something else."""
    lists = [each for each in lists if not _is_other(each.label)]
    bullets = [each for each in lists if each.how == "bullet list"]
    return [each for each in lists if each.is_of_entities] or bullets or lists


def _keys(words: str) -> frozenset[str]:
    return frozenset(words.split())


_LIST = re.compile(  # in keys and labels of the list
    r"(?<![\w'-])(?:"
    r"entity|entities|objects|items|found|present|detected|visible|identified|recognized|shown|seen|list|"
    r"answer"
    r")(?![\w'-])|实体|物体|物品|对象|列表|出现|发现|看到|包含|识别|检测"
)
_DENIED = re.compile(  # in names of absent or uncertain entities
    r"(?<![\w'-])(?:"
    r"no|not|cannot|can't|isn't|aren't|don't|doesn't|without|except|but|maybe|perhaps|possibly|neither|"
    r"nor|or|none|never|missing|absent"
    r")(?![\w'-])|没有|不存在|未出现|看不到|不在|不确定|可能是|或者"
)
_OTHER = re.compile(  # in keys and labels of absent or requested entities and of explanations
    r"(?<![\w'-])(?:"
    r"non|excluded|lacking|invisible|unseen|undetected|false|n|wrong|nothing|unable|unlikely|hidden|"
    r"uncertain|unsure|expected|required|requested|prompt|query|explanations?|reasons?|reasoning|notes?|"
    r"comments?|descriptions?|thoughts?|confidence|scores?|analysis|summary|bbox|box|boxes"
    r")(?![\w'-])|未|没|無|无|不|缺|否|✗|❌|排除|可能|说明|解释|理由|原因|备注|描述|思考|分析|置信"
)
_PROSE = re.compile(  # in lines that are not names
    r"(?<![\w'-])(?:"
    r"i|i'm|i've|we|you|he|she|they|it's|its|is|are|was|were|there|there's|this|that|these|those|could|"
    r"would|should|shows|contains?|has|have|do|does|did|see|appears|seems|because|which|please|sorry|here|"
    r"list|title|retry|failed|error|exception|yes|true|ok|unknown|null"
    r")(?![\w'-])|我|你|图中|图片|画面|这是|可以看到|是一|因为|但是|抱歉|请|等$|^是$|^有$"
)
_NONE = re.compile(
    r"(?:there (?:are|is) |the (?:image|picture|photo) contains )?(?:no (?:entity|entities|objects?|items?)|none|nothing|empty)"
    r"(?: (?:are |is |were |was )?(?:present|found|visible|identified|detected|of them|of the above))?"
    r"(?: in (?:the|this) (?:image|picture|photo|list))?|无|空|没有|(?:无|没有|未发现|没有任何)(?:实体|物体)|未发现"
)
_REFUSAL = re.compile(
    r"i(?:'m| am)? (?:sorry|unable|not able|afraid|can't|cannot|won't|don't|do not|apologi[sz]e)|sorry|unfortunately"
    r"|as an? (?:ai|language model)|my apologies|抱歉|很抱歉|对不起|我?无法|我不能"
)
_MORE = re.compile(r"(?:etc|so on|(?:and )?(?:many )?(?:more|others))\.?|[.…]+")
_ERROR_KEYS = _keys("error errors exception 错误")
_PRESENT_KEYS = _keys("present exists visible detected found status 存在 出现")
_NAME_KEYS = _keys("name entity text word object objectname 名称 名字 实体 物体 对象")
_CLASS_KEYS = _keys("label class category 标签 类别")
_WRAPPERS = _keys(
    "answer result results output response content text data json value arguments message 答案 结果 回答 数据"
)

_TAGS = re.compile(r"<(\w{1,20})>(.*)</\1>", re.DOTALL)
_LANGUAGE = re.compile(r"[ \t]*+[\w+-]{0,20}+[ \t]*+(?=[\n\[{])")
_BRACKET = re.compile(r"[\[{]")
_LIKE_JSON = re.compile(r"[\[{]\s*+[\"'“\[{\]}]|\{")
_ADJACENT = re.compile(r"[\"']\s*+[\"']")
_BULLET = re.compile(
    r"(?:[•·]|[-–](?=[\w\s\"'`*\[])|[*+](?=\s)|\(?\d{1,3}[.)](?!\d)|\d{1,3}、|[a-zA-Z]\)(?=\s))\s*"
)
_RULE = re.compile(r"[-*_=\s]+")
_HEADING = re.compile(r"#{1,6}\s+|\*\*(?=[^*]+\*\*$)")
_EXPLAINED = re.compile(r"[:：]|(?<=\s)[-–—]+(?=\s)|->|→|(?<=\s)=(?=\s)")
_IN_BRACKETS = re.compile(r"[(（]([^()（）]+)[)）]$")
_SEPARATOR = re.compile(r"[,，、;；|]")
_AND = re.compile(r"\s(?:and|&)\s|[和与]")
_IN_LINE = re.compile(
    r"[•*|\t<>\[\]{}=「『【｛✓✔✅☑✗✘❌☒☐①-⑳]|\s\d{1,3}[.)]\s|[(（]\d{1,3}[)）]\S|,\s|[，、；。！？]|;\s|[.!?] |://|\.\.|…"
)
_EMPHASIS = "*_`\"'“”‘’ \t\r\n"
_SPACE = "\ufeff\u200b \t\r\n"
_STRAIGHT = str.maketrans("“”‘’：，、", "\"\"'':,,")
_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")


@lru_cache(maxsize=2**12)
def _plain(text: str) -> str:
    return normalize_name(_CAMEL_CASE.sub(" ", text)).replace("_", " ")


def _marked(expression: re.Pattern[str], text: str) -> bool:
    """Whether an expression matches in a key, a label, a name or an explanation."""
    return expression.search(_plain(text[:400])) is not None


def _is_other(text: str) -> bool:
    """Whether a key, a label or an explanation is of something other than present entities."""
    return _marked(_DENIED, text) or _marked(_OTHER, text)


def is_none(text: str) -> bool:
    """Whether a text states that there are no entities."""
    return len(text) < 200 and _NONE.fullmatch(normalize_name(text)) is not None


def _key(key: object) -> str:
    return normalize_name(str(key)).translate({ord(c): None for c in " _-"})


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if found.setdefault(key, value) != value:
            raise _UnreadableError("ambiguous", f"the key {key[:40]!r} has two different values")
    return found


_JSON = json.JSONDecoder(object_pairs_hook=_unique_keys, strict=False)


def _literal(text: str) -> Any:  # noqa: ANN401 - whatever it holds
    """The value of a Python literal, which is not executed; adjacent strings are an error instead of being joined."""
    text = text.translate(_STRAIGHT)
    if _ADJACENT.search(text):
        raise ValueError("a comma is missing")
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.literal_eval(text)
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("it is not a literal") from error


def _value_at(body: str, start: int) -> tuple[Any, int]:
    """The JSON value or Python literal at a bracket, and its end."""
    try:
        return _JSON.raw_decode(body, start)
    except ValueError:
        end = body.rfind("]" if body[start] == "[" else "}") + 1
        return _literal(body[start:end]), end


def _json_values(body: str) -> list[Any]:
    """The values of JSON and Python literals in a text, without lists of numbers such as [1]."""
    if body[0] in "\"'“(":
        with suppress(ValueError):
            return [_literal(body)]
    values: list[Any] = []
    position = 0
    for _ in range(_MAX_BRACKETS):
        bracket = _BRACKET.search(body, position)
        if bracket is None:
            return values
        try:
            value, position = _value_at(body, bracket.start())
        except ValueError as error:
            if _LIKE_JSON.match(body, bracket.start()):
                raise _UnreadableError("damaged", "its JSON is damaged or truncated") from error
            position = bracket.end()
            continue
        is_box = not value and body[position:].partition("\n")[0].strip(" .`*")  # of "- [ ] cat"
        if not is_box and not _is_numbers(value):
            values.append(value)
    raise _UnreadableError("ambiguous", "it has too many brackets")


def _is_numbers(value: object) -> bool:
    return isinstance(value, list) and value != [] and all(isinstance(item, int | float) for item in value)


def _names_under(item: Any) -> set[str]:  # noqa: ANN401 - any JSON
    """The texts at the keys for names of an object, else at those for classes."""
    items = item.items() if isinstance(item, dict) else ()
    found = [
        {value for key, value in items if _key(key) in keys and isinstance(value, str)}
        for keys in (_NAME_KEYS, _CLASS_KEYS)
    ]
    return found[0] or found[1]


def _name_of(item: object) -> str:
    """The name in an item of JSON."""
    if isinstance(item, dict):
        is_unclear = any(_key(key) in _PRESENT_KEYS and value is not True for key, value in item.items())
        found = _names_under(item)
        if is_unclear or len(found) != 1:
            raise _UnreadableError("no-list", "an item has no name, several names, or may be absent")
        item = found.pop()
    name = item.strip(_EMPHASIS) if isinstance(item, str) else ""
    if not name or len(name) > 120 or name[0] in "{[":
        raise _UnreadableError("no-list", "an item of the list is not a name")
    return name


class _Reader:
    """Parser of one answer; `known` returns whether a name is that of an entity."""

    def __init__(self, known: Callable[[str], bool]) -> None:
        self._known = known

    def choose(self, lists: list[_List]) -> Answer:
        """Read the preferred lists, which must be equal."""
        chosen = _preferred(lists)
        # A text such as "Weather: sun, rain" is not a list of entities.
        is_other = (
            each.label and each.how in ("lines", _COMMAS) and not each.is_of_entities for each in chosen
        )
        if not chosen or any(is_other):
            raise _UnreadableError("no-list", "it has no list of names")
        found = [self._names(each) for each in chosen]
        if any(names.keys() != found[0].keys() for names in found):
            raise _UnreadableError("ambiguous", "it has several different lists")
        return Answer(tuple(found[0].values()))

    def lists_in(self, value: object, label: str = "") -> list[_List]:
        """The lists in a text, or in a value of JSON or of Python."""
        if isinstance(value, str):
            return self._lists_in_text(value, label)
        if isinstance(value, dict):
            return self._lists_in_object(value, label)
        if not isinstance(value, list | tuple) or _is_numbers(value):
            return []
        if len(value) == 1 and isinstance(value[0], list | dict) and not _names_under(value[0]):
            return self.lists_in(value[0], label)
        return [_List(label, "JSON", list(value))]

    def _lists_in_text(self, text: str, label: str) -> list[_List]:
        body = text.rpartition("</think>")[2].strip(_SPACE)
        if len(body) > MAX_CHARACTERS:
            raise _UnreadableError("too-long", "it is too long")
        if tags := _TAGS.fullmatch(body):
            body = tags[2].strip(_SPACE)
        if not body:
            raise _UnreadableError("empty", "it is empty")
        if body.startswith("<think"):
            raise _UnreadableError("damaged", "it ends within the reasoning of the model")
        if is_none(body):
            return [_List(label, "none")]
        if _REFUSAL.match(normalize_name(body[:80])):
            raise _UnreadableError("refusal", "it is a refusal")
        if "```" in body:
            inside = [part for part in body.split("```")[1::2] if part.strip()]
            words = [_LANGUAGE.match(part) for part in inside]
            parts = [part[word.end() if word else 0 :] for part, word in zip(inside, words, strict=True)]
        else:
            parts = _json_values(body)
        if not parts:
            return _lists_in_lines(body, label)
        lists = [each for part in parts for each in _preferred(self.lists_in(part, label))]
        return lists if len(parts) == 1 else [replace(each, label="entities") for each in lists]

    def _lists_in_object(self, value: dict[Any, Any], label: str) -> list[_List]:
        value = {str(key): found for key, found in value.items()}
        if any(_key(key) in _ERROR_KEYS and found for key, found in value.items()):
            raise _UnreadableError("refusal", "it is an error message")
        fields = {key: found for key, found in value.items() if not isinstance(found, int | float)}
        named = [key for key in fields if _marked(_LIST, key) and not _is_other(key)]
        named = [key for key in named if _key(key) not in _WRAPPERS]
        lists = []
        for key in named or fields:
            is_wrapper = _key(key) in _WRAPPERS
            if key in named or is_wrapper or not isinstance(fields[key], str):
                lists += self.lists_in(fields[key], label if is_wrapper else f"{label} {key}")
        return lists

    def _names(self, found: _List) -> dict[str, str]:
        """The names of a list by their normalized spelling."""
        if len(found.items) > MAX_NAMES:
            raise _UnreadableError("too-long", f"it has more than {MAX_NAMES:,} items or lines")
        if found.how == "JSON":
            names = list(map(_name_of, found.items))
        elif found.how == _COMMAS:
            names = self._separated(found.items[0])
        else:
            names = [part for line in _without_explanations(found.items) for part in self._parts(line)]
        if len(names) > 1 and not self._known(names[-1]) and _MORE.fullmatch(names[-1].lower()):
            names = names[:-1]
        if len(names) == 1 and is_none(names[0]):
            return {}
        for name in names:
            self._check(name, is_quoted=found.how == "JSON")
        if len(names) == 1 and not self._known(names[0]):
            is_unsure = found.how == _COMMAS and (not found.is_of_entities or _AND.search(names[0]))
            if is_unsure or (found.how == "JSON" and _SEPARATOR.search(names[0])):
                raise _UnreadableError(
                    "ambiguous", f"{names[0][:40]!r} may be one name, several names, or none"
                )
        spelling: dict[str, str] = {}
        for name in names:
            spelling.setdefault(normalize_name(name), name)
        return spelling

    def _separated(self, line: str) -> list[str]:
        """Names separated by commas."""
        bare = re.sub(r"(?<!\.)\.$", "", line.rstrip("。!！ "))
        *names, last = [name for part in _SEPARATOR.split(bare) if (name := part.strip(_EMPHASIS))] or [""]
        if names:
            last = last.removeprefix("and ").removesuffix("等等")
        return [*names, *self._parts(last, is_last=bool(names))]

    def _parts(self, name: str, *, is_last: bool = False) -> list[str]:
        """`cat and dog` is two names at the end of a list with commas, or if both are known; else one name."""
        parts = [part.strip() for part in _AND.split(name)]
        is_one = self._known(name) or not (is_last or all(map(self._known, parts)))
        return [name] if is_one else parts

    def _check(self, name: str, *, is_quoted: bool) -> None:
        """Raise an error for a text that is not a name."""
        if self._known(name):
            return
        words = len(name.split())
        is_long = words > 8 or len(name) > 80 or (words == 1 and len(name) > 40)
        is_torn = len(re.findall("[(（]", name)) != len(re.findall("[)）]", name))
        is_text = is_long or is_torn or _IN_LINE.search(name) or _marked(_PROSE, name)
        if not is_quoted and (is_text or not any(c.isalpha() for c in name)):
            raise _UnreadableError("no-list", f"{name[:40]!r} is not a name")
        within = _IN_BRACKETS.search(name)
        is_denied = _marked(_DENIED, name) or _REFUSAL.match(normalize_name(name))
        if is_denied or (within is not None and _is_other(within[1])):
            raise _UnreadableError("ambiguous", f"{name[:40]!r} may state that something is absent")


def _without_explanations(lines: list[str]) -> list[str]:
    """The names in lines, without explanations after a colon or a dash."""
    names, explanations = list[str](), list[str]()
    for line in lines:
        name, *behind = _EXPLAINED.split(line.replace("**", ""), maxsplit=1)
        names.append(name.strip(_EMPHASIS).rstrip(".。;；,， ").rstrip(_EMPHASIS))
        explanations += map(str.strip, behind)
    if explanations and not len(lines) == len(explanations) == len(set(names)) > 1:
        raise _UnreadableError("ambiguous", "names and explanations cannot be distinguished")
    for text in explanations:
        if _is_other(text) or not any(c.isalpha() for c in text):
            raise _UnreadableError("ambiguous", f"{text[:40]!r} may state that something is absent")
    return names


def _lists_in_lines(body: str, label: str) -> list[_List]:
    """The lists of a text in order."""
    found = [_List(label)]
    for line in body.splitlines():
        content, last, indent = line.strip(), found[-1], len(line) - len(line.lstrip())
        if not content or _RULE.fullmatch(content):
            continue
        if bullet := _BULLET.match(content):
            if last.items and last.how == "lines":
                found.append(last := _List(""))
            if last.items and indent != last.indent:
                raise _UnreadableError("ambiguous", "it has nested lists")
            last.how, last.indent = "bullet list", indent
            last.items.append(content[bullet.end() :])
        elif named := _label(content):
            found += [_List(named[0], items=[named[1]]), _List("")] if named[1] else [_List(named[0])]
        elif last.how == "lines" or indent <= last.indent:
            if last.how != "lines":
                found.append(last := _List(label))
            last.items.append(content)
    lists = [each for each in found if each.items]
    for each in lists:
        if each.how == "lines" and len(each.items) == 1:
            each.how = _COMMAS
    return lists


def _label(content: str) -> tuple[str, str] | None:
    """The label of a line and the text after it; None without a label."""
    plain = _HEADING.sub("", content, count=1)
    label, colon, behind = plain.replace("**", "").replace("：", ":").partition(":")
    if not label.strip() or len(label) > 100 or not (colon or plain != content):
        return None
    return label.strip(), behind.strip()
