"""Vocabularies: which names mean the same entity, and where they occur in a text.

Names are compared in a normalized spelling. It unifies Unicode forms (NFKC: full-width letters, ligatures, composed accents),
upper and lower case (casefold), white space, invisible characters, the variants of middle dots, hyphens, apostrophes and
quotes, and quotes or punctuation around a name. It does not unify what needs knowledge of the language: simplified and
traditional Chinese (体, 體), singular and plural, accents (resume, résumé), a middle dot that was left out. An alias table
states which of those are the same.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from genpr.errors import DataError, UsageError, short
from genpr.evaluation.tables import delimiter_of, read_csv, read_text
from genpr.limits import parse_json
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


def normalize_name(name: str) -> str:
    """The spelling by which two names are compared; empty where nothing is left.

    Example:
        >>> normalize_name("  Ｎeil\u00a0ARMSTRONG, ") == normalize_name("neil armstrong")
        True
        >>> normalize_name("尼尔・阿姆斯特朗") == normalize_name("尼尔 • 阿姆斯特朗")
        True
    """
    return _normalize_short(name) if len(name) <= _LONGEST_NAME else _bare(normalize_text(name))


@lru_cache(maxsize=2**16)  # the same names come with every image
def _normalize_short(name: str) -> str:
    return _bare(normalize_text(name))


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
    return words.replace(f" {_MIDDLE_DOT}", _MIDDLE_DOT).replace(f"{_MIDDLE_DOT} ", _MIDDLE_DOT)


def _bare(name: str) -> str:
    """Without quotes and punctuation around it; a bracket that closes what the name itself opens stays."""
    begun = name.lstrip(_BEFORE)
    unopened = "".join(end for end, start in _BRACKETS.items() if start not in begun)
    return begun.rstrip(_AFTER + unopened)


_EDGE = "\x00"  # normalized texts hold no control characters
_UNSPACED = (
    *((0x0E00, 0x0EFF), (0x0F00, 0x109F), (0x1780, 0x17FF)),  # Thai, Lao; Tibetan, Burmese; Khmer
    *((0x1100, 0x11FF), (0x2E80, 0x2FDF), (0x3000, 0x30FF), (0x3100, 0x9FFF)),  # jamo, radicals, kana, Han
    *((0xAC00, 0xD7FF), (0xF900, 0xFAFF), (0xFF66, 0xFFDC), (0x1B000, 0x1B16F), (0x20000, 0x3FFFF)),
)
_NONE, _OTHER, _SUFFIX, _WORD = range(4)
_SUFFIXES = "+#"  # of C++ and C#


class NameMatcher:
    """Finds all names of a vocabulary in a text, in time that grows with the text alone.

    It is the automaton of Aho and Corasick 1975, "Efficient String Matching: An Aid to Bibliographic Search", run from the end
    of the text to its start: the state at a character then tells the longest name that begins there.

    "cat" is not in "category": a mark is set where a word begins and where it ends, in the names and in the text, and a name is
    found only with its marks. Scripts that are written without spaces get no marks.

    Args:
        names: Normalized name -> whatever it stands for; empty names are no names.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._entities: list[str] = []
        self._next: dict[tuple[int, str], int] = {}
        self._ends: list[tuple[int, int] | None] = [
            None
        ]  # by state: length and entity of the name that it is
        for name, entity in names.items():
            self._add(mark_word_edges(name), entity)
        self._fall, self._longest = self._links()

    def _add(self, name: str, entity: str) -> None:
        if not name:
            return
        state = 0
        for c in reversed(name):
            following = self._next.get((state, c))
            if following is None:
                following = self._next[state, c] = len(self._ends)
                self._ends.append(None)
            state = following
        self._ends[state] = len(name), len(self._entities)
        self._entities.append(entity)

    def _links(self) -> tuple[list[int], list[tuple[int, int] | None]]:
        """Where to go on after a mismatch, and the longest name that a state ends with."""
        children: list[list[tuple[str, int]]] = [[] for _ in self._ends]
        for (state, c), following in self._next.items():
            children[state].append((c, following))
        fall, longest = [0] * len(self._ends), list(self._ends)
        queue = deque(state for _, state in children[0])
        while queue:
            state = queue.popleft()
            longest[state] = longest[state] or longest[fall[state]]
            for c, following in children[state]:
                fall[following] = self._step(fall[state], c, fall)
                queue.append(following)
        return fall, longest

    def _step(self, state: int, c: str, fall: list[int]) -> int:
        while state and (state, c) not in self._next:
            state = fall[state]
        return self._next.get((state, c), 0)

    def find(self, text: str) -> Iterable[str]:
        """What each name in a normalized text stands for, from left to right.

        Of names that overlap, it is the one that begins first, and of those the longest.
        """
        searched = mark_word_edges(text)
        begins: list[tuple[int, int] | None] = [None] * len(searched)
        state = 0
        for position in range(len(searched) - 1, -1, -1):
            state = self._step(state, searched[position], self._fall)
            begins[position] = self._longest[state]
        position = 0
        while position < len(searched):
            found = begins[position]
            if found is None:
                position += 1
                continue
            length, entity = found
            yield self._entities[entity]
            position += length


