"""Entity recall of texts and lists, without images."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence

from genpr.conditional.entities.names import Names
from genpr.conditional.entities.vocabulary import Vocabulary
from genpr.errors import UsageError
from genpr.metrics.entity.entities import EntityMetrics, entity_set_metrics

Words = Vocabulary | str | os.PathLike[str] | Mapping[str, Sequence[str]] | Iterable[str]
"""A vocabulary, a file with one, a dictionary of entity -> aliases, or names."""


def entity_metrics(
    reference: str | Sequence[str] | Sequence[Collection[str]],
    contexts: str | Sequence[str] | Sequence[Collection[str] | None],
    *,
    vocabulary: Words | None = None,
    aliases: Words | None = None,
    excluded: Sequence[str] = (),
    seed: int = 0,
) -> EntityMetrics:
    """Entity recall of texts or lists, without images: |named in both| / |named in the reference|; aliases count once.

    Args:
        reference: What should be there: a text, which is searched; a list of entities; or a list of such lists, one for
            each of several images or texts.
        contexts: What is there: a text or, beside a reference that is a text, a list of texts, which are taken together; a
            list of entities; or a list of lists, None for what could not be read.
        vocabulary: What to look for in texts, and what could be there at all; needed for texts, and for precision. See
            `Vocabulary`.
        aliases: Names that mean the same entity.
        excluded: What must not be there.
        seed: Chooses the halves of intervals, of which there are some for 10 images or more.

    Raises:
        UsageError: There is a text and no vocabulary ("no-vocabulary"), or the two sides do not fit ("bad-option").
        DataError: The vocabulary and the aliases disagree ("alias-conflict"), or what is expected cannot be
            ("bad-expectation").

    Example:
        >>> import genpr
        >>> found = genpr.entity_metrics(
        ...     "尼尔·阿姆斯特朗 walked on the Moon",
        ...     ["The Moon was first visited by 阿姆斯特朗.", "Apollo 11"],
        ...     vocabulary=["尼尔·阿姆斯特朗", "Moon", "Apollo 11"],
        ...     aliases={"尼尔·阿姆斯特朗": ["阿姆斯特朗"]},
        ... )
        >>> found["recall"], found["precision"]
        (1.0, 0.6666666666666666)
    """
    closed, table = tables_of(vocabulary, aliases)
    names = Names(table)
    if isinstance(reference, str):
        texts = [contexts] if isinstance(contexts, str) else list(contexts)
        if closed is None or not all(isinstance(text, str) for text in texts):
            raise UsageError(
                "a text is searched for the entities of a vocabulary; needed are vocabulary=, and a text or texts to compare "
                "with",
                code="no-vocabulary" if closed is None else "bad-option",
            )
        expected: list[tuple[str, ...]] = [closed.find(reference)]
        found: list[tuple[str, ...] | None] = [
            names.all_of(name for text in texts for name in closed.find(str(text)))
        ]
    else:
        if isinstance(contexts, str):
            raise UsageError(
                "a list of entities is compared with another list, not with a text; find those of the text with "
                "Vocabulary.find",
                code="bad-option",
            )
        wanted, there = _as_lists(reference), _as_lists(contexts)
        expected = [names.all_of(each or ()) for each in wanted]
        found = [None if each is None else names.all_found(each) for each in there]
    barred = names.all_of(excluded)
    return entity_set_metrics(
        expected,
        found,
        vocabulary=None if closed is None else closed.entities,
        excluded=[barred] * len(expected) if barred else None,
        seed=seed,
    )


def _as_lists(names: Sequence[object]) -> list[Collection[str] | None]:
    """One list, or several."""
    several = [each is None or (isinstance(each, Collection) and not isinstance(each, str)) for each in names]
    if names and all(several):
        return list(names)  # type: ignore[arg-type]
    if any(several) or not all(isinstance(each, str) for each in names):
        raise UsageError(
            "entities are a list of names, or a list of such lists; this one holds both, or something else",
            code="bad-option",
        )
    return [[str(each) for each in names]]


def tables_of(vocabulary: Words | None, aliases: Words | None) -> tuple[Vocabulary | None, Vocabulary | None]:
    """The closed vocabulary, and the table of all names.

    Raises:
        UsageError, DataError: As `Vocabulary.load` and `Vocabulary.of`; or they disagree ("alias-conflict").
    """
    closed = None if vocabulary is None else vocabulary_of(vocabulary, "vocabulary")
    table = None if aliases is None else vocabulary_of(aliases, "aliases")
    if closed is not None and table is not None:
        closed = closed.with_aliases(table)
    return closed, table if closed is None else closed


def vocabulary_of(words: Words, what: str) -> Vocabulary:
    """A vocabulary from whatever a user gave; `what` names it for messages."""
    if isinstance(words, Vocabulary):
        return words
    if isinstance(words, str | os.PathLike):
        return Vocabulary.load(words)
    return Vocabulary.of(words, origin=f"<{what}>")
