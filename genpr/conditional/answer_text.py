"""Lists of entities in plain text and Markdown: bullets, numbers, lines, or names with commas between."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from genpr.conditional.answer_json import MORE, InvalidJSONError, LenientJSONParser, names_in_json
from genpr.conditional.answer_words import (
    CLASS_KEYS,
    NAME_KEYS,
    AnswerParseError,
    begins_with_yes_or_no,
    brackets_at_end,
    check_count,
    is_closing,
    is_list_heading,
    is_negation,
    is_negative,
    is_no_answer,
    is_none,
    is_prose,
    is_refusal,
    is_remark,
    is_yes_or_no,
    mark_at_end,
    normalize_key,
    single_list,
    unique_names,
    without_etc,
)
from genpr.conditional.vocabulary import normalize_name

_BULLET = re.compile(
    r"(?:[•‣◦●▪■□○·・]|[-–—](?=[^\W\d]|[\s\"'“‘`\[*])|[*+](?=\s)|\(?\d{1,3}[.)](?!\d)|[a-zA-Z]\)(?=\s)|\d{1,3}[、．]|[（(]\d{1,3}[)）]|[①-⑳]"
    r"|[一二三四五六七八九十]{1,3}[、．.])\s*"
)
_COUNTED = re.compile(r"(\d{1,3})\s?[-–—:：]\s+")
_RULE = re.compile(r"[-*_=\s]+")
_HEADING = re.compile(r"^#{1,6}\s+")
_LONGEST_LABEL = 100


@dataclass
class Section:
    """A label and what follows it, or a piece of text without a label.

    Attributes:
        label: Without its colon and emphasis; None for none.
        behind: What stands on the same line.
        bullets: Items of the list that follows.
        texts: Other lines that follow.
        is_numbered: Whether the bullets are numbers.
    """

    label: str | None = None
    behind: str = ""
    bullets: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    is_numbered: bool = False

    @property
    def holds_anything(self) -> bool:
        """Whether it is more than a label."""
        return bool(self.behind or self.bullets or self.texts)

    @property
    def is_of_entities(self) -> bool:
        """Whether its label says that entities follow."""
        return self.label is not None and is_list_heading(self.label)

    @property
    def is_of_others(self) -> bool:
        """Whether its label says that explanations follow, or what is not there."""
        return self.label is not None and (is_negative(self.label) or is_remark(self.label))


def sections_of(text: str) -> list[Section]:
    """The sections of a text, in their order.

    Raises:
        AnswerParseError: Bullets lie within bullets ("nested-list"), or it is a table ("table").
    """
    found = [Section()]
    indent: int | None = None
    was_blank = False
    lines = text.splitlines()
    check_count(sum(1 for line in lines if not line.isspace()))
    counted = [int(number[1]) for line in lines if (number := _COUNTED.match(line))]
    is_counted = len(counted) > 1 and counted == [*range(1, len(counted) + 1)]  # 1 - cat
    for line in lines:
        content = line.strip()
        if not content or _RULE.fullmatch(content):
            was_blank = True
            continue
        if content.startswith("|") and content.endswith("|") and len(content) > 1:
            raise AnswerParseError("table", "it is a table, whose columns are not read")
        own_indent = len(line) - len(line.lstrip())
        if bullet := _BULLET.match(content) or (_COUNTED.match(line) if is_counted else None):
            if found[-1].texts:
                found.append(Section())
            if found[-1].bullets and own_indent != indent:
                raise AnswerParseError("nested-list", "it is a list within a list")
            indent = own_indent
            found[-1].bullets.append(content[bullet.end() :])
            found[-1].is_numbered = bullet[0].strip() not in {*"•‣◦●▪■□○·・-–—*+"}
        elif label := _label(content):
            found.append(Section(label[0], label[1]))
        elif found[-1].bullets and indent is not None and own_indent > indent:
            pass  # goes on about the item above
        else:
            if found[-1].bullets or found[-1].behind or (was_blank and found[-1].texts):
                found.append(Section())
            found[-1].texts.append(content)
        was_blank = False
    return _joined([section for section in found if section.label is not None or section.holds_anything])


def _joined(sections: list[Section]) -> list[Section]:
    """Sections in which names with blank lines between them are lines of one section."""
    found: list[Section] = []
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
    """The label of a line and what is behind it; None where it is no labelled line."""
    plain = _HEADING.sub("", content, count=1)
    is_heading = plain != content
    if (
        plain.startswith("**")
        and plain.endswith("**")
        and plain.count("**") == 2
        and ":" not in plain
        and "：" not in plain
    ):
        plain, is_heading = plain.strip("*"), True
    plain = plain.replace("**", "").replace("__", "")
    positions = [position for position in (plain.find(":"), plain.find("：")) if position >= 0]
    if not positions:
        return (plain.strip(), "") if is_heading else None
    position = min(positions)
    label, behind = plain[:position].strip(" *_#"), plain[position + 1 :].strip()
    is_label = label and len(label) <= _LONGEST_LABEL and not plain[position:].startswith("://")
    return (label, behind) if is_label else None


COMMAS = re.compile(r"[,，、;；|\n]|\s/\s")
_BOLD = re.compile(r"(\*\*|__|`)(?=\S)(.{1,200}?)(?<=\S)\1\s*(.*)", re.DOTALL)
_REST = re.compile(r"[\s:：=–—-]+")
_BEHIND = re.compile(r"[:：]|(?<=\s)[-–—]+(?=\s)|——|->|→|=>|(?<=\s)=(?=\s)")
_CHECK = re.compile(r"(\[[xX✓✔ ]?\]|[✓✔✅☑✗✘❌☒☐])\s*")
_INLINE = re.compile(r"\s[-–—•*+]\s|\s\d{1,3}[.)]\s")
_JOINTS = re.compile(r"\s(?:and|&)\s+|以及|[和与與及]", re.IGNORECASE)
_NUMBERED = re.compile(r"\s\d{1,3}[.)）、]\s|[(（]\d{1,3}[)）]\s*\S")
_OPENED, _CLOSED = re.compile(r"[(（]"), re.compile(r"[)）]")
_EITHER = re.compile(r"\s(?:and|or|&)\s|(?<=\w)[和或与與及](?=\w)", re.IGNORECASE)
EXPLAINED = "explanations left out"
EMPHASIS = "*_`\"'“”‘’「」『』 \t"

Known = Callable[[str], bool]
"""Whether there is such a name."""


def known_parts(item: str, known: Known) -> list[str]:
    """`salt and pepper` are two if both are known and the whole is not; else one."""
    parts = [part.strip() for part in _JOINTS.split(item)]
    return [item] if known(item) or not all(part and known(part) for part in parts) else parts


def names_in_lines(lines: list[str], repairs: list[str], known: Known | None) -> list[str]:
    """The names of a list of lines, without explanations behind them, and without those that are marked as not there."""
    if len(lines) > 1 and not without_etc([lines[-1].strip(EMPHASIS)]):
        lines = lines[:-1]
        repairs.append(MORE)
    read = [_item(line) for line in lines]
    if len(read) == 1 and is_none(read[0][0]):
        return []
    keys = {normalize_key(name) for name, *_ in read}
    if len(keys) == 1 and keys <= NAME_KEYS | CLASS_KEYS and all(behind for _, behind, *_ in read):
        read = [(behind.strip(EMPHASIS), "", mark, False) for _, behind, mark, _ in read]  # - name: cat
    marks = [mark for _, _, mark, _ in read]
    if any(mark is not None for mark in marks):
        if None in marks:
            raise AnswerParseError(
                "contradiction", "some items are marked as there or not, and others are not"
            )
        repairs.append("names with yes or no")
        read = [each for each in read if each[2]]
    shown = without_remarks([name for name, *_ in read], repairs, known)
    if read and not shown:
        raise AnswerParseError("no-list", "there is no list of names in it")
    read = [(name, *each[1:]) for name, each in zip(shown, read, strict=False)]
    explained = [bool(behind) for _, behind, _, is_bold in read if not is_bold]
    if any(explained) and not all(explained):
        raise AnswerParseError(
            "no-name", "some items have an explanation behind them, or a colon in their name"
        )
    for name, behind, mark, _ in read:
        if mark is None and behind and is_negative(behind):
            raise AnswerParseError(
                "contradiction", f"what is said about {name[:40]!r} may mean that it is not there"
            )
        if behind and name.isdecimal():
            raise AnswerParseError("no-name", f"{name!r} is a number, and no name")
        if _INLINE.search(behind) or (len(read) == 1 and len(behind.split()) == 1):
            raise AnswerParseError("several-in-one", "several items stand on one line")
        check_name(name, "or")
        if any(separator in name for separator in (", ", "，", "、", "；", "; ")):
            raise AnswerParseError(
                "several-in-one", "an item of the list may be several names, for it has a comma in it"
            )
    if any(behind for _, behind, _, _ in read):
        repairs.append(EXPLAINED)
    names = [name for name, *_ in read]
    return names if known is None else [part for name in names for part in known_parts(name, known)]


def _item(line: str) -> tuple[str, str, bool | None, bool]:
    """Its name, what is said about it, whether it is marked as there, and whether emphasis tells the name."""
    mark = None
    if check := _CHECK.match(line):
        mark = check[1] in {"[x]", "[X]", "[✓]", "[✔]", *"✓✔✅☑"}
        line = line[check.end() :]
    if bold := _BOLD.match(line):
        name, behind, is_bold = bold[2], bold[3], True
        behind = behind[begun.end() :] if (begun := _REST.match(behind)) else behind
    else:
        name, *rest = _BEHIND.split(line, maxsplit=1)
        name, behind, is_bold = name.rstrip(), rest[0].lstrip() if rest else "", False
    said = presence(behind) if behind else None
    if said is not None:
        mark, behind = said, ""
    name = name.strip(EMPHASIS + ":：").rstrip(".。;；,，").rstrip(EMPHASIS)
    if not behind and mark is None and brackets_at_end(name)[1].lstrip("0").isdecimal():
        name = brackets_at_end(name)[0]  # how many
    elif not behind and mark is None:
        name, mark, _ = mark_at_end(name)
    return name, behind.strip(), mark, is_bold


def presence(text: str) -> bool | None:
    """Whether something is there, by yes, no, or how often it is there; None where the text says something else."""
    return int(text) > 0 if text.isdecimal() and len(text) < 4 else begins_with_yes_or_no(text)


def without_remarks(items: list[str], repairs: list[str], known: Known | None) -> list[str]:
    """The names of items, without words for more and without explanations in brackets."""
    if not items or (known is not None and known(items[-1])):
        found = items
    else:
        found = without_etc(items)
        if found != items:
            repairs.append(MORE)
        elif (
            len(items) > 1
            and items[-1][1:].endswith("等")
            and not (known is not None and known(items[-1][:-1]))
        ):
            raise AnswerParseError("cut-off", "the last name may end with a word for more")
        elif len(items) > 1 and items[-1][1:].endswith("等"):
            found = [*items[:-1], items[-1][:-1]]
    bare = [_bare_name(name, known) for name in found]
    count = Counter(map(normalize_name, bare))
    names = [
        short if count[normalize_name(short)] == 1 else name for name, short in zip(found, bare, strict=True)
    ]
    if names != found:
        repairs.append(EXPLAINED)
    return names


def _bare_name(name: str, known: Known | None) -> str:
    """A name without an explanation in brackets behind it; as it is where the brackets may hold a name or several.

    Raises:
        AnswerParseError: The brackets may say that it is not there ("contradiction").
    """
    bare, within = brackets_at_end(name)
    if not within or (known is not None and (known(name) or known(within))):
        return name
    if (
        is_negative(within)
        or is_negation(within)
        or (begins_with_yes_or_no(within) is not None and not within.isdecimal())
    ):
        raise AnswerParseError("contradiction", f"{name[:40]!r} may say that something is not there")
    is_list = COMMAS.search(within) or _EITHER.search(within)
    return name if is_list or not any(c.isalpha() for c in bare) else bare


def check_name(name: str, joint: str) -> None:
    """Refuse what is no name."""
    if is_yes_or_no(name):
        raise AnswerParseError("no-list", f"{name[:40]!r} is an answer to a question, and no name")
    if is_prose(name):
        raise AnswerParseError("prose", "there is a sentence where a name should be")
    if joint and (found := _EITHER.search(name)) and joint in (found[0].strip().lower(), "and"):
        raise AnswerParseError("several-in-one", f"{name[:40]!r} may be one name or two")
    if is_negation(name):
        raise AnswerParseError("contradiction", f"{name[:40]!r} may say that something is not there")
    if any(mark in name for mark in "•*|\t") or _NUMBERED.search(name):
        raise AnswerParseError("several-in-one", f"{name[:40]!r} may be several names")
    is_torn = len(_OPENED.findall(name)) != len(_CLOSED.findall(name))
    if is_torn or not any(c.isalnum() for c in name) or any(mark in name for mark in "<>[]{}="):
        raise AnswerParseError("no-name", f"{name[:40]!r} is no name")


_ENDS = "。.!！"
_AND = re.compile(r"(?:and|&|以及)\s+|以及", re.IGNORECASE)
_BETWEEN = re.compile(r"\s(?:and|&)\s+", re.IGNORECASE)


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
        AnswerParseError: It lists none, or several lists, or what it lists cannot be told.
    """
    if is_none(text):
        return (), "a word for none"
    if is_refusal(text):
        raise AnswerParseError("refusal", "it is a refusal, and no list")
    sections = sections_of(_without_quote_marks(text))
    chosen = [section for section in sections if section.is_of_entities and section.holds_anything]
    if not chosen:
        chosen = _unlabelled(sections)
    readings = [_read(section, repairs, known, named=named) for section in chosen]
    one = single_list([names for names, _ in readings], "in the text")
    if one is None:
        raise AnswerParseError("no-list", "there is no list of names in it")
    return one, readings[0][1]


