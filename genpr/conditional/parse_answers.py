"""Read which entities an answer of a language model lists, or say why that is not known.

Read are JSON and Python literals, also within text and code fences, bullets, numbers, lines, and names with commas. What could mean
several things is unreadable, which is not "found nothing".
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from genpr.conditional.vocabulary import normalize_name

MAX_CHARACTERS = 50_000
MAX_NAMES = 1_000
_MAX_NESTED, _MAX_PIECES, _LONGEST_NAME = 8, 50, 120


@dataclass(frozen=True)
class Answer:
    """A list of entities that was read.

    Attributes:
        entities: As they were written, each once; empty if the answer says that there are none.
        how: In which form they were written, such as "JSON" or "bullet list".
    """

    entities: tuple[str, ...]
    how: str


@dataclass(frozen=True)
class Unreadable:
    """An answer whose list cannot be read; it is counted as a failure of reading, and not as "nothing found".

    Attributes:
        code: "empty", "too-long", "refusal", "damaged", "ambiguous" or "no-list".
        reason: Why, in words.
    """

    code: str
    reason: str


def read_entities(answer: object, *, known: Callable[[str], bool] | None = None) -> Answer | Unreadable:
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
        (Answer(entities=(), how='none'), 'refusal')
    """
    reader = _Reader(known if known is not None else lambda _: False)
    try:
        if isinstance(answer, str):
            names, how = reader.names_in_text(answer)
        else:
            names, how = reader.names_in_value(answer), "JSON"
    except _UnreadableError as outcome:
        return Unreadable(*outcome.args)
    except RecursionError:
        return Unreadable("too-long", "it is nested too deeply for a list of entities")
    return Answer(_unique(names), how)


class _UnreadableError(Exception):
    """With a code and a reason."""


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_LIST = re.compile(
    r"(?<![\w'-])(?:"
    r"entity|entities|objects|items|found|present|detected|visible|identified|recognized|shown|seen|"
    r"list|answer"
    r")(?![\w'-])|实体|物体|物品|对象|列表|出现|发现|看到|包含|识别|检测"
)
"""Keys and labels of the list."""
_OTHER = re.compile(
    r"(?<![\w'-])(?:"
    r"not|no|non|none|without|missing|absent|excluded|lacking|invisible|unseen|undetected|false|wrong|"
    r"nothing|cannot|can't|isn't|aren't|don't|doesn't|unable|unlikely|hidden|uncertain|unsure|expected|"
    r"required|requested|prompt|query|explanation|explanations|reason|reasons|reasoning|note|notes|"
    r"comment|comments|description|descriptions|thought|thoughts|confidence|score|scores|analysis|"
    r"summary|bbox|box|boxes"
    r")(?![\w'-])|未|没|無|无|不|缺|排除|可能|说明|解释|理由|原因|备注|描述|思考|分析|置信"
)
"""Keys and labels of what is absent, was requested, or explains."""
_DENIAL = re.compile(
    r"(?<![\w'-])(?:"
    r"no|not|without|except|but|maybe|perhaps|possibly|neither|nor|or|none|never|missing|absent"
    r")(?![\w'-])|没有|不存在|未出现|看不到|不在|不确定|可能是|或者"
)
_PROSE = re.compile(
    r"(?<![\w'-])(?:"
    r"i|i'm|i've|we|you|he|she|they|it's|its|is|are|was|were|there|there's|this|that|these|those|cannot|"
    r"can't|could|would|should|shows|contains|contain|has|have|do|does|did|see|appears|seems|because|"
    r"which|please|sorry|here|list|retry|failed|error|exception|title"
    r")(?![\w'-])|我|你|图中|图片|画面|这是|可以看到|是一|因为|但是|抱歉|请"
)
_NONE = re.compile(
    r"(?:there (?:are|is) |the (?:image|picture|photo) (?:contains |does not contain ))?"
    r"(?:(?:no|any) (?:entity|entities|objects?|items?)|none|nothing|empty)"
    r"(?: (?:are |is |were |was )?(?:present|found|visible|identified|detected|of them|of the above))?"
    r"(?: in (?:the|this) (?:image|picture|photo|list))?|无|空|无实体|没有|没有(?:任何)?(?:实体|物体)|未发现(?:实体)?"
)
_REFUSAL = re.compile(
    r"i(?:'m| am)? (?:sorry|unable|not able|afraid|can't|cannot|won't|don't|do not|apologi[sz]e)|sorry|unfortunately"
    r"|as an? (?:ai|language model)|my apologies|抱歉|很抱歉|对不起|我?无法|我不能"
)
_CLOSING = re.compile(
    r"i hope|hope this|let me know|feel free|please let|if you|is there anything|would you like"
)
_MORE = re.compile(
    r"(?:^|\s)(?:etc|and so on|and more|and others?(?: \w+)?|among others)\.?$|^(?:so on|(?:many )?more|others?(?: \w+)?)$|^[.…]+$|等等$"
)
_YES = _set("yes y true present found visible ✓ ✅ 是 是的 有 存在 出现")
_NO = _set("no n false absent missing ✗ ❌ 否 无 没有 不是 不存在 未出现")
_NO_NAMES = _YES | _NO | _set("ok okay sure null unknown error timeout n/a done etc")
_ERROR_KEYS = _set("error errors exception 错误")
_PRESENT_KEYS = _set("present exists visible detected found ispresent isvisible status 存在 出现")
_NAME_KEYS = _set("name entity text word object objectname 名称 名字 实体 物体 对象")
_CLASS_KEYS = _set("label class category 标签 类别")
_WRAPPERS = _set(
    "answer result results output response content text data json value arguments choices message 答案 结果 回答 数据"
)

