"""Find missed and invented modes: clusters of reals without fakes, and of fakes without reals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, Unpack

from genpr.evaluation.diagnostics import image_notices
from genpr.evaluation.labels import LabeledImages, SourceLabels
from genpr.evaluation.options import ModesKeywords, ModesOptions, ScoreOptions
from genpr.evaluation.plan import ScorePlan
from genpr.features.extractor import ExtractorInfo
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedInput, check_same_kind, check_same_weights, open_input
from genpr.features.options import StageProgress, takes_options
from genpr.features.source_features import Embedder, SourceFeatures, with_cpu_fallback
from genpr.memory import memory_limit
from genpr.metrics.ball_metrics import coverage, precision
from genpr.metrics.modes import ModeCluster, Modes, modes_of
from genpr.notices import Notice
from genpr.validation import entry_point

SCHEMA = "genpr.modes/1"
REPRESENTATIVES = 8
"""Representative images per cluster in a record."""

NAMED = 0.02
"""The smallest share of the flagged images of a class that is named."""


@dataclass(frozen=True)
class FoundModes:
    """Missed and invented modes of two sources."""

    modes: Modes  # the clusters, with rows
    real: str  # source of the reals as given by the user
    fake: str  # source of the fakes
    real_names: tuple[str, ...]  # name of the image of each row; empty if unknown
    fake_names: tuple[str, ...]  # the same for the fakes
    extractor: ExtractorInfo | None  # None if a feature file does not name it
    notices: tuple[Notice, ...]  # warnings and notes
    # origin of the labels by role, for sources with labels
    origins: Mapping[str, str] = field(default_factory=dict)
    # number of images without a class by role
    unlabeled: Mapping[str, int] = field(default_factory=dict)
    # number of files that are no images, by suffix, of reals and fakes
    passed_over: tuple[Mapping[str, int], Mapping[str, int]] = ({}, {})

    def name_of(self, role: Literal["real", "fake"], row: int) -> str:
        """The name of an image, or its row."""
        names = self.real_names if role == "real" else self.fake_names
        return names[row] if names else f"row {row}"

    @property
    def summary(self) -> tuple[str, str]:
        """A sentence about missed modes and one about invented modes."""
        return sentences_of(self.modes)

    def __str__(self) -> str:
        """The summary, then a line for each notice."""
        return "\n".join([*self.summary, *map(str, self.notices)])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, with the names of the first 8 representatives of each cluster."""
        found = self.modes
        return {
            "schema": SCHEMA,
            "real": {"source": self.real, "n": found.n_real, "passed_over": dict(self.passed_over[0])},
            "fake": {"source": self.fake, "n": found.n_fake, "passed_over": dict(self.passed_over[1])},
            "extractor": None if self.extractor is None else self.extractor.name,
            "seed": found.seed,
            "uncovered_k": found.uncovered_k,
            "outside_k": found.outside_k,
            "labels": dict(self.origins),
            "unlabeled": dict(self.unlabeled),
            "missed": [self._record("real", each) for each in found.missed],
            "invented": [self._record("fake", each) for each in found.invented],
            "summary": list(self.summary),
            "notices": [asdict(item) for item in self.notices],
        }

    def to_json(self) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def _record(self, role: Literal["real", "fake"], cluster: ModeCluster) -> dict[str, Any]:
        record = {**asdict(cluster), "is_significant": cluster.is_significant}
        rows = record.pop("rows")[:REPRESENTATIVES]
        record["classes"] = dict(cluster.classes)
        return {**record, "representatives": [{"row": row, "name": self.name_of(role, row)} for row in rows]}


@takes_options(ModesOptions)
@entry_point
def find_modes(real: object, fake: object, **options: Unpack[ModesKeywords]) -> FoundModes:
    """Find missed and invented modes: clusters of reals without fakes, and of fakes without reals.

    Args:
        real: Real images or their features, at least 50, as for `Evaluator`.
        fake: Generated images or their features, with the same rules.
        **options: The fields of `ModesOptions`.

    Raises:
        UsageError: A path or name does not exist, or an option is impossible.
        DataError: A source cannot be used, the two are of different kinds, or labels do not match their images.
        ResourceError: Weights, device or memory are missing.
    """
    return find_modes_with(real, fake, ModesOptions(**options))


