"""One score, with as much of what is behind it as was asked for: classes, and what is known of each image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genpr.evaluation.options import ScoreOptions
    from genpr.evaluation.per_class import ClassOptions, ClassScores
    from genpr.evaluation.per_image import PerImageScores
    from genpr.evaluation.result import Result


@dataclass(frozen=True)
class ScoreRun:
    """What came out.

    Attributes:
        results: One per protocol.
        classes: Of the only protocol; None if they were not asked for.
        evidence: Of the only protocol; None if it was not asked for, or cannot be had.
        labels: Where the classes of the reals and of the fakes are, as far as that was said.
    """

    results: Sequence[Result]
    classes: ClassScores | None = None
    evidence: PerImageScores | None = None
    labels: tuple[object, object] = (None, None)


def score_run(
    real: str,
    fake: str,
    protocols: Sequence[str],
    options: ScoreOptions,
    classes: ClassOptions | None,
    *,
    by_image: bool,
    must_tell: bool,
) -> ScoreRun:
    """Score once.

    Args:
        real: Source of the reals.
        fake: Of the fakes.
        protocols: Several only without classes and without evidence.
        options: Of the score; their protocol is not used.
        classes: Options of classes; None to score without classes.
        by_image: Find out about each image.
        must_tell: Refuse what has no numbers of single images, rather than go on without.

    Raises:
        GenprError: As `genpr.Evaluator` and its methods.
    """
    from genpr.evaluation.evaluator import Evaluator, check_before_embedding, score_with

    names = list(dict.fromkeys(protocols))
    if classes is None and not by_image:
        return ScoreRun(list(score_with(real, fake, names, options).values()))
    options = replace(options, protocol=names[0])
    opened = check_before_embedding(real, fake, options, classes)
    # Who looks for labels must be given the paths.
    reals, fakes = opened if classes is None else (real, fake)
    evaluator = Evaluator.from_options(reals, options)
    if by_image and (must_tell or evaluator.tells_of_images):
        found = evaluator.evidence(fakes, classes=classes)
        labels = (None, None) if classes is None else (classes.get("real_labels"), classes.get("fake_labels"))
        return ScoreRun([found.result], found.classes, found, labels)
    if classes is None:
        return ScoreRun([evaluator.score(fakes)])
    scored = evaluator.score_classes(fakes, **classes)
    return ScoreRun([scored.overall], scored)
