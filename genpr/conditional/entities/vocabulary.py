"""Which names mean the same entity, and where they occur in a text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from genpr.conditional.entities.matcher import Matcher
from genpr.conditional.entities.normalise import normalised, normalised_text
from genpr.conditional.entities.text_files import shown
from genpr.errors import DataError, short

_MOST_NAMES = 2_000_000


@dataclass(frozen=True)
class Vocabulary:
    """Entities with their aliases; make one by `of` or `load`.

    Attributes:
        entities: Each once, as it was first written.
        by_name: Normalised name or alias -> entity.
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
                _enter(by_name, alias, by_name[normalised(entity)], origin)
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
        from genpr.conditional.entities.vocabulary_files import read_vocabulary

        entities, origin = read_vocabulary(path)
        return cls.of(entities, origin=origin)

    def with_aliases(self, table: Vocabulary) -> Vocabulary:
        """The same entities, with the aliases that a table knows for them; what else is in the table stays out.

        Two entities that the table calls one are one from then on, by the name that the table gives them.

        Raises:
            DataError: The two disagree about a name ("alias-conflict").
        """
        renamed = {entity: table.by_name.get(normalised(entity), entity) for entity in self.entities}
        names = {name: renamed[entity] for name, entity in self.by_name.items()}
        origin, ours = f"{self.origin} with {table.origin}", set(renamed.values())
        for name, entity in table.by_name.items():
            if entity in ours or name in names:
                _enter(names, name, entity, origin)
        return Vocabulary(tuple(dict.fromkeys(names.values())), names, origin)

    def canonical(self, name: str) -> str | None:
        """The entity that a name or an alias stands for; None if it is unknown."""
        return self.by_name.get(normalised(name))

    def find(self, text: str) -> tuple[str, ...]:
        """The entities that a text names, each once, in the order in which they come.

        Of names that overlap, the one that begins first counts, and of those the longest: in "New York Times" neither
        "New York" nor "Times" is found, if all three are known. Words count as a whole ("cat" is not in "category");
        Chinese, Japanese, Korean, Thai and others that are written without spaces are searched letter by letter. The
        time grows with the length of the text, however many names there are.
        """
        return tuple(dict.fromkeys(self._matcher.find(normalised_text(text))))

    @cached_property
    def _matcher(self) -> Matcher:
        return Matcher(self.by_name)

    def __len__(self) -> int:
        return len(self.entities)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entities)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and normalised(name) in self.by_name


def _names(names: object, origin: str) -> list[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise _bad(origin, f"{short(repr(names))} is no list of names")
    found = list(names)
    if wrong := [name for name in found if not isinstance(name, str)]:
        raise _bad(origin, f"{wrong[0]!r} is no name")
    return found


def _enter(by_name: dict[str, str], name: object, entity: str, origin: str, *, repeats: bool = True) -> None:
    """Add one name; the same one again is no harm, except where entities are told apart by it."""
    if not isinstance(name, str):
        raise _bad(origin, f"{name!r} is no name")
    key = normalised(name)
    if not key:
        raise _bad(origin, f"the name {name!r} holds nothing but spaces or punctuation")
    known = by_name.setdefault(key, entity)
    if known != entity and not (repeats and name == entity):
        raise DataError(
            f"{shown(origin)}: {shown(name)!r} stands for two entities, {shown(known)!r} and {shown(entity)!r}; "
            "an alias belongs to one of them, and the other needs a longer name",
            code="alias-conflict",
            path=origin,
        )
    if len(by_name) > _MOST_NAMES:
        raise _bad(origin, f"more than {_MOST_NAMES:,} names")


def _bad(origin: str, why: str) -> DataError:
    return DataError(
        f"{shown(origin)} is no vocabulary: {shown(why)}; needed are names, or entities with lists of aliases",
        code="bad-vocabulary",
        path=origin,
    )