_TAGS = re.compile(r"<(\w{1,20})>(.*)</\1>", re.DOTALL)
_LANGUAGE = re.compile(r"[ \t]*+[\w+-]{0,20}+[ \t]*+(?=[\n\[{])")
_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")
_BRACKET = re.compile(r"[\[{]")
_LIKE_JSON = re.compile(r"[\[{]\s*+[\"'“\[{\]}]|\{")
_ADJACENT = re.compile(r"[\"']\s*+[\"']")
_BULLET = re.compile(
    r"(?:[•·]|[-–](?=[\w\s\"'`*\[])|[*+](?=\s)|\(?\d{1,3}[.)](?!\d)|\d{1,3}、|[a-zA-Z]\)(?=\s))\s*"
)
_SENTENCE = re.compile(r"[.!?] |[。！？]|://")
_RULE = re.compile(r"[-*_=\s]+")
_HEADING = re.compile(r"#{1,6}\s+")
_BOLD_LINE = re.compile(r"\*\*[^*]+\*\*")
_EXPLAINED = re.compile(r"[:：]|(?<=\s)[-–—]+(?=\s)|->|→|(?<=\s)=(?=\s)")
_SAID = re.compile(r"([^\W\d]+|[✓✅✗❌])\s*(?:[,.;，；(（–—-]|$)")
_IN_BRACKETS = re.compile(r"[(（]([^()（）]+)[)）]$")
_SEPARATOR = re.compile(r"[,，、;；|]")
_AND = re.compile(r"\s(?:and|&)\s|[和与]")
_IN_LINE = re.compile(
    r"[•*|\t<>\[\]{}=「『【｛✓✔✅☑✗✘❌☒☐①-⑳]|\s\d{1,3}[.)]\s|[(（]\d{1,3}[)）]\S|,\s|[，、；]|;\s"
)
_EMPHASIS = "*_`\"'“”‘’ \t\r\n"
_STRAIGHT = str.maketrans("“”‘’：，、", "\"\"'':,,")


def _marked(expression: re.Pattern[str], text: str) -> bool:
    """Whether words of a list are in a key, a label or a name."""
    return bool(expression.search(normalize_name(_CAMEL_CASE.sub(" ", text[:400])).replace("_", " ")))


def is_none(text: str) -> bool:
    """Whether a text says that there are no entities."""
    words = normalize_name(text) if len(text) < 200 else ""
    return bool(_NONE.fullmatch(words)) and not words.startswith("any ")


def _is_refusal(text: str) -> bool:
    return _REFUSAL.match(normalize_name(text[:80])) is not None


def _is_prose(text: str) -> bool:
    words = text.split()
    is_long = len(words) > 8 or len(text) > 80 or (len(words) == 1 and len(text) > 40)
    return is_long or _SENTENCE.search(text) is not None or _marked(_PROSE, text)