def _unlabelled(sections: list[Section]) -> list[Section]:
    """What may be the list where no label says so."""
    if any(section.is_of_entities for section in sections):
        raise AnswerParseError("cut-off", "a label announces a list, and nothing follows")
    candidates = [section for section in sections if not section.is_of_others]
    bulleted = [section for section in candidates if section.bullets]
    if bulleted:
        return bulleted
    if len(candidates) == len(sections) and all(
        section.label and section.behind and not section.texts for section in candidates
    ):
        marks = [presence(section.behind) for section in candidates]
        if len(candidates) > 1 and None not in marks:  # cat: yes
            return [Section(texts=[f"{section.label}: {section.behind}" for section in candidates])]
    candidates = [
        section for section in candidates if not (section.label is None and is_closing(section.texts[0]))
    ]
    if len(candidates) == 1 and candidates[0].label is None:
        return candidates
    if candidates:
        raise AnswerParseError("prose", "it is a text without a list of names")
    raise AnswerParseError("no-list", "it lists explanations, or what is not there, and nothing else")


def _read(
    section: Section, repairs: list[str], known: Known | None, *, named: bool
) -> tuple[tuple[str, ...], str]:
    if section.behind and section.bullets:
        raise AnswerParseError("several-lists", "a label is followed by names on its line, and by a list")
    if section.bullets:
        return unique_names(
            names_in_lines(section.bullets, repairs, known)
        ), "numbered list" if section.is_numbered else "bullet list"
    if section.behind:
        return _behind(section.behind, repairs, known), "names behind a label"
    if len(section.texts) > 1:
        return unique_names(names_in_lines(section.texts, repairs, known)), "lines"
    is_labelled = named or section.label is not None
    names = _separated(section.texts[0], repairs, known, is_labelled=is_labelled)
    if len(names) > 1 or is_labelled:
        return names, "names with commas between"
    if known is None or not names or not known(names[0]):
        what = (*names, section.texts[0])[0]
        raise AnswerParseError(
            "no-list", f"nothing tells whether {what[:40]!r} is a list of one name, or something else"
        )
    return names, "one name"


