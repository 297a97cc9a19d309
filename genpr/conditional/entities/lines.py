"""Lines of an answer: bullets, labels with what stands behind them, and text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from genpr.conditional.entities.answer import NotReadable, check_number
from genpr.conditional.entities.words import introduces, is_negative, is_prose, is_remark

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
        return self.label is not None and introduces(self.label)

    @property
    def is_of_others(self) -> bool:
        """Whether its label says that explanations follow, or what is not there."""
        return self.label is not None and (is_negative(self.label) or is_remark(self.label))


def sections_of(text: str) -> list[Section]:
    """The sections of a text, in their order.

    Raises:
        NotReadable: Bullets lie within bullets ("nested-list"), or it is a table ("table").
    """
    found = [Section()]
    indent: int | None = None
    was_blank = False
    lines = text.splitlines()
    check_number(sum(1 for line in lines if not line.isspace()))
    counted = [int(number[1]) for line in lines if (number := _COUNTED.match(line))]
    is_counted = len(counted) > 1 and counted == [*range(1, len(counted) + 1)]  # 1 - cat
    for line in lines:
        content = line.strip()
        if not content or _RULE.fullmatch(content):
            was_blank = True
            continue
        if content.startswith("|") and content.endswith("|") and len(content) > 1:
            raise NotReadable("table", "it is a table, whose columns are not read")
        own_indent = len(line) - len(line.lstrip())
        if bullet := _BULLET.match(content) or (_COUNTED.match(line) if is_counted else None):
            if found[-1].texts:
                found.append(Section())
            if found[-1].bullets and own_indent != indent:
                raise NotReadable("nested-list", "it is a list within a list")
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
    places = [place for place in (plain.find(":"), plain.find("：")) if place >= 0]
    if not places:
        return (plain.strip(), "") if is_heading else None
    place = min(places)
    label, behind = plain[:place].strip(" *_#"), plain[place + 1 :].strip()
    is_label = label and len(label) <= _LONGEST_LABEL and not plain[place:].startswith("://")
    return (label, behind) if is_label else None