def mark_word_edges(text: str) -> str:
    """A normalize_name text with a mark at each edge of a word.

    Example:
        >>> mark_word_edges("c++用python").replace(chr(0), "|")
        '|c++|用|python|'
    """
    kinds = {c: _kind(c) for c in set(text)}
    parts: list[str] = []
    before, start = _NONE, 0
    for position, c in enumerate(text):
        kind = kinds[c]
        if kind == _SUFFIX and not (before == _WORD and _ends_word(text, position, kinds)):
            kind = _OTHER
        elif kind == _SUFFIX:
            kind = _WORD
        if (kind == _WORD) != (before == _WORD):
            parts += (text[start:position], _EDGE)
            start = position
        before = kind
    parts.append(text[start:])
    return "".join(parts) + _EDGE * (before == _WORD)


def _ends_word(text: str, position: int, kinds: Mapping[str, int]) -> bool:
    """Whether only suffixes are left of the word: C++ is one, 1+1 is two."""
    after = text[position : position + 3].lstrip(_SUFFIXES)
    return not after or kinds[after[0]] != _WORD


def _kind(c: str) -> int:
    if c in _SUFFIXES:
        return _SUFFIX
    if unicodedata.category(c)[0] not in "LNM" and c != "_":
        return _OTHER
    return _OTHER if any(low <= ord(c) <= high for low, high in _UNSPACED) else _WORD


