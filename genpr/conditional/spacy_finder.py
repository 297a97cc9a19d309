"""Named entities by a spaCy pipeline, where no vocabulary is known; spaCy is an optional dependency."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from genpr.conditional.vocabulary import CanonicalNames, Vocabulary
from genpr.errors import UsageError, short

_OTHER_COMPONENTS = frozenset(
    {
        "tok2vec",
        "transformer",
        "tagger",
        "parser",
        "senter",
        "sentencizer",
        "morphologizer",
        "lemmatizer",
        "attribute_ruler",
    }
)


def find_with_spacy(
    text: str,
    model: Any,  # noqa: ANN401 - a pipeline of a package that may not be there
    *,
    labels: Collection[str] | None = None,
    aliases: Vocabulary | None = None,
) -> tuple[str, ...]:
    """The entities that a spaCy pipeline recognizes in a text, each once, in the order in which they come.

    Args:
        text: Any text in the language of the model.
        model: A loaded pipeline with an entity recognizer or ruler, or the name of an installed one, such as
            "en_core_web_sm" or "zh_core_web_sm". Load it yourself for many texts: that takes seconds.
        labels: Only these kinds, such as ("PERSON", "GPE"); None for all.
        aliases: Names that mean the same entity.

    Raises:
        UsageError: spaCy or the model is not installed ("no-spacy"), or the pipeline recognizes no entities.
    """
    return CanonicalNames(aliases).register(_spans(text, _pipeline(model), labels))


def vocabulary_from_spacy(
    texts: Iterable[str],
    model: Any,  # noqa: ANN401 - as above
    *,
    labels: Collection[str] | None = None,
) -> Vocabulary:
    """A vocabulary of all entities that a spaCy pipeline recognizes in texts, such as all prompts.

    Raises:
        UsageError: As `find_with_spacy`.
    """
    pipeline = _pipeline(model)
    return Vocabulary.of(
        [name for text in texts for name in _spans(text, pipeline, labels)], origin="<spaCy>"
    )


def _spans(text: str, pipeline: Any, labels: Collection[str] | None) -> list[str]:  # noqa: ANN401
    found = pipeline(text).ents
    return [span.text for span in found if labels is None or span.label_ in labels]


def _pipeline(model: Any) -> Any:  # noqa: ANN401
    try:
        import spacy
    except ImportError as error:
        raise UsageError(
            "spaCy is not installed; `pip install genpr[entities]` adds it, and a vocabulary needs none",
            code="no-spacy",
        ) from error
    if isinstance(model, str):
        try:
            model = spacy.load(model)
        except OSError as error:
            raise UsageError(
                f"spaCy has no model {short(model, 60)!r}; `python -m spacy download {short(model, 60)}` installs published ones",
                code="no-spacy",
            ) from error
    kinds = {model.get_pipe_meta(name).factory for name in getattr(model, "pipe_names", ())}
    if kinds <= _OTHER_COMPONENTS:
        raise UsageError(
            f"this is no pipeline that recognizes entities (it has {short(', '.join(sorted(kinds)) or 'nothing', 60)}); needed is "
            "one with an entity recognizer or an entity ruler",
            code="no-spacy",
        )
    return model
