"""What a result holds beside its numbers where images were compared with labels, prompts or entities: who is at fault.

These are records: they hold what is worth showing, and JSON keeps all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LabelRow:
    """One class of a conditional generator.

    Attributes:
        label: The class.
        n: Images that were asked to be of it.
        tp: Of these, recognised as it.
        fp: Images of other classes that were recognised as it.
        fn: Images of it that were recognised as another.
        tn: All others.
        precision: tp / (tp + fp); None where nothing was recognised as it.
        recall: tp / (tp + fn); None where nothing was asked to be of it.
        f1: 2 tp / (2 tp + fp + fn); None where all three are 0.
        precision_interval: 95 %; None where halves leave it undefined, or none were drawn.
        recall_interval: 95 %, likewise.
        null_precision: What a perfect generator scores in this class; None where it is not known.
        null_recall: The same of recall.
    """

    label: str
    n: int
    tp: int
    fp: int
    fn: int
    tn: int
    precision: float | None
    recall: float | None
    f1: float | None
    precision_interval: tuple[float, float] | None = None
    recall_interval: tuple[float, float] | None = None
    null_precision: float | None = None
    null_recall: float | None = None

    @property
    def standing(self) -> float:
        """The mean of precision and recall over what a perfect generator scores, each cut at 1: how far it falls behind.

        Where a perfect one scores 0 none falls behind, and where that is not known the values stand for themselves.
        """
        pairs = ((self.precision, self.null_precision), (self.recall, self.null_recall))
        known = [_of_null(value, null) for value, null in pairs if value is not None]
        return sum(known) / len(known) if known else 1.0


def _of_null(value: float, null: float | None) -> float:
    if null is None:
        return value
    return min(1.0, value / null) if null else 1.0


@dataclass(frozen=True)
class Confusion:
    """Images asked to be of one class and recognised as another.

    Attributes:
        asked: The class asked for.
        recognised: The class seen.
        n: How many.
    """

    asked: str
    recognised: str
    n: int


@dataclass(frozen=True)
class LabelSummary:
    """Requested against recognised labels.

    Attributes:
        recogniser: "knn", "linear", or where recognised labels come from.
        k: Of the vote; None for others.
        rows: One per class, the worst by their `standing` first.
        confusions: The largest, largest first; none where images have sets of labels.
        undefined: What has no value, in words.
        n: Images that were asked for something.
        origins: Where the labels of "real" and "fake" come from, as far as they are used.
        unlabelled: Images that were left out for want of a label, by role.
    """

    recogniser: str
    k: int | None
    rows: tuple[LabelRow, ...]
    confusions: tuple[Confusion, ...]
    undefined: tuple[str, ...]
    n: int = 0
    origins: Mapping[str, str] = field(default_factory=dict)
    unlabelled: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Misranked:
    """An image whose own prompt was not ranked first.

    Attributes:
        image: Its name.
        prompt: What was asked for.
        rank: Of its own prompt in the pool, from 1; the mean one among equals.
        score: Similarity of the two.
        winner: The prompt of another image that was ranked first.
        winner_score: Similarity of image and winner.
    """

    image: str
    prompt: str
    rank: float
    score: float
    winner: str
    winner_score: float


@dataclass(frozen=True)
class AlignmentSummary:
    """Images against their prompts.

    Attributes:
        pool: Prompts that each image ranked; the most, where images have several of their own.
        n_prompts: Distinct prompts.
        n_truncated: Prompts that were longer than the text encoder reads; None where that is unknown.
        failures: Images whose own prompt was not ranked first, the worst first, as many as are worth keeping.
        n_failures: All of them.
        image_pool: Images that each prompt ranked; None if text to image was left out.
        n_units: What is drawn independently: prompts with all of their images.
        captions: Prompts of one image, at most.
        prefix: What was put in front of every prompt.
        tokenizer: What cut prompts into tokens.
        context: Tokens of a prompt that were read; None where that is unknown.
    """

    pool: int
    n_prompts: int
    n_truncated: int | None
    failures: tuple[Misranked, ...]
    n_failures: int = 0
    image_pool: int | None = None
    n_units: int = 0
    captions: int = 1
    prefix: str = ""
    tokenizer: str = "unknown"
    context: int | None = None


@dataclass(frozen=True)
class EntityRow:
    """One entity over all images.

    Attributes:
        entity: Its canonical name.
        n_expected: Images that should show it.
        n_found: Of these, those in which it was found.
        n_false: Others in which it was found; None where that cannot be known.
    """

    entity: str
    n_expected: int
    n_found: int
    n_false: int | None


@dataclass(frozen=True)
class Unreadable:
    """An answer that could not be read.

    Attributes:
        name: Of the image or text that it is about.
        reason: Why.
        answer: How it begins.
    """

    name: str
    reason: str
    answer: str


@dataclass(frozen=True)
class EntityBounds:
    """How far unreadable answers could move a metric.

    Attributes:
        metric: Its name.
        low: Its value if all of them were all wrong.
        high: Its value if all of them were all right.
    """

    metric: str
    low: float
    high: float


@dataclass(frozen=True)
class EntityThreshold:
    """From which score on an entity counts as there.

    Attributes:
        entity: Its canonical name.
        thresholds: One; or two, each of which judged one half of the images.
        is_own: Whether it is its own, in both halves, or one that entities with few examples share.
        sensitivity: Share of labelled images with it that were told so, on images that the threshold was not chosen on; None
            where that is not known.
        false_positive_rate: The same of images without it.
    """

    entity: str
    thresholds: tuple[float, ...]
    is_own: bool
    sensitivity: float | None
    false_positive_rate: float | None


@dataclass(frozen=True)
class RecogniserSummary:
    """What recognised entities in images.

    Attributes:
        name: Of the extractor or detector.
        kind: "zero-shot" or "detector".
        chosen: How thresholds were chosen: "fixed", "labelled" for images with labels, or "prompts" for the judged images
            themselves, each half on the other.
        source: Of labelled images and their labels; "" where there are none.
        templates: Sentences around the names of entities; none for detectors.
        entities: One per entity of the vocabulary, in its order.
    """

    name: str
    kind: str
    chosen: str
    source: str
    templates: tuple[str, ...]
    entities: tuple[EntityThreshold, ...]

    @property
    def n_shared(self) -> int:
        """Entities with a threshold that they share."""
        return sum(not each.is_own for each in self.entities)


@dataclass(frozen=True)
class EntitySummary:
    """Expected against found entities.

    Attributes:
        n_answers: Answers that were to be read.
        rows: One per entity, the worst first.
        unreadable: Answers without a reading; they are in no score but `entity.failure_rate`.
        bounds: How far these could move the scores; empty where all were read.
        forms: How the others were written, and how many of them: "JSON", "bullet list" and so on.
        undefined: Metrics without a value, and why.
        vocabulary: Entities of the closed vocabulary; None where anything may be there.
        recogniser: What saw the entities in images; None where answers say what is there.
    """

    n_answers: int
    rows: tuple[EntityRow, ...]
    unreadable: tuple[Unreadable, ...]
    bounds: tuple[EntityBounds, ...] = ()
    forms: tuple[tuple[str, int], ...] = ()
    undefined: tuple[tuple[str, str], ...] = ()
    vocabulary: int | None = None
    recogniser: RecogniserSummary | None = None
