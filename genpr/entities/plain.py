"""Lists in plain text and Markdown: bullets, numbers, lines, or names with commas between."""

from __future__ import annotations

import re
from collections.abc import Callable

from genpr.entities.answer import NotReadable, check_number, each_once, the_same
from genpr.entities.lines import Section, sections_of
from genpr.entities.loose_json import DamagedJsonError, LooseJson
from genpr.entities.structure import names_in
from genpr.entities.words import (
    begins_with_yes_or_no,
    denies,
    is_negative,
    is_no_answer,
    is_none,
    is_prose,
    is_refusal,
    mark_at_end,
)

_COMMAS = re.compile(r"[,，、;；|\n]|\s/\s")
_BOLD = re.compile(r"(\*\*|__|`)(?=\S)(.{1,200}?)(?<=\S)\1\s*(.*)", re.DOTALL)
_REST = re.compile(r"[\s:：=–—-]+")
_BEHIND = re.compile(r"[:：]|(?<=\s)[-–—]+(?=\s)|——|->|→|=>|(?<=\s)=(?=\s)")
_CHECK = re.compile(r"(\[[xX✓✔ ]?\]|[✓✔✅☑✗✘❌☒☐])\s*")
_EMPHASIS = "*_`\"'“”‘’「」『』 \t"
_ENDS = "。.!！"
_AND = re.compile(r"(?:and|&|以及)\s+|以及", re.IGNORECASE)
_BETWEEN = re.compile(r"\s(?:and|&)\s+", re.IGNORECASE)
_INLINE = re.compile(r"\s[-–—•*+]\s|\s\d{1,3}[.)]\s")
_JOINTS = re.compile(r"\s(?:and|&)\s+|以及|[和与與及]", re.IGNORECASE)
_NUMBERED = re.compile(r"\s\d{1,3}[.)）、]\s|[(（]\d{1,3}[)）]\s*\S")
_OPENED, _CLOSED = re.compile(r"[(（]"), re.compile(r"[)）]")
_EITHER = re.compile(r"\s(?:and|or|&)\s|(?<=\w)[和或与與及](?=\w)", re.IGNORECASE)


