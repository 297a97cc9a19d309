"""Lists of entities in plain text and Markdown: bullets, numbers, lines, or names with commas between."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from genpr.conditional.answer_json import (
    EMPHASIS,
    MORE,
    InvalidJSONError,
    LenientJSONParser,
    add_repair,
    names_in_json,
)
from genpr.conditional.answer_words import (
    CLASS_KEYS,
    NAME_KEYS,
    AnswerParseError,
    brackets_at_end,
    check_count,
    first_yes_or_no,
    is_closing,
    is_denial,
    is_list_heading,
    is_negative,
    is_no_answer,
    is_none,
    is_prose,
    is_refusal,
    is_remark,
    is_yes_or_no,
    mark_at_end,
    normalize_key,
    presence_mark,
    single_list,
    unique_names,
    without_etc,
)
from genpr.conditional.vocabulary import normalize_name

Known = Callable[[str], bool]
"""Whether there is such a name."""

_BULLET = re.compile(
    r"(?:[•‣◦●▪■□○·・]|[-–—](?=[^\W\d]|[\s\"'“‘`\[*])|[*+](?=\s)|\(?\d{1,3}[.)](?!\d)|[a-zA-Z]\)(?=\s)|\d{1,3}[、．]|[①-⑳])\s*"
)
_RULE = re.compile(r"[-*_=\s]+")
_HEADING = re.compile(r"^#{1,6}\s+")
_SEPARATOR = re.compile(r"[,，、;；|\n]|\s/\s")
_BOLD = re.compile(r"(\*\*|__|`)(?=\S)(.{1,200}?)(?<=\S)\1[\s:：=–—-]*(.*)", re.DOTALL)
_EXPLANATION = re.compile(r"[:：]|(?<=\s)[-–—]+(?=\s)|——|->|→|=>|(?<=\s)=(?=\s)")
_CHECKBOX = re.compile(r"(\[[xX✓✔ ]?\]|[✓✔✅☑✗✘❌☒☐])\s*")
_AND = re.compile(r"\s(?:and|&)\s+|以及|[和与與及]", re.IGNORECASE)
_LAST_AND = re.compile(r"(?:(?:and|&|以及)\s+|以及)(.+)|(.+?)\s(?:and|&)\s+(.+)", re.IGNORECASE | re.DOTALL)
_EITHER = re.compile(r"\s(?:and|or|&)\s|(?<=\w)[和或与與及](?=\w)", re.IGNORECASE)
_SEVERAL = re.compile(r"[•*|\t]|\s\d{1,3}[.)）、]\s|[(（]\d{1,3}[)）]\s*\S")
_INLINE_ITEM = re.compile(r"\s[-–—•*+]\s|\s\d{1,3}[.)]\s")
_LONGEST_LABEL = 100
_EXPLAINED = "explanations left out"


@dataclass
class _Section:
    """A label and what follows it, or a piece of text without a label."""

    label: str | None = None
    behind: str = ""
    bullets: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    is_numbered: bool = False

    @property
    def has_content(self) -> bool:
        """Whether it is more than a label."""
        return bool(self.behind or self.bullets or self.texts)

    @property
    def is_of_entities(self) -> bool:
        """Whether its label says that entities follow."""
        return self.label is not None and is_list_heading(self.label)

    @property
    def is_of_others(self) -> bool:
        """Whether its label says that explanations or absent entities follow."""
        return self.label is not None and (is_negative(self.label) or is_remark(self.label))


def _sections(text: str) -> list[_Section]:
    """The sections of a text, in their order."""
    found = [_Section()]
    indent, was_blank = -1, False
    lines = text.splitlines()
    check_count(sum(1 for line in lines if not line.isspace()))
    for line in lines:
        content = line.strip()
        if not content or _RULE.fullmatch(content):
            was_blank = True
            continue
        if content.startswith("|") and content.endswith("|") and len(content) > 1:
            raise AnswerParseError("table", "it is a table, whose columns are not read")
        own_indent = len(line) - len(line.lstrip())
        last = found[-1]
        if bullet := _BULLET.match(content):
            if last.texts:
                found.append(last := _Section())
            if last.bullets and own_indent != indent:
                raise AnswerParseError("nested-list", "it is a list within a list")
            indent = own_indent
            last.bullets.append(content[bullet.end() :])
            last.is_numbered = bullet[0].strip()[-1] in ".)、．"
        elif label := _label(content):
            found.append(_Section(*label))
        elif not (last.bullets and own_indent > indent):  # else it continues the item above
            if last.bullets or last.behind or (was_blank and last.texts):
                found.append(last := _Section())
            last.texts.append(content)
        was_blank = False
    return _joined([section for section in found if section.label is not None or section.has_content])


def _joined(sections: list[_Section]) -> list[_Section]:
    """Sections in which names with blank lines between them are lines of one section."""
    found: list[_Section] = []
    is_open = False  # whether the last one holds single lines only
    for section in sections:
        is_line = len(section.texts) == 1 and not section.bullets and not section.behind
        if is_open and is_line and section.label is None and not is_prose(section.texts[0]):
            found[-1].texts += section.texts
        else:
            found.append(section)
            is_open = is_line
    return found


def _label(content: str) -> tuple[str, str] | None:
    """The label of a line and the rest behind it; None where it has no label."""
    plain = _HEADING.sub("", content, count=1)
    is_bold = plain.startswith("**") and plain.endswith("**") and plain.count("**") == 2
    is_heading = plain != content or (is_bold and not re.search("[:：]", plain))
    plain = plain.replace("**", "").replace("__", "")
    colon = re.search("[:：]", plain)
    if colon is None:
        return (plain.strip(), "") if is_heading else None
    label, behind = plain[: colon.start()].strip(" *_#"), plain[colon.end() :].strip()
    is_label = label and len(label) <= _LONGEST_LABEL and not behind.startswith("//")
    return (label, behind) if is_label else None


def names_in_text(
    text: str, repairs: list[str], known: Known | None = None, *, named: bool = False
) -> tuple[tuple[str, ...], str]:
    """The names that a text lists, and in which form.

    Args:
        text: Without code fences and JSON.
        repairs: Gets what was repaired.
        known: Whether there is such a name; a single one with nothing around it is a list of one only if it is known, for it
            may as well be an error message.
        named: Whether a key of JSON said before that this is the list.

    Raises:
        AnswerParseError: It lists none, or several lists, or is ambiguous.
    """
    if is_none(text):
        return (), "a word for none"
    if is_refusal(text):
        raise AnswerParseError("refusal", "it is a refusal, and no list")
    sections = _sections(text)
    chosen = [section for section in sections if section.is_of_entities and section.has_content]
    readings = [_read(each, repairs, known, named=named) for each in chosen or _without_label(sections)]
    one = single_list([names for names, _ in readings], "in the text")
    if one is None:
        raise AnswerParseError("no-list", "there is no list of names in it")
    return one, readings[0][1]


def _without_label(sections: list[_Section]) -> list[_Section]:
    """The sections that may hold the list where no label says so."""
    if any(section.is_of_entities for section in sections):
        raise AnswerParseError("cut-off", "a label announces a list, and nothing follows")
    others = [section for section in sections if not section.is_of_others]
    if bulleted := [section for section in others if section.bullets]:
        return bulleted
    is_all_marked = len(sections) > 1 and all(
        section.label and section.behind and not section.texts and presence_mark(section.behind) is not None
        for section in sections
    )
    if is_all_marked:  # cat: yes
        return [_Section(texts=[f"{section.label}: {section.behind}" for section in sections])]
    others = [section for section in others if section.label is not None or not is_closing(section.texts[0])]
    if len(others) == 1 and others[0].label is None:
        return others
    if others:
        raise AnswerParseError("prose", "it is a text without a list of names")
    raise AnswerParseError("no-list", "it lists explanations, or what is not there, and nothing else")


def _read(
    section: _Section, repairs: list[str], known: Known | None, *, named: bool
) -> tuple[tuple[str, ...], str]:
    if section.behind and section.bullets:
        raise AnswerParseError("several-lists", "a label is followed by names on its line, and by a list")
    if section.bullets:
        names = unique_names(_names_in_lines(section.bullets, repairs, known))
        return names, "numbered list" if section.is_numbered else "bullet list"
    if section.behind:
        return _behind_label(section.behind, repairs, known), "names behind a label"
    if len(section.texts) > 1:
        return unique_names(_names_in_lines(section.texts, repairs, known)), "lines"
    is_labeled = named or section.label is not None
    names = _separated(section.texts[0], repairs, known, is_labeled=is_labeled)
    if len(names) > 1 or is_labeled:
        return names, "names with commas between"
    if known is None or not names or not known(names[0]):
        raise AnswerParseError("no-list", f"{section.texts[0][:40]!r} may be a name or something else")
    return names, "one name"


@dataclass
class _Item:
    """A line of a list: its name, the explanation behind it, its mark of presence, and whether the name is in bold."""

    name: str
    behind: str
    mark: bool | None
    is_bold: bool = False


def _names_in_lines(lines: list[str], repairs: list[str], known: Known | None) -> list[str]:
    """The names of a list of lines, without explanations behind them, and without those marked as absent."""
    if len(lines) > 1 and not without_etc([lines[-1].strip(EMPHASIS)]):
        lines = lines[:-1]
        add_repair(repairs, MORE)
    items = [_item(line) for line in lines]
    if len(items) == 1 and is_none(items[0].name):
        return []
    keys = {normalize_key(item.name) for item in items}
    if len(keys) == 1 and keys <= NAME_KEYS | CLASS_KEYS and all(item.behind for item in items):
        items = [_Item(item.behind.strip(EMPHASIS), "", item.mark) for item in items]  # - name: cat
    marks = {item.mark for item in items}
    if marks != {None}:
        if None in marks:
            raise AnswerParseError(
                "contradiction", "some items are marked as there or not, and others are not"
            )
        add_repair(repairs, "names with yes or no")
        items = [item for item in items if item.mark]
    names = _without_remarks([item.name for item in items], repairs, known)
    if items and not names:
        raise AnswerParseError("no-list", "there is no list of names in it")
    items = items[: len(names)]
    if len({bool(item.behind) for item in items if not item.is_bold}) > 1:
        raise AnswerParseError(
            "no-name", "some items have an explanation behind them, or a colon in their name"
        )
    for name, item in zip(names, items, strict=True):
        _check_item(name, item, is_alone=len(items) == 1)
    if any(item.behind for item in items):
        add_repair(repairs, _EXPLAINED)
    return names if known is None else [part for name in names for part in _known_parts(name, known)]


def _check_item(name: str, item: _Item, *, is_alone: bool) -> None:
    if item.mark is None and item.behind and is_negative(item.behind):
        raise AnswerParseError("contradiction", f"{item.behind[:40]!r} may mean that {name[:40]!r} is absent")
    if item.behind and name.isdecimal():
        raise AnswerParseError("no-name", f"{name!r} is a number, and no name")
    if _INLINE_ITEM.search(item.behind) or (is_alone and len(item.behind.split()) == 1):
        raise AnswerParseError("several-in-one", "several items stand on one line")
    _check_name(name, "or")
    if any(separator in name for separator in (", ", "，", "、", "；", "; ")):
        raise AnswerParseError("several-in-one", "an item of the list has a comma in it")


def _item(line: str) -> _Item:
    mark, is_bold = None, False
    if box := _CHECKBOX.match(line):
        mark = box[1] in {"[x]", "[X]", "[✓]", "[✔]", *"✓✔✅☑"}
        line = line[box.end() :]
    if bold := _BOLD.match(line):
        name, behind, is_bold = bold[2], bold[3], True
    else:
        name, *rest = _EXPLANATION.split(line, maxsplit=1)
        name, behind = name.rstrip(), rest[0].lstrip() if rest else ""
    said = presence_mark(behind) if behind else None
    if said is not None:
        mark, behind = said, ""
    name = name.strip(EMPHASIS + ":：").rstrip(".。;；,，").rstrip(EMPHASIS)
    if not behind and mark is None:
        bare, within = brackets_at_end(name)
        name, mark = (bare, None) if within.lstrip("0").isdecimal() else mark_at_end(name)  # (2): a count
    return _Item(name, behind.strip(), mark, is_bold)


def _known_parts(item: str, known: Known) -> list[str]:
    """`salt and pepper` are two if both are known and the whole is not; else one."""
    parts = [part.strip() for part in _AND.split(item)]
    return [item] if known(item) or not all(part and known(part) for part in parts) else parts


def _without_remarks(names: list[str], repairs: list[str], known: Known | None) -> list[str]:
    """Names without words for more at their end and without explanations in brackets."""
    if not names:
        return names
    is_known = known if known is not None else lambda _: False
    kept, last = names, names[-1]
    if not is_known(last):
        kept = without_etc(names)
        if kept != names:
            add_repair(repairs, MORE)
        elif len(names) > 1 and len(last) > 1 and last.endswith("等"):
            if not is_known(last[:-1]):
                raise AnswerParseError("cut-off", "the last name may end with a word for more")
            kept = [*names[:-1], last[:-1]]
    bare = [_without_brackets(name, is_known) for name in kept]
    count = Counter(map(normalize_name, bare))
    found = [
        short if count[normalize_name(short)] == 1 else name for name, short in zip(kept, bare, strict=True)
    ]
    if found != kept:
        add_repair(repairs, _EXPLAINED)
    return found


def _without_brackets(name: str, known: Known) -> str:
    """A name without an explanation in brackets behind it; unchanged where the brackets may hold names."""
    bare, within = brackets_at_end(name)
    if not within or known(name) or known(within):
        return name
    is_marked = first_yes_or_no(within) is not None and not within.isdecimal()
    if is_marked or is_negative(within) or is_denial(within):
        raise AnswerParseError("contradiction", f"{name[:40]!r} may say that something is not there")
    is_list = _SEPARATOR.search(within) or _EITHER.search(within)
    return name if is_list or not any(c.isalpha() for c in bare) else bare


def _check_name(name: str, joint: str) -> None:
    """Refuse what is no name."""
    if is_yes_or_no(name):
        raise AnswerParseError("no-list", f"{name[:40]!r} is an answer to a question, and no name")
    if is_prose(name):
        raise AnswerParseError("prose", "there is a sentence where a name should be")
    if joint and (found := _EITHER.search(name)) and joint in (found[0].strip().lower(), "and"):
        raise AnswerParseError("several-in-one", f"{name[:40]!r} may be one name or two")
    if is_denial(name):
        raise AnswerParseError("contradiction", f"{name[:40]!r} may say that something is not there")
    if _SEVERAL.search(name):
        raise AnswerParseError("several-in-one", f"{name[:40]!r} may be several names")
    is_torn = len(re.findall("[(（]", name)) != len(re.findall("[)）]", name))
    if is_torn or not any(c.isalnum() for c in name) or any(mark in name for mark in "<>[]{}=「『【｛"):
        raise AnswerParseError("no-name", f"{name[:40]!r} is no name")


def _behind_label(text: str, repairs: list[str], known: Known | None) -> tuple[str, ...]:
    if is_none(text):
        return ()
    if text[0] != "[":
        return _separated(text, repairs, known, is_labeled=True)
    try:
        value, end = LenientJSONParser(text, repairs).value_at(0, bare=True)
    except InvalidJSONError as error:
        raise error.as_parse_error("the list") from error
    names = names_in_json(value, lambda _, __: None, repairs) if not text[end:].strip(" .。") else None
    if names is None:
        raise AnswerParseError("no-list", "the label is not followed by a list of names")
    return names


def _separated(text: str, repairs: list[str], known: Known | None, *, is_labeled: bool) -> tuple[str, ...]:
    """Names in one line."""
    body = text.strip()
    if is_none(body):
        return ()
    undotted = body.rstrip(".…").rstrip()
    if undotted != body and undotted.endswith((",", "，", "、", ";", "；")):  # dots as an item of their own
        body = undotted[:-1]
        add_repair(repairs, MORE)
    elif body.endswith("...") or body.rstrip("。.!！").endswith("…"):
        raise AnswerParseError("cut-off", "the list ends with dots, so what else was in it is not known")
    body = body.rstrip("。.!！")
    if body[:1] in ("(", "（") and body[-1:] in (")", "）"):
        body = body[1:-1]
    items = [item.strip() for item in _SEPARATOR.split(body)]
    if len(items) > 1 and any('"' in item or "“" in item for item in items):
        items = _quoted(body) or items
    items = [item for item in (item.strip(EMPHASIS) for item in items) if item]
    check_count(len(items))
    items = _without_remarks(items, repairs, known)
    if len(items) > 1 and not (known is not None and known(items[-1])):
        last = _LAST_AND.fullmatch(items[-1])
        if last is not None and last[1]:  # a, b, and c
            items = [*items[:-1], last[1]]
        elif last is not None and not any(_EITHER.search(item) for item in (*items[:-1], last[3])):
            items = [*items[:-1], last[2].strip(), last[3].strip()]
    if known is not None:
        items = [part for item in items for part in _known_parts(item, known)]
    for item in items:
        if known is None or not known(item):
            _check_name(item, "and" if not is_labeled or len(items) == 1 else "")
    if not items or (len(items) == 1 and is_no_answer(items[0])):
        raise AnswerParseError("no-list", "there is no list of names in it")
    return unique_names(items)


def _quoted(body: str) -> list[str] | None:
    """Names in quotes, which may hold commas; None where not all are."""
    try:
        value, end = LenientJSONParser(f"[{body}]", []).value_at(0)
    except InvalidJSONError:
        return None
    return value if end == len(body) + 2 and all(isinstance(item, str) for item in value) else None