def find_modes_with(real: object, fake: object, options: ModesOptions) -> FoundModes:
    """Implementation of `find_modes`."""
    embedder, progress = Embedder(options), options.progress
    with memory_limit(options.max_memory):
        opened = open_input(real, "real"), open_input(fake, "fake")
        given = zip((options.real_labels, options.fake_labels), opened, ("real", "fake"), strict=True)
        labels = [SourceLabels.open(*each, options.bad_images, is_optional=True) for each in given]
        (reals, fakes), classes, ks = _embedded(*opened, options, embedder, labels)
        search = partial(
            modes_of,
            reals.features,
            fakes.features,
            uncovered_k=ks[coverage.name],
            outside_k=ks[precision.name],
            clusters=options.clusters,
            real_labels=None if classes[0] is None else classes[0].labels,
            fake_labels=None if classes[1] is None else classes[1].labels,
            seed=options.seed,
            progress=None if progress is None else partial(_report, progress),
        )
        found, fallback = with_cpu_fallback(
            embedder, lambda where: search(device=where.device), "for the modes"
        )
    known = [images for images in classes if images is not None]
    of_labels = [item for images in known for item in images.notices]
    return FoundModes(
        found,
        reals.source,
        fakes.source,
        reals.names,
        fakes.names,
        fakes.extractor or reals.extractor,
        tuple(dict.fromkeys((*image_notices(reals, fakes), *of_labels, *fallback))),
        origins={images.role: images.origin for images in known},
        unlabeled={images.role: len(images.unlabeled) for images in known},
        passed_over=(reals.passed_over, fakes.passed_over),
    )


def _embedded(
    opened_real: OpenedInput,
    opened_fake: OpenedInput,
    options: ModesOptions,
    embedder: Embedder,
    labels: Sequence[SourceLabels],
) -> tuple[tuple[FeatureSet, FeatureSet], list[LabeledImages | None], dict[str, int]]:
    """Features of both sources, their labels, and k by metric."""
    check_same_kind(opened_real, opened_fake)
    _ = [each.named for each in labels]  # which checks them
    chosen = ScoreOptions(extractor=options.extractor, metrics=[precision.name, coverage.name], k=options.k)
    plan = ScorePlan.from_options(opened_real, chosen)
    sources = []
    for opened, role in ((opened_real, "real"), (opened_fake, "fake")):
        source = SourceFeatures(opened, role, embedder, declared=[plan.own])
        source.require([plan.own], minimum=plan.needs[role].least)
        sources.append(source[plan.own])
    check_same_weights(*sources)
    classes = [each.match(found) for each, found in zip(labels, sources, strict=True)]
    return (sources[0], sources[1]), classes, dict(plan.ks)


def _report(progress: StageProgress, done: int, total: int) -> None:
    progress("neighbors", 100 * done // max(total, 1), 100)


def sentences_of(modes: Modes) -> tuple[str, str]:
    """A sentence about missed modes and one about invented modes."""
    return (
        _sentence("missed", "reals", "not covered by any fake", modes.missed),
        _sentence("invented", "fakes", "outside the real manifold", modes.invented),
    )


def _sentence(verb: str, images: str, what: str, clusters: Sequence[ModeCluster]) -> str:
    worst = [each for each in clusters if each.is_significant]
    if not worst:
        return f"{verb}: no mode; the numbers of {images} that are {what} are consistent with chance"
    flagged, size = sum(each.flagged for each in worst), sum(each.size for each in worst)
    expected = sum(each.expected for each in worst)
    plural = "s" if len(worst) > 1 else ""
    text = (
        f"{verb}: {len(worst)} mode{plural} with {size:,} {images}, of which {flagged:,} are {what} "
        f"({expected:,.0f} expected)"
    )
    classes: dict[str, int] = {}
    for name, count in (entry for each in worst for entry in each.classes):
        classes[name] = classes.get(name, 0) + count
    largest = sorted(classes.items(), key=lambda entry: (-entry[1], entry[0]))[:3]
    named = ", ".join(f"{name} {count / flagged:.0%}" for name, count in largest if count >= NAMED * flagged)
    return f"{text}: {named}" if named else text
