"""Vocabularies: entities with their aliases, and the search for them in texts.

Names are compared in a normalized spelling, independent of Unicode form (NFKC), case, white space, invisible characters, the
variants of middle dots, hyphens, apostrophes and quotes, and punctuation around a name. Plurals, accents, and simplified and
traditional Chinese are different spellings, for which aliases can be defined.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from genpr.errors import DataError, short
from genpr.evaluation.tables import delimiter_of, read_csv, read_text
from genpr.limits import parse_json, unique_keys
from genpr.unicode_forms import normalize

_DOT = "·"
_VARIANTS = {_DOT: "・･•‧∙⋅●▪⸱\u0387", "-": "‐‑‒–—―−﹣－", "'": "‘’‚‛ʼ＇`´′", '"': "“”„‟＂″"}
_ONE_SPELLING = str.maketrans({c: one for one, others in _VARIANTS.items() for c in others})
_BEFORE = " \"'「『」』《〈【([{<*_~#·"
_AFTER = " \"'「『」』》〉】>*_~,.;:!?、。…·"
_BRACKETS = {")": "(", "]": "[", "}": "{"}
_UNSEEN = frozenset({"Cf", "Cc", "Cs"})  # zero-width and other format characters, controls, lone surrogates


def normalize_name(name: str) -> str:
    """The normalized spelling of a name, without quotes and punctuation around it; may be empty.

    Example:
        >>> normalize_name("  Ｎeil\u00a0ARMSTRONG, ") == normalize_name("neil armstrong")
        True
    """
    return _normalize(name) if len(name) <= 200 else _normalize.__wrapped__(name)


@lru_cache(maxsize=2**16)  # names repeat for every image
def _normalize(name: str) -> str:
    begun = normalize_text(name).lstrip(_BEFORE)
    # Keep a closing bracket whose opening bracket is in the name.
    return begun.rstrip(_AFTER + "".join(end for end, start in _BRACKETS.items() if start not in begun))


def normalize_text(text: str) -> str:
    """Normalize a text like a name, but keep its punctuation."""
    if text.isascii() and text.isprintable():
        return " ".join(text.translate(_ONE_SPELLING).lower().split())
    # Casefolding may decompose characters again, so a second pass is needed.
    folded = normalize("NFKC", normalize("NFKC", text.translate(_ONE_SPELLING)).casefold())
    seen = "".join(
        [c for c in folded if c.isprintable() or c.isspace() or unicodedata.category(c) not in _UNSEEN]
    )
    words = " ".join(seen.translate(_ONE_SPELLING).split())
    return words.replace(f" {_DOT}", _DOT).replace(f"{_DOT} ", _DOT)


# Scripts without spaces between words: Thai to Burmese, jamo, Khmer, radicals, kana, Han, Hangul.
_UNSPACED = re.compile(
    "[\u0e00-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3000-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)


@lru_cache(maxsize=2**12)
def _is_of_word(c: str) -> bool:
    """Whether a character is part of a word in a script with spaces between words."""
    return (unicodedata.category(c)[0] in "LNM" or c == "_") and _UNSPACED.match(c) is None


_SUFFIXES = re.compile(r"[+#]+")  # of C++ and C#


def _positions_in_words(text: str) -> list[bool]:
    """Whether each position between two characters, from the start to the end of the text, is within a word."""
    is_of_word = [False, *map(_is_of_word, text), False]
    for suffix in _SUFFIXES.finditer(text):
        start, end = suffix.span()
        if is_of_word[start] and not is_of_word[end + 1]:
            is_of_word[start + 1 : end + 1] = [True] * (end - start)
    return [before and after for before, after in pairwise(is_of_word)]


_END = ""  # key of the entity in a node of the trie


@dataclass(frozen=True)
class Vocabulary:
    """Entities with their aliases, created by `of` or `load`.

    Attributes:
        entities: Unique entities in their first spelling.
        by_name: Normalized name or alias -> entity.
        origin: Name of the source, for messages.

    Example:
        >>> people = Vocabulary.of({"尼尔·阿姆斯特朗": ["阿姆斯特朗", "Neil Armstrong"], "Buzz Aldrin": []})
        >>> people.find("阿姆斯特朗 and NEIL ARMSTRONG were one man")
        ('尼尔·阿姆斯特朗',)
        >>> people.canonical("buzz  aldrin")
        'Buzz Aldrin'
    """

    entities: tuple[str, ...]
    by_name: Mapping[str, str]
    origin: str = "<vocabulary>"

    @classmethod
    def of(
        cls, entities: Mapping[str, Sequence[str]] | Iterable[str], *, origin: str = "<vocabulary>"
    ) -> Vocabulary:
        """A vocabulary from a dictionary of entity -> aliases, or from names.

        Raises:
            DataError: A name is that of two entities ("alias-conflict"), an entity has no name, or a name is not a text
                ("bad-vocabulary").
        """
        by_name: dict[str, str] = {}
        aliases: Mapping[str, Sequence[str]] = entities if isinstance(entities, Mapping) else {}
        # Entities first, so that an alias that is the name of another entity is a conflict in any order.
        for entity in _names(entities, origin):
            _enter(by_name, entity, entity, origin, repeats=not aliases)
        for entity, others in aliases.items():
            for alias in _names(others, origin):
                _enter(by_name, alias, by_name[normalize_name(entity)], origin)
        return cls(tuple(dict.fromkeys(by_name.values())), by_name, origin)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Vocabulary:
        """Read a file.

        It is a `.csv` or `.tsv` with an entity and its aliases per line, a `.json` with `{"entity": ["alias", ...]}` or a list of
        names, or any other text with a name per line.

        Raises:
            UsageError: The file does not exist.
            DataError: The file is damaged or empty ("bad-vocabulary"), or as for `of`.
        """
        return cls.of(_read_vocabulary(Path(path)), origin=str(path))

    def canonical(self, name: str) -> str | None:
        """The entity of a name or an alias; None if it is unknown."""
        return self.by_name.get(normalize_name(name))

    def find(self, text: str) -> tuple[str, ...]:
        """The entities in a text, without duplicates, in the order of their first occurrence.

        Of overlapping names, the first one counts, and of those the longest: in "New York Times" neither "New York" nor
        "Times" is found, if all three are known. Only whole words match ("cat" is not in "category", "C" not in "C++");
        in scripts without spaces, such as Chinese, Japanese, Korean and Thai, names match anywhere.
        """
        found: dict[str, None] = {}
        text, position = normalize_text(text), 0
        is_within = _positions_in_words(text)
        while position < len(text):
            node, at, end = None if is_within[position] else self._tree, position, position + 1
            entity = None
            while node is not None:
                if _END in node and not is_within[at]:
                    entity, end = node[_END], at
                node = node.get(text[at]) if at < len(text) else None
                at += 1
            if entity is not None:
                found[entity] = None
            position = end
        return tuple(found)

    @cached_property
    def _tree(self) -> dict[str, Any]:
        """Names as a trie of characters."""
        root: dict[str, Any] = {}
        for name, entity in self.by_name.items():
            node = root
            for c in name:
                node = node.setdefault(c, {})
            node[_END] = entity
        return root

    def __len__(self) -> int:
        return len(self.entities)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entities)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and normalize_name(name) in self.by_name


def _names(names: object, origin: str) -> Iterable[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise _bad(origin, f"{short(repr(names))} is not a list of names")
    return names


def _enter(by_name: dict[str, str], name: object, entity: str, origin: str, *, repeats: bool = True) -> None:
    """Add one name; repetitions are allowed unless they are the names of different entities."""
    key = normalize_name(name) if isinstance(name, str) else ""
    if not key:
        raise _bad(origin, f"{short(repr(name))} is not a name")
    known = by_name.setdefault(key, entity)
    if known != entity and not (repeats and name == entity):
        names = " and ".join(repr(short(each, 60)) for each in (known, entity))
        message = f"{origin}: {short(str(name), 60)!r} is a name of two entities, {names}"
        raise DataError(message, code="alias-conflict", path=origin)


def _bad(origin: str, why: str) -> DataError:
    message = (
        f"{origin} is not a vocabulary: {short(why, 60)}; expected names, or entities with lists of aliases"
    )
    return DataError(message, code="bad-vocabulary", path=origin)


def _read_vocabulary(path: Path) -> Any:  # noqa: ANN401 - checked by Vocabulary.of
    text, suffix = read_text(path, "a vocabulary"), path.suffix.lower()
    if suffix == ".json":
        try:
            found = parse_json(text, pairs=unique_keys)
        except ValueError as error:
            raise _bad(str(path), f"it is not valid JSON ({error})") from error
    elif suffix in {".csv", ".tsv"}:
        rows = [[cell.strip() for cell in row] for _, row in read_csv(text, str(path), delimiter_of(path))]
        if rows and (rows[0][0].lower() == "entity" or rows[0][1:2] in (["alias"], ["aliases"])):
            rows = rows[1:]
        found = dict[str, list[str]]()  # one entity may have several lines
        for entity, *others in rows:
            if entity or any(others):
                found.setdefault(entity, []).extend(alias for alias in others if alias)
    else:
        found = [line.strip() for line in text.splitlines() if line.strip()]
    if not found:
        raise _bad(str(path), "it has no names")
    return found


Words = Vocabulary | str | os.PathLike[str] | Mapping[str, Sequence[str]] | Iterable[str]
"""A vocabulary, a file with one, a dictionary of entity -> aliases, or names."""


def as_vocabulary(words: Words, what: str) -> Vocabulary:
    """A vocabulary from the argument `what` of a user."""
    if isinstance(words, Vocabulary):
        return words
    if isinstance(words, str | os.PathLike):
        return Vocabulary.load(words)
    return Vocabulary.of(words, origin=f"<{what}>")


class CanonicalNames(dict[str, str]):
    """Entities by normalized name: those of a vocabulary, and others in the spelling that is registered first."""

    def __init__(self, vocabulary: Vocabulary | None) -> None:
        super().__init__({} if vocabulary is None else vocabulary.by_name)

    def register(self, names: Iterable[str]) -> tuple[str, ...]:
        """The entities of expected names, without duplicates; unknown names become entities."""
        found = [self.setdefault(key, name.strip()) for name in names if (key := normalize_name(name))]
        return tuple(dict.fromkeys(found))

    def match(self, names: Iterable[str]) -> tuple[str, ...]:
        """The entities of found names, without duplicates; unknown names are normalized."""
        keys = filter(None, map(normalize_name, names))
        return tuple(dict.fromkeys(self.get(key, key) for key in keys))