def _key(key: str) -> str:
    return normalize_name(key).translate({ord(c): None for c in " _-"})


def _presence(value: object) -> bool | None:
    """What a mark such as `true`, "No, it is hidden" or a count says; None where it is no mark."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value >= 0:
        return value > 0
    if not isinstance(value, str):
        return None
    text = value.strip().lower()
    if text.isdecimal() and len(text) < 4:
        return int(text) > 0
    word = said[1] if (said := _SAID.match(text)) else text
    return True if word in _YES else False if word in _NO else None


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(normalize_name(name), name)
    return tuple(name for key, name in found.items() if key)


def _one_list(readings: list[tuple[str, ...]]) -> tuple[str, ...]:
    """The list that all readings agree on."""
    if not readings:
        raise _UnreadableError("no-list", "there is no list of names in it")
    if len({frozenset(map(normalize_name, reading)) for reading in readings}) > 1:
        raise _UnreadableError("ambiguous", "there are several different lists in it")
    return readings[0]


def _check_count(number: int) -> None:
    if number > MAX_NAMES:
        raise _UnreadableError("too-long", f"it has more than {MAX_NAMES:,} items or lines")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if found.setdefault(key, value) != value:
            raise _UnreadableError("ambiguous", f"the key {key[:40]!r} has two different values")
    return found


_JSON = json.JSONDecoder(object_pairs_hook=_unique_keys, strict=False)


def _literal(text: str) -> Any:  # noqa: ANN401 - whatever it holds
    """The value of a Python literal, which is parsed and never run; adjacent strings would be joined, and are refused."""
    text = text.translate(_STRAIGHT)
    if _ADJACENT.search(text):
        raise ValueError("a comma is missing")
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.literal_eval(text)
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("it is no literal") from error


def _value_at(body: str, start: int) -> tuple[Any, int]:
    """The JSON value or Python literal that begins with a bracket, and where it ends."""
    with suppress(ValueError):
        return _JSON.raw_decode(body, start)
    end = body.rfind("]" if body[start] == "[" else "}") + 1
    return _literal(body[start:end]), end


def _json_values(body: str) -> list[Any]:
    """The values of JSON and Python literals in a text."""
    if body[0] in "\"'“(":
        with suppress(ValueError):
            return [_literal(body)]
    values: list[Any] = []
    position = 0
    for _ in range(_MAX_PIECES):
        bracket = _BRACKET.search(body, position)
        if bracket is None:
            return values
        try:
            value, position = _value_at(body, bracket.start())
        except ValueError as error:
            if _LIKE_JSON.match(body, bracket.start()):
                raise _UnreadableError("damaged", "its JSON is damaged or breaks off") from error
            position = bracket.end()
            continue
        rest = body[position:].partition("\n")[0]
        if value or not rest.strip(" .`*"):  # else the box in "- [ ] cat"
            values.append(value)
    raise _UnreadableError("ambiguous", "it holds too many brackets")


@dataclass
class _Section:
    """Lines of a text with the label in front of them."""

    label: str = ""
    lines: list[str] = field(default_factory=list)
    is_bulleted: bool = False
    indent: int = 0

    @property
    def is_of_entities(self) -> bool:
        """Whether its label says that entities follow."""
        return _marked(_LIST, self.label) and not _marked(_OTHER, self.label)


class _Reader:
    """Reads one answer; `known` says whether there is an entity of such a name."""

    def __init__(self, known: Callable[[str], bool]) -> None:
        self._known = known

    def names_in_text(self, text: str, *, named: bool = False, depth: int = 0) -> tuple[tuple[str, ...], str]:
        """The names in a text, and their form; `named` if a key in front of it names entities."""
        body = text.rpartition("</think>")[2].strip("\ufeff\u200b \t\r\n")
        if not body:
            raise _UnreadableError("empty", "it is empty")
        if len(body) > MAX_CHARACTERS or depth > _MAX_NESTED:
            raise _UnreadableError("too-long", "it is too long or nested too deeply for a list of entities")
        if body.startswith("<think"):
            raise _UnreadableError("damaged", "it breaks off while the model is still thinking")
        if tags := _TAGS.fullmatch(body):
            return self.names_in_text(tags[2], named=named, depth=depth + 1)
        if is_none(body):
            return (), "none"
        if _is_refusal(body):
            raise _UnreadableError("refusal", "it is a refusal, and no list")
        if "```" in body:
            inside = [part for part in body.split("```")[1::2] if part.strip()]
            if len(inside) > _MAX_PIECES:
                raise _UnreadableError("ambiguous", "it has too many code fences")
            parts = [part[word.end() if (word := _LANGUAGE.match(part)) else 0 :] for part in inside]
            found = [self.names_in_text(part, depth=depth + 1) for part in parts]
            return _one_list([names for names, _ in found]), found[0][1]
        if values := _json_values(body):
            lists = [value for value in values if not _is_citation(value)]
            return _one_list(
                [self.names_in_value(each, named=named, depth=depth + 1) for each in lists]
            ), "JSON"
        return self._names_in_sections(_sections(body), named=named)

    def names_in_value(self, value: object, *, named: bool = False, depth: int = 0) -> tuple[str, ...]:
        """The names in a value of JSON or of Python."""
        if depth > _MAX_NESTED:
            raise _UnreadableError("too-long", "it is nested too deeply for a list of entities")
        if isinstance(value, str):
            return self.names_in_text(value, named=named, depth=depth + 1)[0]
        if isinstance(value, set | frozenset):
            value = sorted(value, key=str)
        if isinstance(value, list | tuple):
            return self._names_in_list(list(value))
        if isinstance(value, dict):
            return self._names_in_object(value, named=named, depth=depth)
        raise _UnreadableError("no-list", "it is neither text nor a list of names")

    def _names_in_object(self, value: Mapping[str, Any], *, named: bool, depth: int) -> tuple[str, ...]:
        value = {str(key): found for key, found in value.items()}
        if any(_key(key) in _ERROR_KEYS and found for key, found in value.items()):
            raise _UnreadableError("refusal", "it is an error message, and no list")
        marks = {name: _presence(mark) for name, mark in value.items()}
        if marks and None not in marks.values() and (named or all(map(self._known, marks))):
            return tuple(name for name, mark in marks.items() if mark)
        lists = list(_lists_in(value, depth))
        chosen = [each for each in lists if each[0]] or lists
        return _one_list(
            [self.names_in_value(found, named=named, depth=depth + 1) for named, found in chosen]
        )

    def _names_in_list(self, items: list[Any]) -> tuple[str, ...]:
        """The names of a list of names, or of objects that hold names."""
        if len(items) == 1 and isinstance(items[0], list):
            items = items[0]
        _check_count(len(items))
        names = [name for item in items if (name := _name_of(item))]
        if names and _MORE.search(names[-1].lower()) and not self._known(names[-1]):
            names = names[:-1]
        if any(map(is_none, names)):
            if len(names) > 1:
                raise _UnreadableError("ambiguous", "the list holds names, and a word for none")
            return ()
        if not names and items and not any(isinstance(item, dict) for item in items):
            raise _UnreadableError("no-list", "the names in the list are empty")
        if len(items) == 1 and isinstance(items[0], str) and _SEPARATOR.search(names[0]):
            raise _UnreadableError("ambiguous", "the only name of the list has a comma in it")
        return tuple(names)

    def _names_in_sections(self, sections: list[_Section], *, named: bool) -> tuple[tuple[str, ...], str]:
        """The names in the section whose label says that they are entities, else in the one that may be a list."""
        filled = [each for each in sections if each.lines]
        chosen = [each for each in filled if each.is_of_entities]
        if not chosen and any(each.is_of_entities for each in sections):
            raise _UnreadableError("damaged", "a label announces a list, and nothing follows")
        if not chosen:
            others = [each for each in filled if not _marked(_OTHER, each.label)]
            chosen = [each for each in others if each.is_bulleted] or others
            if any(each.label and not each.is_bulleted for each in chosen):
                raise _UnreadableError("no-list", "it is a text without a list of names")
        names = _one_list([self._names_in_section(each, named=named) for each in chosen])
        if chosen[0].is_bulleted:
            return names, "bullet list"
        return names, "names with commas" if len(chosen[0].lines) == 1 else "lines"

    def _names_in_section(self, section: _Section, *, named: bool) -> tuple[str, ...]:
        lines = section.lines
        if section.is_bulleted or len(lines) > 1:
            return tuple(part for name in self._names_in_lines(lines) for part in self._known_parts(name))
        if is_none(lines[0]):
            return ()
        names = self._separated(lines[0])
        is_sure = len(names) > 1 or named or bool(section.label) or self._known(names[0])
        if not is_sure or (len(names) == 1 and normalize_name(names[0]) in _NO_NAMES):
            raise _UnreadableError("no-list", f"{names[0][:40]!r} may be a name or something else")
        return names

    def _names_in_lines(self, lines: list[str]) -> list[str]:
        """The names of a list of lines, without explanations behind them, and without those marked as absent."""
        if len(lines) > 1 and _MORE.search(lines[-1].strip(_EMPHASIS).lower()) and not self._known(lines[-1]):
            lines = lines[:-1]
        items = [_line(line) for line in lines]
        if len(items) == 1 and is_none(items[0][0]):
            return []
        marks = {mark for _, _, mark in items}
        if marks != {None}:
            if None in marks:
                raise _UnreadableError("ambiguous", "only some items are marked as there or not")
            items = [item for item in items if item[2]]
        names = [name for name, _, _ in items]
        explained = {bool(behind) for _, behind, _ in items}
        if len(explained) > 1 or (True in explained and (len(items) == 1 or len(set(names)) < len(names))):
            raise _UnreadableError("ambiguous", "it is not clear what is a name and what is an explanation")
        for name, behind, mark in items:
            if mark is None and _marked(_OTHER, behind):
                raise _UnreadableError("ambiguous", f"{behind[:40]!r} may say that something is not there")
            self._check_name(name)
        return names

    def _known_parts(self, name: str) -> list[str]:
        """`salt and pepper` are two if both are known and the whole is not; else one."""
        parts = [part.strip() for part in _AND.split(name)]
        return [name] if self._known(name) or not all(part and self._known(part) for part in parts) else parts

    def _separated(self, line: str) -> tuple[str, ...]:
        """Names with commas between."""
        body = line.rstrip("。!！ ")
        bare = body.rstrip(".… ")
        if body[len(bare) :].strip(" ") not in ("", ".") and bare[-1:] not in {*",，、;；"}:
            raise _UnreadableError("damaged", "the list ends with dots, so what else was in it is not known")
        if bare[:1] in ("(", "[") and bare[-1:] in (")", "]"):
            bare = bare[1:-1]
        names = [name for part in _SEPARATOR.split(bare) if (name := part.strip(_EMPHASIS))]
        _check_count(len(names))
        if len(names) > 1 and not self._known(names[-1]):
            last = names.pop().removeprefix("and ").removeprefix("& ")
            more = _MORE.search(last.lower())
            names += last.split(" and ") if more is None else [last[: more.start()]] * bool(more.start())
        names = [part for name in names for part in self._known_parts(name)]
        for name in names:
            self._check_name(name)
        if len(names) == 1 and _AND.search(names[0]) and not self._known(names[0]):
            raise _UnreadableError("ambiguous", f"{names[0][:40]!r} may be one name or two")
        return _one_list([tuple(names)] if names else [])

    def _check_name(self, name: str) -> None:
        """Refuse what is no name."""
        if self._known(name):
            return
        is_torn = len(re.findall("[(（]", name)) != len(re.findall("[)）]", name))
        is_word = normalize_name(name) in ("yes", "no", "true", "false", "是", "否", "有", "没有")
        if is_torn or is_word or name.isdecimal() or not any(c.isalpha() for c in name) or _is_prose(name):
            raise _UnreadableError("no-list", f"{name[:40]!r} is no name")
        if _IN_LINE.search(name) or _marked(_DENIAL, name) or name.endswith("等"):
            raise _UnreadableError("ambiguous", f"{name[:40]!r} may be several names, or something absent")


def _is_citation(value: object) -> bool:
    """Whether it is a list of numbers, such as [1]."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, int | float) for item in value)