def _behind(text: str, repairs: list[str], known: Known | None) -> tuple[str, ...]:
    if is_none(text):
        return ()
    if text[0] in "[［【":
        loose = LenientJSONParser(text, repairs)
        try:
            value, end = loose.value_at(0, bare=True)
        except InvalidJSONError as error:
            raise error.as_parse_error("the list") from error
        names = names_in_json(value, lambda _, __: None, repairs) if not text[end:].strip(" .。") else None
        if names is None:
            raise AnswerParseError(
                "no-list", "behind the label, there is something else than a list of names"
            )
        return names
    return _separated(text, repairs, known, is_labelled=True)


def _separated(text: str, repairs: list[str], known: Known | None, *, is_labelled: bool) -> tuple[str, ...]:
    """Names in one line."""
    if is_none(text):
        return ()
    body = text.strip()
    dots = body[len(body.rstrip(".…")) :]
    if dots and body[: -len(dots)].rstrip()[-1:] in (",", "，", "、", ";", "；"):  # an item of its own
        body = body[: -len(dots)].rstrip()[:-1]
        repairs.append(MORE)
    elif not body.endswith("..."):
        body = body.rstrip(_ENDS)
    if body.endswith(("...", "…")):
        raise AnswerParseError("cut-off", "the list goes on with dots, so what else was in it is not known")
    if body[:1] in ("(", "（") and body[-1:] in (")", "）"):
        body = body[1:-1]
    items = [item.strip() for item in COMMAS.split(body)]
    if any('"' in item or "“" in item for item in items) and len(items) > 1:
        items = _quoted(body) or items
    items = [item for item in (item.strip(EMPHASIS) for item in items) if item]
    check_count(len(items))
    items = without_remarks(items, repairs, known)
    if len(items) > 1:
        items = _without_and(items, known)
    if known is not None:
        items = [part for item in items for part in known_parts(item, known)]
    for item in items:
        if known is None or not known(item):
            check_name(item, "and" if not is_labelled or len(items) == 1 else "")
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


def _without_and(items: list[str], known: Known | None) -> list[str]:
    """`a, b, and c` and `a, b and c` name three."""
    *others, last = items
    if known is not None and known(last):
        return items
    if begun := _AND.match(last):
        return [*others, last[begun.end() :]]
    parts = _BETWEEN.split(last)
    if len(parts) == 2 and not any(_BETWEEN.search(item) for item in others):
        return [*others, *map(str.strip, parts)]
    return items


def _without_quote_marks(text: str) -> str:
    """A text of which all lines are quoted, as it was before."""
    lines = text.splitlines()
    is_quoted = all(line.startswith(">") or not line.strip() for line in lines)
    return "\n".join(line.lstrip("> ") for line in lines) if is_quoted else text
