"""Find entities in images with detectors, or with pairs of image and text encoders (zero-shot), and score them.

An entity is found if its score reaches a threshold, which is fixed for detectors or chosen on labeled images. Thresholds are
never chosen on the scored images with the requested entities as labels: an entity that is never generated would then have a
recall of about one half.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Unpack, cast

import torch
from torch import Tensor

from genpr.conditional.entity_scores import (
    Expectations,
    entity_result,
    expectations_side,
    read_expectations,
    sha256_of_rows,
)
from genpr.conditional.options import EntityKeywords, EntityOptions
from genpr.conditional.shared import embed_matched
from genpr.conditional.vocabulary import Vocabulary, as_vocabulary
from genpr.errors import DataError, UsageError, short, some
from genpr.evaluation.notices_of_score import decoding_notices
from genpr.evaluation.result import ClassifierSummary, EntityThreshold, Result, SideSummary
from genpr.features.custom import DetectingExtractor, Detector, load_user_object, wrap_extractor
from genpr.features.extractor import FeatureExtractor
from genpr.features.feature_set import FeatureSet
from genpr.features.options import takes_options
from genpr.features.registry import canonical_name, check_has_text, network_module
from genpr.features.source_features import Embedder, ExtractorLike, OpenedInput, open_input
from genpr.features.text import check_pair, text_encoder_for
from genpr.memory import memory_limit
from genpr.notices import Notice, notice
from genpr.validation import entry_point

DETECTED = 0.3  # default threshold of detections, as in GenEval (Ghosh et al. 2023)
TEMPLATE = "a photo of a {}."  # prompt of a name for text encoders
ClassifierSpec = str | Detector | FeatureExtractor  # a name or an object
Scorer = Callable[[FeatureSet], Tensor]  # features of images -> scores of entities, float64 (n, E)
MIN_EXAMPLES = 10  # images with an entity, and images without it, that a separate threshold needs
_FOLDS = 5
_POOR = 0.75


@takes_options(EntityOptions, without={"classifier"})
@entry_point
def score_entities_in_images(
    expected: object, images: object, *, classifier: ClassifierSpec, **options: Unpack[EntityKeywords]
) -> Result:
    """Find the entities of a vocabulary in images, and compare them with the expected entities.

    Args:
        expected: As in `score_entities`, with the names of images as ids: paths relative to the source, or file names or stems
            if these are unique; or without ids in the order of the images.
        images: Images as for `genpr.score`: a folder, an archive, an array, a feature file.
        classifier: "clip", a CLIP model, a custom "path/to/file.py:factory", or an object, which is a pair of encoders or a
            detector.
        **options: The fields of `EntityOptions` except `classifier`.

    Returns:
        A result with metrics `entity.*`; `entities.classifier` has the thresholds. Its `real` source is the expectations.

    Raises:
        UsageError: A path or name does not exist, an option is impossible, or the classifier has no class for an entity.
        DataError: Images or expectations cannot be used, or do not match.
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> import torch
        >>> class Bright:
        ...     names = ("lamp", "night")
        ...
        ...     def __call__(self, images):
        ...         light = torch.stack([image.float().mean() / 255 for image in images])
        ...         return torch.stack([light, 1 - light], dim=1)
        >>> images = torch.tensor([0, 255, 255], dtype=torch.uint8)[:, None, None, None].expand(3, 3, 8, 8)
        >>> result = score_entities_in_images([["night"], ["lamp"], ["lamp", "night"]], images, classifier=Bright(), device="cpu")
        >>> result["entity.recall"], result.entities.rows[0].entity
        (0.8333333333333334, 'night')
    """
    given = EntityOptions(classifier=classifier, **options)
    with memory_limit(given.max_memory):
        opened = open_input(images, "fake", given.decoding)
        calibration = (
            None if given.calibrate_on is None else open_input(given.calibrate_on, "real", given.decoding)
        )
        started = time.perf_counter()
        model = _load_classifier(given.classifier, Embedder(given))
        if given.vocabulary is not None:
            vocabulary, what = as_vocabulary(given.vocabulary, "vocabulary"), "the vocabulary"
        elif model.classes is None:
            message = f"{model.name} has no fixed classes; give all possible entities with --vocabulary FILE"
            raise UsageError(message, code="no-vocabulary")
        else:
            vocabulary = Vocabulary.of(model.classes, origin="<classes>")
            what = f"the {len(vocabulary):,} classes of {short(model.name, 60)}"
        expectations = read_expectations(expected, vocabulary, given.exclude, closed=what)
        excluded = dict.fromkeys(name for row in expectations.rows for name in row.excluded)
        if unseen := [name for name in excluded if name not in vocabulary]:
            message = f"{len(unseen):,} excluded entities ({some(unseen)}) are not in {what}, so images are not searched for them; add them"
            raise UsageError(message, code="unseen-entities")
        labels = None
        if calibration is not None:
            labels = read_expectations(given.calibrate_expected, vocabulary, closed=None)
        elif model.classes is None:
            message = f"cosine similarities of {model.name} have no default threshold; give labeled (preferably real) images "
            message += "with --calibrate-on and --calibrate-expected"
            raise UsageError(message, code="no-thresholds")
        scorer = model.scorer(vocabulary)
        seconds = {"reading": time.perf_counter() - started}
        scored = _embedded(opened, "images", expectations, model, scorer)
        labeled = None
        chosen = [EntityThreshold(entity, (DETECTED,), False, None, None) for entity in vocabulary]
        if calibration is not None and labels is not None:
            labeled = _embedded(calibration, "calibration", labels, model, scorer)
            # Names outside the vocabulary are ignored.
            rows = [set(row.expected) for row in labeled.expectations.rows]
            present = torch.tensor([[name in row for name in vocabulary] for row in rows])
            chosen = calibrate(labeled.scores, present, vocabulary)
        return _result(scored, chosen, vocabulary, model, labeled, seconds)


@dataclass(frozen=True)
class _Classifier:
    """A classifier of entities in images."""

    name: str
    extractor: ExtractorLike  # the extractor of images
    classes: tuple[str, ...] | None  # of a detector; None for a pair of encoders, which have no fixed classes
    embedder: Embedder

    def scorer(self, vocabulary: Vocabulary) -> Scorer:
        """The function that scores entities; loads the text encoder."""
        if self.classes is not None:
            columns = _class_columns(vocabulary, self.classes)
            # The highest score of several classes of one entity.
            return lambda found: torch.stack([found.features[:, e].amax(1) for e in columns], dim=1).double()
        encoder = text_encoder_for(self.extractor, self.embedder)
        vectors = encoder.encode_text([TEMPLATE.format(name) for name in vocabulary]).cpu().double()
        lengths = vectors.norm(dim=1, keepdim=True)
        if not bool((lengths > 0).all()):
            raise DataError("the text encoder returned NaN or zero for a name", code="bad-scores")

        def score(features: FeatureSet) -> Tensor:
            check_pair(features, encoder, vectors, vocabulary.entities)
            found = features.features.cpu().double()
            cosines: Tensor = (found / found.norm(dim=1, keepdim=True)) @ (vectors / lengths).T
            if not bool(cosines.isfinite().all()):
                raise DataError("features of an image have NaN or are zero", code="bad-scores")
            return cosines

        return score


def _class_columns(vocabulary: Vocabulary, classes: Sequence[str]) -> list[list[int]]:
    """The indices of the detector's classes of each entity, which may be several, such as couch and sofa."""
    columns: dict[str, list[int]] = {entity: [] for entity in vocabulary}
    for column, name in enumerate(classes):
        if (entity := vocabulary.canonical(name)) is not None:
            columns[entity].append(column)
    if unseen := [entity for entity, found in columns.items() if not found]:
        message = f"the detector has no class for {len(unseen):,} of {len(columns):,} entities ({some(unseen)}); its classes include "
        message += (
            f"{some(list(classes), 5)}. Remove them from the vocabulary, or define a class as their alias"
        )
        raise UsageError(message, code="unseen-entities")
    return list(columns.values())


