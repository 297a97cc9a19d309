"""Which retrieved texts are which expected ones, where there are no ids: texts in, ids out."""

from __future__ import annotations

import difflib
import unicodedata
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from genpr.errors import DataError, UsageError
from genpr.metrics.given import as_list, check_choice, is_number
from genpr.unicode_forms import normalize

Rule: TypeAlias = Literal["equal", "contains", "similar"]
Measure: TypeAlias = Literal["ratio", "token_f1"]

# Thai to Khmer, and everything from CJK radicals on but for Hangul: scripts that do not put spaces between words.
_UNSPACED = (
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x2E80, 0xABFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)


@dataclass(frozen=True, slots=True)
class MatchedTexts:
    """Ids for `retrieval_metrics`.

    Attributes:
        expected: 0, 1, ... for the expected texts.
        retrieved: For each retrieved text the number of the expected one that it is; -1, -2, ... where it is none.
    """

    expected: tuple[int, ...]
    retrieved: tuple[int, ...]


def match_texts(
    expected: Sequence[str],
    retrieved: Sequence[str],
    *,
    rule: Rule = "equal",
    measure: Measure = "ratio",
    threshold: float = 0.8,
) -> MatchedTexts:
    """Find out which retrieved text is which expected one; each is at most one.

    Texts are compared after Unicode's NFKC and case folding, without characters that have no width, runs of white
    space as one space. Where a text could be several, as many are matched as possible, earlier retrieved ones first.

    Args:
        expected: Texts that should be found, of one query. Equal ones are one text, given twice: an error.
        retrieved: Texts that were found, best first.
        rule: "equal"; "contains": the expected text is part of the retrieved one, and cuts through no word of it; or "similar".
        measure: Of similarity, from 0 to 1: "ratio" is difflib's, twice the number of characters in matching blocks over the
            number of all characters; "token_f1" the harmonic mean of the shares of words that the texts have in common,
            where each character is a word in scripts without spaces.
        threshold: Least similarity, above 0 and at most 1.

    Returns:
        Ids of both, for `retrieval_metrics`.

    Raises:
        UsageError: A rule, measure or threshold is impossible.
        DataError: Something is no text, or an expected text is empty or there twice ("bad-texts").

    Example:
        >>> match_texts(["A red fox", "Two owls"], ["three owls", "a  RED\u00a0fox"]).retrieved
        (-1, 0)
        >>> match_texts(["A red fox", "Two owls"], ["two owls, asleep"], rule="contains").retrieved
        (1,)
    """
    check_choice(
        rule, "rule", {"equal": "the same text", "contains": "part of it", "similar": "by a measure"}
    )
    check_choice(measure, "measure", {"ratio": "of characters", "token_f1": "of words"})
    if not is_number(threshold) or not 0 < threshold <= 1:
        raise UsageError(
            f"threshold must be above 0 and at most 1, not {threshold!r:.60}", code="bad-threshold"
        )
    wanted, found = _plain(expected, "expected"), _plain(retrieved, "retrieved")
    _check_expected(wanted)
    matches: Callable[[str, str], bool]
    if rule == "equal":
        matches = str.__eq__
    elif rule == "contains":
        matches = _is_part
    else:
        similar = _ratio_reaches if measure == "ratio" else _token_f1_reaches
        matches = lambda ours, theirs: similar(ours, theirs, threshold)  # noqa: E731
    options = [[at for at, text in enumerate(wanted) if matches(text, one)] if one else [] for one in found]
    of_retrieved = _matched(options)
    return MatchedTexts(
        tuple(range(len(wanted))),
        tuple(of_retrieved.get(place, -1 - place) for place in range(len(found))),
    )


def plain_text(text: str) -> str:
    """A text as it is compared: NFKC, case folded, without characters of no width, one space for white space."""
    seen = "".join(one for one in normalize("NFKC", text) if unicodedata.category(one) != "Cf")
    return " ".join(normalize("NFKC", normalize("NFKC", seen).casefold()).split())


def _plain(texts: Sequence[str], name: str) -> list[str]:
    try:
        listed: list[str] = as_list(texts)
    except TypeError as error:
        raise UsageError(f"{name} must be a list of texts: {error}", code="bad-texts") from error
    for at, text in enumerate(listed):
        if not isinstance(text, str):
            raise DataError(
                f"{name} must hold texts, but entry {at} is a {type(text).__name__}", code="bad-texts"
            )
    return [plain_text(text) for text in listed]


def _check_expected(texts: Sequence[str]) -> None:
    seen: dict[str, int] = {}
    for at, text in enumerate(texts):
        if not text:
            raise DataError(
                f"expected text {at} is empty (counted from 0), and matches nothing", code="bad-texts"
            )
        if text in seen:
            raise DataError(
                f"expected texts {seen[text]} and {at} are the same after normalization; give each once",
                code="bad-texts",
            )
        seen[text] = at


def _matched(options: Sequence[Sequence[int]]) -> dict[int, int]:
    """Which expected text each retrieved one is; earlier retrieved ones first, then as many as possible (Kuhn 1955)."""
    taken: dict[int, int] = {}
    for start in range(len(options)):
        came_from: dict[int, int] = {}
        queue = deque([start])
        while queue:
            place = queue.popleft()
            for option in options[place]:
                if option in came_from:
                    continue
                came_from[option] = place
                if option in taken:
                    queue.append(taken[option])
                    continue
                _move(taken, came_from, option, start)
                queue.clear()
                break
    return {place: option for option, place in taken.items()}


def _move(taken: dict[int, int], came_from: dict[int, int], option: int, start: int) -> None:
    """Give `option` to the text that asked for it, what that had to the one that asked for that, up to `start`."""
    has = {place: mine for mine, place in taken.items()}
    while True:
        place = came_from[option]
        taken[option] = place
        if place == start:
            return
        option = has[place]


def _is_part(part: str, whole: str) -> bool:
    at = whole.find(part)
    while at >= 0:
        end = at + len(part)
        if not (_one_word(whole[at - 1 : at], part[0]) or _one_word(part[-1], whole[end : end + 1])):
            return True
        at = whole.find(part, at + 1)
    return False


def _one_word(before: str, after: str) -> bool:
    """Whether two adjacent characters belong to one word."""
    return before.isalnum() and after.isalnum() and not (_is_unspaced(before) or _is_unspaced(after))


def _is_unspaced(character: str) -> bool:
    return any(low <= ord(character) <= high for low, high in _UNSPACED)


def _ratio_reaches(ours: str, theirs: str, threshold: float) -> bool:
    matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
    # Each is an upper bound of the next, and far quicker.
    return all(
        ratio() >= threshold for ratio in (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)
    )


def _token_f1_reaches(ours: str, theirs: str, threshold: float) -> bool:
    first, second = Counter(_tokens(ours)), Counter(_tokens(theirs))
    total = first.total() + second.total()
    return total > 0 and 2 * (first & second).total() >= threshold * total


def _tokens(text: str) -> list[str]:
    """Words without punctuation; single characters of scripts without spaces."""
    spaced = "".join(
        f" {one} " if _is_unspaced(one) else one if one.isalnum() or unicodedata.combining(one) else " "
        for one in text
    )
    return spaced.split()
