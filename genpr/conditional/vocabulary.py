"""Vocabularies: which names mean the same entity, and where they occur in a text.

Names are compared in a normalized spelling: Unicode form (NFKC), case, white space, invisible characters, the variants of middle
dots, hyphens, apostrophes and quotes, and punctuation around a name make no difference. Plurals, accents, and simplified and
traditional Chinese do; an alias table says which of those are the same.
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
from genpr.limits import parse_json
from genpr.unicode_forms import normalize

_DOT = "·"
_VARIANTS = {_DOT: "・･•‧∙⋅●▪⸱\u0387", "-": "‐‑‒–—―−﹣－", "'": "‘’‚‛ʼ＇`´′", '"': "“”„‟＂″"}
_ONE_SPELLING = str.maketrans({c: one for one, others in _VARIANTS.items() for c in others})
_BEFORE = " \"'「『」』《〈【([{<*_~#·"
_AFTER = " \"'「『」』》〉】>*_~,.;:!?、。…·"
_BRACKETS = {")": "(", "]": "[", "}": "{"}
_UNSEEN = frozenset({"Cf", "Cc", "Cs"})  # zero-width and other format characters, controls, lone surrogates


def normalize_name(name: str) -> str:
    """The spelling by which two names are compared, without quotes and punctuation around it; empty where nothing is left.

    Example:
        >>> normalize_name("  Ｎeil\u00a0ARMSTRONG, ") == normalize_name("neil armstrong")
        True
    """
    return _normalize(name) if len(name) <= 200 else _normalize.__wrapped__(name)


@lru_cache(maxsize=2**16)  # the same names come with every image
def _normalize(name: str) -> str:
    begun = normalize_text(name).lstrip(_BEFORE)
    # A bracket that closes what the name itself opens stays.
    return begun.rstrip(_AFTER + "".join(end for end, start in _BRACKETS.items() if start not in begun))


def normalize_text(text: str) -> str:
    """The same for a running text, whose punctuation stays."""
    if text.isascii() and text.isprintable():
        return " ".join(text.translate(_ONE_SPELLING).lower().split())
    # Casefold may undo the composed form, and spacing accents decompose: both are mended by a second pass.
    folded = normalize("NFKC", normalize("NFKC", text.translate(_ONE_SPELLING)).casefold())
    seen = "".join(
        [c for c in folded if c.isprintable() or c.isspace() or unicodedata.category(c) not in _UNSEEN]
    )
    words = " ".join(seen.translate(_ONE_SPELLING).split())
    return words.replace(f" {_DOT}", _DOT).replace(f"{_DOT} ", _DOT)


# Thai to Burmese, jamo, Khmer, radicals, kana, Han, Hangul: written without spaces between words.
_UNSPACED = re.compile(
    "[\u0e00-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3000-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)


@lru_cache(maxsize=2**12)
def _is_of_word(c: str) -> bool:
    """Whether a character is of a word in a script that puts spaces between words."""
    return (unicodedata.category(c)[0] in "LNM" or c == "_") and _UNSPACED.match(c) is None


_SUFFIXES = re.compile(r"[+#]+")  # of C++ and C#


def _places_in_words(text: str) -> list[bool]:
    """Whether each place between two characters, from the start to the end of the text, is within a word."""
    is_of_word = [False, *map(_is_of_word, text), False]
    for suffix in _SUFFIXES.finditer(text):
        start, end = suffix.span()
        if is_of_word[start] and not is_of_word[end + 1]:
            is_of_word[start + 1 : end + 1] = [True] * (end - start)
    return [before and after for before, after in pairwise(is_of_word)]


_END = ""  # key of the entity in a node of the tree of names


@dataclass(frozen=True)
class Vocabulary:
    """Entities with their aliases; make one by `of` or `load`.

    Attributes:
        entities: Each once, as it was first written.
        by_name: Normalized name or alias -> entity.
        origin: Where it comes from, for people.

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
        """A vocabulary from a dictionary of entity -> aliases, or from names alone.

        Raises:
            DataError: A name stands for two entities ("alias-conflict"), an entity has no name, or a name is no text
                ("bad-vocabulary").
        """
        by_name: dict[str, str] = {}
        aliases = entities if isinstance(entities, Mapping) else dict.fromkeys(_names(entities, origin), ())
        # Entities first: an alias that is another's own name is a conflict, in whatever order they come.
        for entity in aliases:
            _enter(by_name, entity, entity, origin, repeats=not isinstance(entities, Mapping))
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
            UsageError: There is no such file.
            DataError: It is damaged or empty ("bad-vocabulary"), or as `of`.
        """
        return cls.of(_read_vocabulary(Path(path)), origin=str(path))

    def with_aliases(self, table: Vocabulary) -> Vocabulary:
        """The same entities, with the aliases that a table knows for them; what else is in the table stays out.

        Two entities that the table calls one are one from then on, by the name that the table gives them.

        Raises:
            DataError: The two disagree about a name ("alias-conflict").
        """
        aliases: dict[str, list[str]] = {}
        for name, entity in self.by_name.items():
            aliases.setdefault(table.by_name.get(normalize_name(entity), entity), []).append(name)
        for name, entity in table.by_name.items():
            if entity in aliases or name in self.by_name:
                aliases.setdefault(entity, []).append(name)
        return Vocabulary.of(aliases, origin=f"{self.origin} with {table.origin}")

    def canonical(self, name: str) -> str | None:
        """The entity that a name or an alias stands for; None if it is unknown."""
        return self.by_name.get(normalize_name(name))

    def find(self, text: str) -> tuple[str, ...]:
        """The entities that a text names, each once, in the order in which they come.

        Of names that overlap, the one that begins first counts, and of those the longest: in "New York Times" neither
        "New York" nor "Times" is found, if all three are known. Words count as a whole ("cat" is not in "category", "C" not
        in "C++"); Chinese, Japanese, Korean, Thai and others that are written without spaces are searched letter by letter.
        """
        found: dict[str, None] = {}
        text, position = normalize_text(text), 0
        is_within = _places_in_words(text)
        while position < len(text):
            node, place, end = None if is_within[position] else self._tree, position, position + 1
            entity = None
            while node is not None:
                if _END in node and not is_within[place]:
                    entity, end = node[_END], place
                node = node.get(text[place]) if place < len(text) else None
                place += 1
            if entity is not None:
                found[entity] = None
            position = end
        return tuple(found)

    @cached_property
    def _tree(self) -> dict[str, Any]:
        """Names as a tree of their characters."""
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
        raise _bad(origin, f"{short(repr(names))} is no list of names")
    return names


def _enter(by_name: dict[str, str], name: object, entity: str, origin: str, *, repeats: bool = True) -> None:
    """Add one name; the same one again is no harm, except where it is all that distinguishes entities."""
    key = normalize_name(name) if isinstance(name, str) else ""
    if not key:
        raise _bad(origin, f"{short(repr(name))} is no name")
    known = by_name.setdefault(key, entity)
    if known != entity and not (repeats and name == entity):
        names = " and ".join(repr(short(each, 60)) for each in (known, entity))
        message = f"{origin}: {short(str(name), 60)!r} stands for two entities, {names}"
        raise DataError(message, code="alias-conflict", path=origin)


def _bad(origin: str, why: str) -> DataError:
    message = (
        f"{origin} is no vocabulary: {short(why, 60)}; needed are names, or entities with lists of aliases"
    )
    return DataError(message, code="bad-vocabulary", path=origin)


def _read_vocabulary(path: Path) -> Any:  # noqa: ANN401 - checked by Vocabulary.of
    text, suffix = read_text(path, "a vocabulary"), path.suffix.lower()
    if suffix == ".json":
        try:
            found = parse_json(text)
        except ValueError as error:
            raise _bad(str(path), f"it is no JSON ({error})") from error
    elif suffix in {".csv", ".tsv"}:
        found = _from_csv(path, text)
    else:
        found = [line.strip() for line in text.splitlines() if line.strip()]
    if not found:
        raise _bad(str(path), "it holds no names")
    return found


def _from_csv(path: Path, text: str) -> dict[str, list[str]]:
    """An entity and its aliases per line; one entity may have several lines."""
    rows = [[cell.strip() for cell in row] for _, row in read_csv(text, str(path), delimiter_of(path))]
    if rows and (rows[0][0].lower() == "entity" or rows[0][1:2] in (["alias"], ["aliases"])):
        rows = rows[1:]
    aliases: dict[str, list[str]] = {}
    for entity, *others in rows:
        if entity or any(others):
            aliases.setdefault(entity, []).extend(alias for alias in others if alias)
    return aliases


Words = Vocabulary | str | os.PathLike[str] | Mapping[str, Sequence[str]] | Iterable[str]
"""A vocabulary, a file with one, a dictionary of entity -> aliases, or names."""


def as_vocabulary(words: Words, what: str) -> Vocabulary:
    """A vocabulary from what a user gave; `what` names it in messages."""
    if isinstance(words, Vocabulary):
        return words
    if isinstance(words, str | os.PathLike):
        return Vocabulary.load(words)
    return Vocabulary.of(words, origin=f"<{what}>")


def load_vocabulary(
    vocabulary: Words | None, aliases: Words | None
) -> tuple[Vocabulary | None, Vocabulary | None]:
    """The closed vocabulary, and the table of all names."""
    closed = None if vocabulary is None else as_vocabulary(vocabulary, "vocabulary")
    table = None if aliases is None else as_vocabulary(aliases, "aliases")
    if closed is None or table is None:
        return closed, table or closed
    closed = closed.with_aliases(table)
    return closed, closed


_COUNTED = re.compile(
    r"(?:an?|the|one|two|three|four|five|several|some|\d{1,3})\s+(\S.*)", re.IGNORECASE | re.DOTALL
)
_IN_BRACKETS = re.compile(r"([^()（）]+)[(（][^()（）]+[)）]")


class CanonicalNames:
    """Canonical names of entities: those of a table where it has them, else the first registered spelling."""

    def __init__(self, table: Vocabulary | None) -> None:
        self._entities = {} if table is None else dict(table.by_name)

    def get(self, name: str) -> str | None:
        """The entity that a name means; None if it is unknown."""
        return self._entities.get(normalize_name(name))

    def register(self, names: Iterable[str]) -> tuple[str, ...]:
        """The entities that expected names mean, each once; unknown names become entities."""
        found = [
            self._entities.setdefault(key, name.strip()) for name in names if (key := normalize_name(name))
        ]
        return tuple(dict.fromkeys(found))

    def match(self, names: Iterable[str]) -> tuple[str, ...]:
        """The entities that found names mean, each once; unknown names are normalized."""
        return tuple(dict.fromkeys(entity for name in names if (entity := self._match(name))))

    def _match(self, name: str) -> str:
        """`a cat`, `2 cat` and `cat (left)` are unknown names that mean a cat if that is known."""
        known = self.get(name)
        for form in (_COUNTED, _IN_BRACKETS):
            if known is None and (within := form.fullmatch(name.strip())):
                known = self.get(within[1])
        return known if known is not None else normalize_name(name)