def _load_classifier(model: object, embedder: Embedder) -> _Classifier:
    """A classifier from a name or an object: a pair of encoders if it has `encode_text`, else a detector."""
    options, name = embedder.options, type(model).__name__
    if isinstance(model, str):
        name = "clip-vit-b-32" if model == "clip" else model
        check_has_text(name)
        if network_module(name) is not None:
            name = canonical_name(name)
            return _Classifier(name, name, None, embedder)
        if options.weights is not None and not Path(options.weights).is_dir():
            raise UsageError(f"classifier {name!r} takes no weights file", code="weights-unused")
        model = load_user_object(name, kind="classifier", device=embedder.device)
    if callable(getattr(getattr(model, "wrapped", model), "encode_text", None)):
        extractor = wrap_extractor(model, name=name)
        return _Classifier(extractor.name, extractor, None, embedder)
    own = getattr(model, "name", None)
    detecting = DetectingExtractor(cast("Detector", model), name=own if isinstance(own, str) else name)
    # Detectors may pad the images of a batch to one size, which would change scores.
    return _Classifier(detecting.name, detecting, detecting.names, embedder.with_options(batch_size=1))


@dataclass(frozen=True)
class _Embedded:
    """Embedded images with their expectations, and the scores (n, E) of the entities in the same order."""

    expectations: Expectations
    features: FeatureSet
    scores: Tensor