Known = Callable[[str], bool]
"""Whether there is such a name."""


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
        NotReadable: It lists none, or several lists, or what it lists cannot be told.
    """
    if is_none(text):
        return (), "a word for none"
    if is_refusal(text):
        raise NotReadable("refusal", "it is a refusal, and no list")
    sections = sections_of(text)
    chosen = [section for section in sections if section.is_of_entities and section.holds_anything]
    if not chosen:
        chosen = _unlabelled(sections)
    readings = [_read(section, repairs, known, named=named) for section in chosen]
    one = the_same([names for names, _ in readings], "in the text")
    if one is None:
        raise NotReadable("no-list", "there is no list of names in it")
    return one, readings[0][1]


def _unlabelled(sections: list[Section]) -> list[Section]:
    """What may be the list where no label says so."""
    if any(section.is_of_entities for section in sections):
        raise NotReadable("cut-off", "a label announces a list, and nothing follows")
    own = [section for section in sections if not section.is_of_others]
    bulleted = [section for section in own if section.bullets]
    if bulleted:
        return bulleted
    if len(own) == len(sections) and all(
        section.label and section.behind and not section.texts for section in own
    ):
        marks = [begins_with_yes_or_no(section.behind) for section in own]
        if len(own) > 1 and None not in marks:  # cat: yes
            return [Section(texts=[f"{section.label}: {section.behind}" for section in own])]
    if len(sections) == 1 and own and own[0].label is None:
        return own
    if own:
        raise NotReadable("prose", "it is a text without a list of names")
    raise NotReadable("no-list", "it lists explanations, or what is not there, and nothing else")


def _read(
    section: Section, repairs: list[str], known: Known | None, *, named: bool
) -> tuple[tuple[str, ...], str]:
    if section.behind and section.bullets:
        raise NotReadable("several-lists", "a label is followed by names on its line, and by a list")
    if section.bullets:
        return each_once(
            _items(section.bullets, repairs, known)
        ), "numbered list" if section.is_numbered else "bullet list"
    if section.behind:
        return _behind(section.behind, repairs, known), "names behind a label"
    if len(section.texts) > 1:
        return each_once(_items(section.texts, repairs, known)), "lines"
    is_labelled = named or section.label is not None
    names = _separated(section.texts[0], known, is_labelled=is_labelled)
    if len(names) > 1 or is_labelled:
        return names, "names with commas between"
    if known is None or not names or not known(names[0]):
        what = (*names, section.texts[0])[0]
        raise NotReadable(
            "no-list", f"nothing tells whether {what[:40]!r} is a list of one name, or something else"
        )
    return names, "one name"


def _behind(text: str, repairs: list[str], known: Known | None) -> tuple[str, ...]:
    if is_none(text):
        return ()
    if text[0] in "[［【":
        loose = LooseJson(text, repairs)
        try:
            value, end = loose.value_at(0, bare=True)
        except DamagedJsonError as error:
            raise _damaged(error) from error
        names = names_in(value, lambda _, __: None, repairs) if not text[end:].strip(" .。") else None
        if names is None:
            raise NotReadable("no-list", "behind the label, there is something else than a list of names")
        return names
    return _separated(text, known, is_labelled=True)


def _damaged(error: DamagedJsonError) -> NotReadable:
    if error.at_end:
        return NotReadable("cut-off", "the list breaks off, so what else was in it is not known")
    return NotReadable("damaged", "the list is damaged, and could be mended in several ways")


def _separated(text: str, known: Known | None, *, is_labelled: bool) -> tuple[str, ...]:
    """Names in one line."""
    if is_none(text):
        return ()
    body = text.strip().rstrip(_ENDS) if not text.rstrip().endswith("...") else text
    if body.endswith(("...", "…")):
        raise NotReadable("cut-off", "the list goes on with dots, so what else was in it is not known")
    if body[:1] in ("(", "（") and body[-1:] in (")", "）"):
        body = body[1:-1]
    items = [item.strip() for item in _COMMAS.split(body)]
    if any('"' in item or "“" in item for item in items) and len(items) > 1:
        items = _quoted(body) or items
    items = [item for item in (item.strip(_EMPHASIS) for item in items) if item]
    check_number(len(items))
    if len(items) > 1:
        items = _without_and(items, known)
    if known is not None:
        items = [part for item in items for part in _known_parts(item, known)]
    for item in items:
        if known is None or not known(item):
            _check_name(item, "and" if not is_labelled or len(items) == 1 else "")
    if not items or (len(items) == 1 and is_no_answer(items[0])):
        raise NotReadable("no-list", "there is no list of names in it")
    return each_once(items)


def _quoted(body: str) -> list[str] | None:
    """Names in quotes, which may hold commas; None where not all are."""
    try:
        value, end = LooseJson(f"[{body}]", []).value_at(0)
    except DamagedJsonError:
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


def _known_parts(item: str, known: Known) -> list[str]:
    """`salt and pepper` are two if both are known and the whole is not; else one."""
    parts = [part.strip() for part in _JOINTS.split(item)]
    return [item] if known(item) or not all(part and known(part) for part in parts) else parts


def _items(lines: list[str], repairs: list[str], known: Known | None) -> list[str]:
    """The names of a list of lines, without explanations behind them, and without those that are marked as not there."""
    read = [_item(line) for line in lines]
    if len(read) == 1 and is_none(read[0][0]):
        return []
    marks = [mark for _, _, mark, _ in read]
    if any(mark is not None for mark in marks):
        if None in marks:
            raise NotReadable("contradiction", "some items are marked as there or not, and others are not")
        repairs.append("names with yes or no")
        read = [each for each in read if each[2]]
    explained = [bool(behind) for _, behind, _, is_bold in read if not is_bold]
    if any(explained) and not all(explained):
        raise NotReadable("no-name", "some items have an explanation behind them, or a colon in their name")
    for name, behind, mark, _ in read:
        if mark is None and behind and is_negative(behind):
            raise NotReadable(
                "contradiction", f"what is said about {name[:40]!r} may mean that it is not there"
            )
        if _INLINE.search(behind) or (len(read) == 1 and len(behind.split()) == 1):
            raise NotReadable("several-in-one", "several items stand on one line")
        _check_name(name, "or")
        if any(separator in name for separator in (", ", "，", "、", "；", "; ")):
            raise NotReadable(
                "several-in-one", "an item of the list may be several names, for it has a comma in it"
            )
    if any(behind for _, behind, _, _ in read):
        repairs.append("explanations left out")
    names = [name for name, *_ in read]
    return names if known is None else [part for name in names for part in _known_parts(name, known)]


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
    said = begins_with_yes_or_no(behind) if behind else None
    if said is not None:
        mark, behind = said, ""
    name = name.strip(_EMPHASIS + ":：").rstrip(".。;；,，")
    if not behind and mark is None:
        name, mark, within = mark_at_end(name)
        if within and is_negative(within):
            raise NotReadable("contradiction", f"{name[:40]!r} may say that something is not there")
    return name, behind.strip(), mark, is_bold


def _check_name(name: str, joint: str) -> None:
    """Refuse what is no name."""
    if is_prose(name):
        raise NotReadable("prose", "there is a sentence where a name should be")
    if joint and (found := _EITHER.search(name)) and joint in (found[0].strip().lower(), "and"):
        raise NotReadable("several-in-one", f"{name[:40]!r} may be one name or two")
    if denies(name):
        raise NotReadable("contradiction", f"{name[:40]!r} may say that something is not there")
    if any(mark in name for mark in "•*|\t") or _NUMBERED.search(name):
        raise NotReadable("several-in-one", f"{name[:40]!r} may be several names")
    is_torn = len(_OPENED.findall(name)) != len(_CLOSED.findall(name))
    if is_torn or not any(c.isalnum() for c in name) or any(mark in name for mark in "<>[]{}="):
        raise NotReadable("no-name", f"{name[:40]!r} is no name")
