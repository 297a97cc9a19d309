"""One spelling for all spellings of a name that differ in nothing but how they were typed.

What is made alike: Unicode forms (NFKC: full-width letters, ligatures, composed accents), upper and lower case
(casefold), white space, characters that nobody sees, the many middle dots, hyphens, apostrophes and quotes, and
quotes or punctuation around a name.

What is not, because it would need knowledge of the language: simplified and traditional Chinese (体, 體), singular and
plural, accents (resume, résumé), a middle dot that was left out. An alias table says what is one.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from genpr.unicode_forms import normalize

_MIDDLE_DOT = "·"
_LONGEST_NAME = 200
# Katakana's dot in both widths, bullets, hyphenation point, operators, Greek ano teleia.
_ONE_SPELLING = str.maketrans(
    {
        **dict.fromkeys("・･•‧∙⋅●▪⸱・\u0387", _MIDDLE_DOT),
        **dict.fromkeys("‐‑‒–—―−﹣－", "-"),
        **dict.fromkeys("‘’‚‛ʼ＇`´′", "'"),
        **dict.fromkeys("“”„‟＂″", '"'),
    }
)
_BEFORE = " \"'「『」』《〈【([{<*_~#·"
_AFTER = " \"'「『」』》〉】>*_~,.;:!?、。…·"
_BRACKETS = {")": "(", "]": "[", "}": "{"}
# Format characters such as the zero-width ones, controls, lone surrogates.
_UNSEEN = frozenset({"Cf", "Cc", "Cs"})


def normalised(name: str) -> str:
    """The spelling by which two names are compared; empty where nothing is left.

    Example:
        >>> normalised("  Ｎeil\u00a0ARMSTRONG, ") == normalised("neil armstrong")
        True
        >>> normalised("尼尔・阿姆斯特朗") == normalised("尼尔 • 阿姆斯特朗")
        True
    """
    return _of_name(name) if len(name) <= _LONGEST_NAME else _bare(normalised_text(name))


@lru_cache(maxsize=2**16)  # the same names come with every image
def _of_name(name: str) -> str:
    return _bare(normalised_text(name))


def normalised_text(text: str) -> str:
    """The same for a running text, whose punctuation stays."""
    if text.isascii() and text.isprintable():
        return " ".join(text.translate(_ONE_SPELLING).lower().split())
    # Casefold may undo the composed form, and spacing accents decompose: both are mended by a second pass.
    folded = normalize("NFKC", normalize("NFKC", text.translate(_ONE_SPELLING)).casefold())
    seen = "".join(
        [c for c in folded if c.isprintable() or c.isspace() or unicodedata.category(c) not in _UNSEEN]
    )
    words = " ".join(seen.translate(_ONE_SPELLING).split())
    return words.replace(f" {_MIDDLE_DOT}", _MIDDLE_DOT).replace(f"{_MIDDLE_DOT} ", _MIDDLE_DOT)


def _bare(name: str) -> str:
    """Without quotes and punctuation around it; a bracket that closes what the name itself opens stays."""
    begun = name.lstrip(_BEFORE)
    unopened = "".join(end for end, start in _BRACKETS.items() if start not in begun)
    return begun.rstrip(_AFTER + unopened)