_MOST_NAMES = 2_000_000


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
        cls,
        entities: Mapping[str, Sequence[str]] | Iterable[str],
        *,
        origin: str = "<vocabulary>",
    ) -> Vocabulary:
        """A vocabulary from a dictionary of entity -> aliases, or from names alone.

        Raises:
            DataError: A name stands for two entities ("alias-conflict"), an entity has no name, or a name is no text
                ("bad-vocabulary").
        """
        aliases = entities if isinstance(entities, Mapping) else dict.fromkeys(_names(entities, origin), ())
        by_name: dict[str, str] = {}
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

        It is a `.txt` with a name per line, a `.csv` or `.tsv` with an entity and its aliases per line, or a `.json` with
        `{"entity": ["alias", ...]}` or a list of names.

        Raises:
            UsageError: There is no such file, or it is of no such kind.
            DataError: It is damaged or empty ("bad-vocabulary"), or as `of`.
        """
        return cls.of(_read_vocabulary(Path(path)), origin=str(path))

    def with_aliases(self, table: Vocabulary) -> Vocabulary:
        """The same entities, with the aliases that a table knows for them; what else is in the table stays out.

        Two entities that the table calls one are one from then on, by the name that the table gives them.

        Raises:
            DataError: The two disagree about a name ("alias-conflict").
        """
        renamed = {entity: table.by_name.get(normalize_name(entity), entity) for entity in self.entities}
        names = {name: renamed[entity] for name, entity in self.by_name.items()}
        origin, ours = f"{self.origin} with {table.origin}", set(renamed.values())
        for name, entity in table.by_name.items():
            if entity in ours or name in names:
                _enter(names, name, entity, origin)
        return Vocabulary(tuple(dict.fromkeys(names.values())), names, origin)

    def canonical(self, name: str) -> str | None:
        """The entity that a name or an alias stands for; None if it is unknown."""
        return self.by_name.get(normalize_name(name))

    def find(self, text: str) -> tuple[str, ...]:
        """The entities that a text names, each once, in the order in which they come.

        Of names that overlap, the one that begins first counts, and of those the longest: in "New York Times" neither
        "New York" nor "Times" is found, if all three are known. Words count as a whole ("cat" is not in "category");
        Chinese, Japanese, Korean, Thai and others that are written without spaces are searched letter by letter. The
        time grows with the length of the text, however many names there are.
        """
        return tuple(dict.fromkeys(self._matcher.find(normalize_text(text))))

    @cached_property
    def _matcher(self) -> NameMatcher:
        return NameMatcher(self.by_name)

    def __len__(self) -> int:
        return len(self.entities)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entities)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and normalize_name(name) in self.by_name


def _names(names: object, origin: str) -> list[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise _bad(origin, f"{short(repr(names))} is no list of names")
    found = list(names)
    if wrong := [name for name in found if not isinstance(name, str)]:
        raise _bad(origin, f"{wrong[0]!r} is no name")
    return found


def _enter(by_name: dict[str, str], name: object, entity: str, origin: str, *, repeats: bool = True) -> None:
    """Add one name; the same one again is no harm, except where it is all that distinguishes entities."""
    if not isinstance(name, str):
        raise _bad(origin, f"{name!r} is no name")
    key = normalize_name(name)
    if not key:
        raise _bad(origin, f"the name {name!r} holds nothing but spaces or punctuation")
    known = by_name.setdefault(key, entity)
    if known != entity and not (repeats and name == entity):
        raise DataError(
            f"{origin}: {short(name, 60)!r} stands for two entities, {short(known, 60)!r} and {short(entity, 60)!r}; "
            "an alias belongs to one of them, and the other needs a longer name",
            code="alias-conflict",
            path=origin,
        )
    if len(by_name) > _MOST_NAMES:
        raise _bad(origin, f"more than {_MOST_NAMES:,} names")


def _bad(origin: str, why: str) -> DataError:
    return DataError(
        f"{origin} is no vocabulary: {short(why, 60)}; needed are names, or entities with lists of aliases",
        code="bad-vocabulary",
        path=origin,
    )


_ENTITY_HEADS = {"entity", "canonical", "name", "实体", "名称", "标准名"}
_ALIAS_HEADS = {"alias", "aliases", "synonym", "synonyms", "别名", "同义词"}


def _read_vocabulary(path: Path) -> Any:  # noqa: ANN401 - checked by Vocabulary.of
    suffix, origin = path.suffix.lower(), str(path)
    if suffix not in {".txt", ".csv", ".tsv", ".json"}:
        raise UsageError(
            f"{path} is of unknown kind ({suffix or 'no suffix'}); a vocabulary is a .txt with a name per line, a "
            '.csv of entity,alias,..., or a .json of {"entity": ["alias", ...]}',
            code="vocabulary-kind",
            path=origin,
        )
    text = read_text(path, "a vocabulary")
    if suffix == ".txt":
        found: Any = [line.strip() for line in text.splitlines() if line.strip()]
    elif suffix == ".json":
        try:
            found = parse_json(text)
        except ValueError as error:
            raise _bad(origin, f"it is no JSON ({error})") from error
        if isinstance(found, dict):
            found = {entity: [names] if isinstance(names, str) else names for entity, names in found.items()}
    else:
        found = _from_csv(path, text)
    if not found:
        raise _bad(origin, "it holds no names")
    return found


def _from_csv(path: Path, text: str) -> dict[str, list[str]]:
    """An entity and its aliases per line; one entity may have several lines."""
    rows = [[cell.strip() for cell in row] for _, row in read_csv(text, str(path), delimiter_of(path))]
    rows = [row for row in rows if any(row)]
    heads = [normalize_name(cell) for cell in rows[0]] if rows else []
    if len(heads) > 1 and heads[0] in _ENTITY_HEADS and set(heads[1:]) <= _ALIAS_HEADS:
        rows = rows[1:]
    aliases: dict[str, list[str]] = {}
    for entity, *others in rows:
        if not entity:
            raise _bad(str(path), f"the first column of {short(', '.join(others), 30)} is empty")
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
    """The closed vocabulary, and the table of all names.

    Raises:
        UsageError, DataError: As `Vocabulary.load` and `Vocabulary.of`; or they disagree ("alias-conflict").
    """
    closed = None if vocabulary is None else as_vocabulary(vocabulary, "vocabulary")
    table = None if aliases is None else as_vocabulary(aliases, "aliases")
    if closed is not None and table is not None:
        closed = closed.with_aliases(table)
    return closed, table if closed is None else closed


_IN_BRACKETS = re.compile(r"([^()（）]+)[(（]([^()（）]+)[)）]")

_COUNTED = re.compile(
    r"(?:an?|the|one|two|three|four|five|several|some|\d{1,3}(?:\s*[x×])?)\s+(.+)", re.IGNORECASE | re.DOTALL
)


class CanonicalNames:
    """Canonical names of entities: an alias table's where it has them, else the first registered spelling.

    Args:
        table: Entities and aliases; None if every name is an entity.
    """

    def __init__(self, table: Vocabulary | None) -> None:
        self._table = table
        self._spelling: dict[str, str] = {}

    def get(self, name: str) -> str | None:
        """The entity that a name means; None if it is unknown."""
        canonical = None if self._table is None else self._table.canonical(name)
        return canonical if canonical is not None else self._spelling.get(normalize_name(name))

    def register(self, names: Iterable[str]) -> tuple[str, ...]:
        """The entities that expected names mean, each once; unknown names become entities."""
        return tuple(dict.fromkeys(entity for name in names if (entity := self._register(name))))

    def match(self, names: Iterable[str]) -> tuple[str, ...]:
        """The entities that found names mean, each once; unknown names are normalized.

        `a cat`, `2 cat` and `cat (left)` are unknown names that mean a cat if that is known.
        """
        return tuple(dict.fromkeys(entity for name in names if (entity := self._match(name))))

    def _register(self, name: str) -> str:
        known = self.get(name)
        if known is not None:
            return known
        key = normalize_name(name)
        return self._spelling.setdefault(key, name.strip()) if key else ""

    def _match(self, name: str) -> str:
        known = self.get(name)
        if known is None and (counted := _COUNTED.fullmatch(name.strip())):
            known = self.get(counted[1])
        if known is None and (parts := _IN_BRACKETS.fullmatch(name.strip())):
            within = [entity for part in parts.groups() if (entity := self.get(part)) is not None]
            known = within[0] if len(set(within)) == 1 else None
        return known if known is not None else normalize_name(name)
