"""One score, with as much of what is behind it as was asked for: classes, and what is known of each image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from genpr.cli.class_options import ClassOptions

if TYPE_CHECKING:
    from genpr.evaluation.per_class import ClassScores
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
    real: object,
    fake: object,
    protocols: Sequence[str],
    by_class: ClassOptions | None,
    *,
    by_image: bool,
    must_tell: bool,
    **options: Any,  # noqa: ANN401 - passed to genpr.Evaluator, which checks them
) -> ScoreRun:
    """Score once.

    Args:
        real: Source of the reals.
        fake: Of the fakes.
        protocols: Several only without classes and without evidence.
        by_class: Options of classes; None for none.
        by_image: Find out about each image.
        must_tell: Refuse what tells nothing of single images, rather than go on without.
        **options: Of `genpr.Evaluator`.

    Raises:
        GenprError: As `genpr.Evaluator` and its methods.
    """
    if by_class is None and not by_image:
        from genpr.evaluation.evaluator import score_protocols

        return ScoreRun(list(score_protocols(real, fake, protocols=protocols, **options).values()))
    from genpr.evaluation.evaluator import Evaluator
    from genpr.evaluation.label_metrics import check_labels
    from genpr.features.inputs import check_same_kind, open_side
    from genpr.memory import memory_limit

    if by_class is not None:
        by_class.check(str(real), str(fake), options)  # labels lie beside images: these are paths
    with memory_limit(options["max_memory"]):
        # Both are found and compared in kind before the first image is embedded.
        opened = open_side(real, "real"), open_side(fake, "fake")
        check_same_kind(*opened)
        check_labels(options["labels"], *opened, on_bad=options["on_bad"], max_bad=options["max_bad"])
    # For the same reason who looks for labels must be given the paths.
    reals, fakes = opened if by_class is None else (real, fake)
    evaluator = Evaluator(reals, protocol=protocols[0], **options)
    if by_image and (must_tell or evaluator.tells_of_images):
        given = None if by_class is None else by_class.given
        found = evaluator.evidence(fakes, classes=given)
        labels = (None, None) if given is None else (given.get("real_labels"), given.get("fake_labels"))
        return ScoreRun([found.result], found.classes, found, labels)
    if by_class is None:
        return ScoreRun([evaluator.score(fakes)])
    classes = evaluator.score_classes(fakes, **by_class.given)
    return ScoreRun([classes.overall], classes)