def _lists_in(value: Mapping[str, Any], depth: int) -> Iterator[tuple[bool, Any]]:
    """What may be the list in an object, at any depth, and whether its key says so; without what is said to be absent."""
    if depth > _MAX_NESTED:
        raise _UnreadableError("too-long", "it is nested too deeply for a list of entities")
    for key, found in value.items():
        if _marked(_OTHER, key):
            continue
        is_wrapper = _key(key) in _WRAPPERS
        inner = found[0] if is_wrapper and isinstance(found, list) and len(found) == 1 else found
        if _marked(_LIST, key) and not is_wrapper and (found is None or isinstance(found, str | list | dict)):
            yield True, found
        elif isinstance(inner, dict) and (
            inner is found or not _texts_under(inner, _NAME_KEYS | _CLASS_KEYS)
        ):
            yield from _lists_in(inner, depth + 1)
        elif (isinstance(found, list) and not _is_citation(found)) or (is_wrapper and isinstance(found, str)):
            yield False, found


def _texts_under(item: Mapping[Any, Any], keys: frozenset[str]) -> set[str]:
    return {value for key, value in item.items() if _key(str(key)) in keys and isinstance(value, str)}


def _name_of(item: object) -> str | None:
    """The name that an item of JSON is or holds; None for an object that is marked as absent."""
    if isinstance(item, dict):
        marks = [_presence(value) for key, value in item.items() if _key(str(key)) in _PRESENT_KEYS]
        if False in marks:
            return None
        found = _texts_under(item, _NAME_KEYS) or _texts_under(item, _CLASS_KEYS)
        if None in marks or len(found) != 1:
            raise _UnreadableError("no-list", "an item has no name, several names, or an unclear mark")
        item = found.pop()
    if not isinstance(item, str) or len(item) > _LONGEST_NAME or item.strip()[:1] in ("{", "["):
        raise _UnreadableError(
            "no-list", f"the list holds {type(item).__name__} or a long text where a name should be"
        )
    name = item.strip(_EMPHASIS)
    within = _IN_BRACKETS.search(name)
    is_marked = within is not None and (within[1].lower() in _YES | _NO or _marked(_OTHER, within[1]))
    if is_marked or _is_refusal(name) or (_is_prose(name) and _marked(_OTHER, name)):
        raise _UnreadableError("ambiguous", f"{name[:40]!r} may say that something is not there")
    return name


