"""The names of items of a list in plain text, without marks and explanations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from genpr.conditional.entities.answer import NotReadable
from genpr.conditional.entities.normalise import normalised
from genpr.conditional.entities.structure import MORE
from genpr.conditional.entities.word_lists import CLASS_KEYS, NAME_KEYS
from genpr.conditional.entities.words import (
    begins_with_yes_or_no,
    brackets_at_end,
    denies,
    is_negative,
    is_none,
    is_prose,
    is_yes_or_no,
    mark_at_end,
    squeezed,
    without_more,
)

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
    if len(lines) > 1 and not without_more([lines[-1].strip(EMPHASIS)]):
        lines = lines[:-1]
        repairs.append(MORE)
    read = [_item(line) for line in lines]
    if len(read) == 1 and is_none(read[0][0]):
        return []
    keys = {squeezed(name) for name, *_ in read}
    if len(keys) == 1 and keys <= NAME_KEYS | CLASS_KEYS and all(behind for _, behind, *_ in read):
        read = [(behind.strip(EMPHASIS), "", mark, False) for _, behind, mark, _ in read]  # - name: cat
    marks = [mark for _, _, mark, _ in read]
    if any(mark is not None for mark in marks):
        if None in marks:
            raise NotReadable("contradiction", "some items are marked as there or not, and others are not")
        repairs.append("names with yes or no")
        read = [each for each in read if each[2]]
    shown = without_remarks([name for name, *_ in read], repairs, known)
    if read and not shown:
        raise NotReadable("no-list", "there is no list of names in it")
    read = [(name, *each[1:]) for name, each in zip(shown, read, strict=False)]
    explained = [bool(behind) for _, behind, _, is_bold in read if not is_bold]
    if any(explained) and not all(explained):
        raise NotReadable("no-name", "some items have an explanation behind them, or a colon in their name")
    for name, behind, mark, _ in read:
        if mark is None and behind and is_negative(behind):
            raise NotReadable(
                "contradiction", f"what is said about {name[:40]!r} may mean that it is not there"
            )
        if behind and name.isdecimal():
            raise NotReadable("no-name", f"{name!r} is a number, and no name")
        if _INLINE.search(behind) or (len(read) == 1 and len(behind.split()) == 1):
            raise NotReadable("several-in-one", "several items stand on one line")
        check_name(name, "or")
        if any(separator in name for separator in (", ", "，", "、", "；", "; ")):
            raise NotReadable(
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
        found = without_more(items)
        if found != items:
            repairs.append(MORE)
        elif (
            len(items) > 1
            and items[-1][1:].endswith("等")
            and not (known is not None and known(items[-1][:-1]))
        ):
            raise NotReadable("cut-off", "the last name may end with a word for more")
        elif len(items) > 1 and items[-1][1:].endswith("等"):
            found = [*items[:-1], items[-1][:-1]]
    bare = [_bare_name(name, known) for name in found]
    count = Counter(map(normalised, bare))
    names = [
        short if count[normalised(short)] == 1 else name for name, short in zip(found, bare, strict=True)
    ]
    if names != found:
        repairs.append(EXPLAINED)
    return names


def _bare_name(name: str, known: Known | None) -> str:
    """A name without an explanation in brackets behind it; as it is where the brackets may hold a name or several.

    Raises:
        NotReadable: The brackets may say that it is not there ("contradiction").
    """
    bare, within = brackets_at_end(name)
    if not within or (known is not None and (known(name) or known(within))):
        return name
    if (
        is_negative(within)
        or denies(within)
        or (begins_with_yes_or_no(within) is not None and not within.isdecimal())
    ):
        raise NotReadable("contradiction", f"{name[:40]!r} may say that something is not there")
    is_list = COMMAS.search(within) or _EITHER.search(within)
    return name if is_list or not any(c.isalpha() for c in bare) else bare


def check_name(name: str, joint: str) -> None:
    """Refuse what is no name."""
    if is_yes_or_no(name):
        raise NotReadable("no-list", f"{name[:40]!r} is an answer to a question, and no name")
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