def _embedded(
    opened: OpenedInput, role: str, expectations: Expectations, classifier: _Classifier, scorer: Scorer
) -> _Embedded:
    """Embed images, and match them with expectations; those of unusable images are left out."""
    features, rows = embed_matched(
        opened, role, expectations.table, classifier.extractor, classifier.embedder
    )
    # In the order of the expectations, so that halves of two results have the same expectations for any names of images.
    order = sorted(range(len(rows)), key=rows.__getitem__)
    chosen = tuple(expectations.rows[rows[index]] for index in order)
    return _Embedded(replace(expectations, rows=chosen), features, scorer(features)[torch.tensor(order)])


def calibrate(scores: Tensor, present: Tensor, names: Iterable[str]) -> list[EntityThreshold]:
    """Thresholds of entities by scores (n, E) of labeled images, and by whether they show each of them, (n, E) bool.

    Each entity gets the threshold with the largest balanced accuracy, the mean of sensitivity and specificity; those with too
    few examples share one. Rates are cross-validated: each fifth is classified with the threshold of the others.
    """
    values = scores.cpu().double()
    if not bool(values.isfinite().all()):
        raise DataError("scores hold NaN or infinity", code="bad-scores")
    shared = _threshold(values[present], values[~present])
    if shared is None:
        message = "thresholds cannot be chosen: labeled images with an entity and without it are needed"
        raise DataError(message, code="no-thresholds")
    thresholds = []
    for name, of_entity, there in zip(names, values.T, present.T, strict=True):
        is_own = min(int(there.sum()), int((~there).sum())) >= MIN_EXAMPLES
        said, level = of_entity >= shared, shared
        if is_own:
            # Every fifth image with the entity, and every fifth without.
            fold = torch.where(there, there.cumsum(0), (~there).cumsum(0)) % _FOLDS
            for kept in (fold != k for k in range(_FOLDS)):
                chosen = _threshold(of_entity[kept & there], of_entity[kept & ~there])
                said[~kept] = of_entity[~kept] >= (shared if chosen is None else chosen)
            own = _threshold(of_entity[there], of_entity[~there])
            level = shared if own is None else own
        rates = [float(said[kind].double().mean()) if kind.any() else None for kind in (there, ~there)]
        thresholds.append(EntityThreshold(name, (level,), is_own, *rates))
    return thresholds