def _sections(body: str) -> list[_Section]:
    """The sections of a text, in their order."""
    found = [_Section()]
    lines = [line for line in body.splitlines() if line.strip() and not _RULE.fullmatch(line)]
    _check_count(len(lines))
    for line in lines:
        content, last, indent = line.strip(), found[-1], len(line) - len(line.lstrip())
        if bullet := _BULLET.match(content):
            if last.lines and not last.is_bulleted:
                found.append(last := _Section())
            if last.is_bulleted and indent != last.indent:
                raise _UnreadableError("ambiguous", "it is a list within a list")
            last.is_bulleted, last.indent = True, indent
            last.lines.append(content[bullet.end() :])
        elif label := _label(content):
            found += [_Section(label[0], [label[1]]), _Section()] if label[1] else [_Section(label[0])]
        elif not (last.is_bulleted and indent > last.indent) and not _CLOSING.match(content[:80].lower()):
            if last.is_bulleted:
                found.append(last := _Section())
            last.lines.append(content)
    return found


def _label(content: str) -> tuple[str, str] | None:
    """The label of a line and the rest behind it; None where it has no label."""
    plain = _HEADING.sub("", content, count=1)
    is_heading = plain != content or _BOLD_LINE.fullmatch(plain) is not None
    label, colon, behind = plain.replace("**", "").replace("：", ":").partition(":")
    if not colon:
        return (label.strip(), "") if is_heading else None
    is_item = _presence(behind) is not None and not _marked(_LIST, label)  # cat: yes
    is_label = label.strip() and len(label) <= 100 and not is_item and not behind.startswith("//")
    return (label.strip(), behind.strip()) if is_label else None


def _line(line: str) -> tuple[str, str, bool | None]:
    """The name in a line of a list, the explanation behind it, and its mark of presence."""
    name, *rest = _EXPLAINED.split(line.replace("**", ""), maxsplit=1)
    behind = rest[0].strip() if rest else ""
    mark = _presence(behind)
    name = name.strip(_EMPHASIS).rstrip(".。;；,， ").rstrip(_EMPHASIS)
    return name, "" if mark is not None else behind, mark
