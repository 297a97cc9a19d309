"""What a word, key or label of an answer means: a list, an explanation, a refusal, yes, no or none."""

from __future__ import annotations

import re

from genpr.conditional.entities.normalise import normalised
from genpr.conditional.entities.word_lists import (
    CLOSINGS,
    DENIAL_PARTS,
    DENIALS,
    ENTITY_PARTS,
    ENTITY_WORDS,
    IMAGE_ENDS,
    INTRO_PARTS,
    INTRO_WORDS,
    NO,
    NO_ANSWERS,
    NONE,
    NOT_PARTS,
    NOT_WORDS,
    PRESENCE_KEYS,
    PRESENCE_PARTS,
    PROSE_PARTS,
    PROSE_WORDS,
    REFUSALS,
    REMARK_PARTS,
    REMARK_WORDS,
    YES,
)

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_FIRST = re.compile(r"([^\W\d]+|[✓✔✅☑√✗✘❌☒×])\s*(?:[,.;，。；(（–—-]|$)")
_TICKS = frozenset("✓✔✅☑✗✘❌☒")
_BRACKETS = re.compile(r"[(（]([^()（）]+)[)）]$")
_MORE = re.compile(
    r"(?:(?:^|\s)(?:etc\b|et cetera|(?:and|&)\s(?:so on|so forth|others|(?:many\s)?more|(?:many\s)?other\s\w+)|"
    r"among\sother(?:s|\sthings))|^(?:so on|others|more|many more)|等等)[\s.…。]*$|^[.…]+$",
    re.IGNORECASE,
)
_GAP = re.compile(r"[\s()（）,;:]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def squeezed(key: str) -> str:
    """A key without case, spaces, hyphens and underscores."""
    return normalised(key).replace(" ", "").replace("_", "").replace("-", "")


def _words(text: str) -> set[str]:
    return set(_WORD.findall(normalised(_CAMEL.sub(" ", text[:400])).replace("_", " ")))


def is_negative(text: str) -> bool:
    """Whether a key or label is of what is not there, or is not sure."""
    return bool(_words(text) & NOT_WORDS) or any(part in text for part in NOT_PARTS)


def is_remark(text: str) -> bool:
    """Whether a key or label is of explanations."""
    return bool(_words(text) & REMARK_WORDS) or any(part in text for part in REMARK_PARTS)


def rank_of_key(key: str) -> int | None:
    """How surely the list of entities stands under a key of JSON: 0 `found_entities`, 1 `entities`, 2 `found`; None not."""
    if is_negative(key) or is_remark(key):
        return None
    words = _words(key)
    is_entity = bool(words & ENTITY_WORDS) or any(part in key for part in ENTITY_PARTS)
    is_presence = bool(words & PRESENCE_KEYS) or any(part in key for part in PRESENCE_PARTS)
    if is_entity:
        return 0 if is_presence else 1
    return 2 if is_presence and len(words) <= 2 else None


def introduces(label: str) -> bool:
    """Whether what stands behind a label in plain text is the list of entities."""
    if is_negative(label) or is_remark(label):
        return False
    words = _words(label)
    found = words & (ENTITY_WORDS | INTRO_WORDS)
    return bool(found) or any(part in label for part in (*ENTITY_PARTS, *INTRO_PARTS))


def is_none(text: str) -> bool:
    """Whether a text says that there are no entities."""
    words = normalised(text)
    return words in NONE or next(
        (words.removesuffix(end) in NONE for end in IMAGE_ENDS if words.endswith(end)), False
    )


def yes_or_no(value: object) -> bool | None:
    """What a mark of presence says; None where it is no such mark."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, str):
        return None
    word = normalised(value) or value.strip()
    return True if word in YES else False if word in NO else None


def is_yes_or_no(name: str) -> bool:
    """Whether an item of a list answers a question; an object may be called present."""
    return normalised(name) in ("yes", "no", "true", "false", "是", "否", "有", "没有")


def denies(name: str) -> bool:
    """Whether an item of a list says that something is not there, or is not sure."""
    words = _GAP.split(normalised(name))  # forget-me-not is one
    return any(word in DENIALS for word in words) or any(part in name for part in DENIAL_PARTS)


def begins_with_yes_or_no(text: str) -> bool | None:
    """What a remark such as `no, it is hidden` says first; None where it says something else."""
    first = _FIRST.match(text.strip())
    return yes_or_no(text) if first is None else yes_or_no(first[1])


def mark_at_end(name: str) -> tuple[str, bool | None, str]:
    """A name without the mark or the brackets behind it, what these say, and what else stands in the brackets.

    Example:
        >>> mark_at_end("cat ✓"), mark_at_end("dog (no)"), mark_at_end("bird (left)")
        (('cat', True, ''), ('dog', False, ''), ('bird (left)', None, 'left'))
    """
    if name[-1:] in _TICKS:
        return name[:-1].rstrip(), yes_or_no(name[-1]), ""
    if (bracket := _BRACKETS.search(name)) is None:
        return name, None, ""
    said = begins_with_yes_or_no(bracket[1])
    return (name, None, bracket[1]) if said is None else (name[: bracket.start()].rstrip(), said, "")


def brackets_at_end(name: str) -> tuple[str, str]:
    """A name without the brackets behind it, and what stands in them; nothing where there are none."""
    bracket = _BRACKETS.search(name)
    return (name, "") if bracket is None else (name[: bracket.start()].rstrip(), bracket[1])


def without_more(names: list[str]) -> list[str]:
    """Names without the words at their end that say that there are more, such as "etc."."""
    if not names or (more := _MORE.search(names[-1])) is None:
        return names
    last = names[-1][: more.start()].rstrip()
    return [*names[:-1], last] if last else names[:-1]


def is_closing(text: str) -> bool:
    """Whether a text ends a conversation, such as "I hope this helps"."""
    return normalised(text[:80]).startswith(CLOSINGS)


def is_refusal(text: str) -> bool:
    """Whether a text begins as models do that refuse."""
    return normalised(text[:80]).startswith(REFUSALS)


def is_no_answer(text: str) -> bool:
    """Whether a single word is a mark of trouble, or an answer to another question."""
    return (normalised(text) or text.strip()) in NO_ANSWERS


def is_prose(text: str) -> bool:
    """Whether a piece of text is a sentence, or a part of one, and no name."""
    name = normalised(text)
    words = name.split()
    is_long = len(words) > 8 or len(name) > 80 or (len(words) == 1 and len(name) > 30)
    is_sentence = any(word in PROSE_WORDS for word in words) or any(part in name for part in PROSE_PARTS)
    return is_long or is_sentence or any(mark in name for mark in (". ", "! ", "? ", "。", "！", "？", "://"))
