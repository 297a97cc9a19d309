"""Lists in plain text and Markdown: bullets, numbers, lines, or names with commas between."""

from __future__ import annotations

import re

from genpr.conditional.entities.answer import NotReadable, check_number, each_once, the_same
from genpr.conditional.entities.items import (
    COMMAS,
    EMPHASIS,
    Known,
    check_name,
    known_parts,
    names_in_lines,
    presence,
    without_remarks,
)
from genpr.conditional.entities.lines import Section, sections_of
from genpr.conditional.entities.loose_json import DamagedJsonError, LooseJson
from genpr.conditional.entities.structure import MORE, names_in
from genpr.conditional.entities.words import is_closing, is_no_answer, is_none, is_refusal

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
        NotReadable: It lists none, or several lists, or what it lists cannot be told.
    """
    if is_none(text):
        return (), "a word for none"
    if is_refusal(text):
        raise NotReadable("refusal", "it is a refusal, and no list")
    sections = sections_of(_without_quote_marks(text))
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
        marks = [presence(section.behind) for section in own]
        if len(own) > 1 and None not in marks:  # cat: yes
            return [Section(texts=[f"{section.label}: {section.behind}" for section in own])]
    own = [section for section in own if not (section.label is None and is_closing(section.texts[0]))]
    if len(own) == 1 and own[0].label is None:
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
            names_in_lines(section.bullets, repairs, known)
        ), "numbered list" if section.is_numbered else "bullet list"
    if section.behind:
        return _behind(section.behind, repairs, known), "names behind a label"
    if len(section.texts) > 1:
        return each_once(names_in_lines(section.texts, repairs, known)), "lines"
    is_labelled = named or section.label is not None
    names = _separated(section.texts[0], repairs, known, is_labelled=is_labelled)
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
    return _separated(text, repairs, known, is_labelled=True)


def _damaged(error: DamagedJsonError) -> NotReadable:
    if error.at_end:
        return NotReadable("cut-off", "the list breaks off, so what else was in it is not known")
    return NotReadable("damaged", "the list is damaged, and could be mended in several ways")


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
        raise NotReadable("cut-off", "the list goes on with dots, so what else was in it is not known")
    if body[:1] in ("(", "（") and body[-1:] in (")", "）"):
        body = body[1:-1]
    items = [item.strip() for item in COMMAS.split(body)]
    if any('"' in item or "“" in item for item in items) and len(items) > 1:
        items = _quoted(body) or items
    items = [item for item in (item.strip(EMPHASIS) for item in items) if item]
    check_number(len(items))
    items = without_remarks(items, repairs, known)
    if len(items) > 1:
        items = _without_and(items, known)
    if known is not None:
        items = [part for item in items for part in known_parts(item, known)]
    for item in items:
        if known is None or not known(item):
            check_name(item, "and" if not is_labelled or len(items) == 1 else "")
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


def _without_quote_marks(text: str) -> str:
    """A text of which all lines are quoted, as it was before."""
    lines = text.splitlines()
    is_quoted = all(line.startswith(">") or not line.strip() for line in lines)
    return "\n".join(line.lstrip("> ") for line in lines) if is_quoted else text