def _threshold(positives: Tensor, negatives: Tensor) -> float | None:
    """Midway in the widest of the gaps between scores where the balanced accuracy is largest; None without positive or negative examples."""
    if not len(positives) or not len(negatives):
        return None
    levels = torch.unique(torch.cat([positives, negatives]))
    if len(levels) == 1:
        return float(levels[0])
    # A threshold above levels[i] and not above levels[i + 1] keeps what is at least levels[i + 1].
    hits = len(positives) - torch.searchsorted(positives.sort().values, levels[1:])
    passed = len(negatives) - torch.searchsorted(negatives.sort().values, levels[1:])
    balance = hits / len(positives) - passed / len(negatives)
    best = balance >= balance.max() - 1e-12
    place = int(torch.where(best, levels[1:] - levels[:-1], -1.0).argmax())
    return float((levels[place] + levels[place + 1]) / 2)


def _result(
    scored: _Embedded,
    thresholds: list[EntityThreshold],
    vocabulary: Vocabulary,
    classifier: _Classifier,
    labeled: _Embedded | None,
    seconds: dict[str, float],
) -> Result:
    """The result, with the expectations as its real source."""
    started = time.perf_counter()
    features, options = scored.features, classifier.embedder.options
    levels = torch.tensor([each.thresholds[0] for each in thresholds], dtype=torch.float64)
    found = [tuple(compress(vocabulary.entities, row)) for row in (scored.scores >= levels).tolist()]
    is_detector = classifier.classes is not None
    # The hint of this notice does not apply to detectors.
    of_features = [
        replace(each, hint="") if is_detector and each.code == "extractor-not-cached" else each
        for each in dict.fromkeys((*features.notices, *(labeled.features.notices if labeled else ())))
    ]
    if labeled:
        of_features += decoding_notices("labeled", labeled.features)
    summary = ClassifierSummary(
        name=classifier.name,
        kind="detector" if is_detector else "zero-shot",
        chosen="fixed" if labeled is None else "labeled",
        source="" if labeled is None else f"{labeled.features.source} with {labeled.expectations.origin}",
        templates=() if is_detector else (TEMPLATE,),
        entities=tuple(thresholds),
    )
    # The thresholds and the template must be equal in comparable results.
    variant = f"threshold {DETECTED:g}"
    if labeled is not None:
        labels = expectations_side(labeled.expectations, None).content
        digits = sha256_of_rows(SideSummary.from_features(labeled.features).content, labels)[:8]
        variant = f"thresholds by labeled images {digits}"
    return entity_result(
        scored.expectations,
        found,
        vocabulary,
        seed=options.seed,
        # There are no published numbers of entities, even for an extractor with published scores.
        extractor=None if features.extractor is None else replace(features.extractor, comparable=False),
        variant=variant if is_detector else f"{variant}, template {TEMPLATE!r}",
        notices=(*_recognition_notices(summary), *decoding_notices("fake", features), *of_features),
        summary={"unreadable": (), "classifier": summary},
        fake=SideSummary.from_features(features),
        device=str(classifier.embedder.device),
        max_images=options.max_images,
        seconds={**seconds, "score": time.perf_counter() - started},
    )


def _recognition_notices(found: ClassifierSummary) -> Iterator[Notice]:
    """Notices about the accuracy of the classification."""
    rates = [
        (each.sensitivity + 1 - each.false_positive_rate) / 2
        for each in found.entities
        if each.sensitivity is not None and each.false_positive_rate is not None
    ]
    if poor := sum(rate < _POOR for rate in rates):
        facts = {"classifier": found.name, "count": f"{poor:,}", "total": f"{len(rates):,}"}
        yield notice("poorly-recognized", limit=f"{100 * _POOR:.0f} %", **facts)
    if found.n_shared and rates:
        count, total = f"{found.n_shared:,}", f"{len(found.entities):,}"
        yield notice("shared-thresholds", count=count, total=total, least=MIN_EXAMPLES)
