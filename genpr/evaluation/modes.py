"""Find missing modes, clusters of reals that no fake covers, and clusters of fakes outside of the real manifold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Any, Literal, Unpack

from genpr.evaluation.evaluator import ScoreRun
from genpr.evaluation.labels import SourceLabels
from genpr.evaluation.notices_of_score import image_notices, missing_modes
from genpr.evaluation.options import ModesKeywords, ModesOptions, ScoreOptions
from genpr.evaluation.reference import report_neighbors
from genpr.evaluation.result import Identities
from genpr.features.extractor import ExtractorInfo
from genpr.features.options import EmbedOptions, takes_options
from genpr.features.source_features import check_same_input, with_cpu_fallback
from genpr.memory import memory_limit
from genpr.metrics.ball_metrics import coverage, precision
from genpr.metrics.modes import MissingKind, ModeCluster, Modes, RealKinds, modes_of
from genpr.notices import Notice
from genpr.validation import entry_point

SCHEMA = "genpr.modes/2"
REPRESENTATIVES = 8
"""Representative images per cluster in a record."""

NAMED = 0.02
"""The smallest share of the flagged images of a class that is named."""


@dataclass(frozen=True)
class FoundModes:
    """Modes of two sources."""

    missing: tuple[MissingKind, ...]  # missing modes, as in the notice "missing-modes" of a score
    modes: Modes  # the clusters of both sets, with rows
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
        """A sentence about uncovered reals and one about fakes outside."""
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
            "missing": [{**asdict(each), "name": self.name_of("real", each.row)} for each in self.missing],
            "uncovered": [self._record("real", each) for each in found.uncovered],
            "outside": [self._record("fake", each) for each in found.outside],
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
    """Find missing modes, clusters of reals that no fake covers, and clusters of fakes outside of the real manifold.

    Args:
        real: Real images or their features, at least 50, as for `Evaluator`.
        fake: Generated images or their features, with the same rules.
        **options: The fields of `ModesOptions`.

    Raises:
        UsageError: A path or name does not exist, or an option is impossible.
        DataError: A source cannot be used, the two are of different kinds, or labels do not match their images.
        ResourceError: Weights, device or memory are missing.
    """
    given = ModesOptions(**options)
    embedding = {each.name: getattr(given, each.name) for each in fields(EmbedOptions)}
    chosen = ScoreOptions(
        extractor=given.extractor,
        metrics=[precision.name, coverage.name],
        k=given.k,
        control=False,
        **embedding,
    )
    with memory_limit(given.max_memory):
        run = ScoreRun(real, [chosen])
        opened = run.opened, run.open_fake(fake)
        labels = [
            SourceLabels.open(*each, given.bad_images, is_optional=True)
            for each in zip((given.real_labels, given.fake_labels), opened, ("real", "fake"), strict=True)
        ]
        _ = [each.named for each in labels]  # which checks them
        run.embed_real()
        plan = run.plans[0]
        reals, fakes = run.real[plan.own], run.embed(opened[1], "fake")[plan.own]
        check_same_input(reals, fakes)
        known = [
            images
            for each, side in zip(labels, (reals, fakes), strict=True)
            if (images := each.match(side)) is not None
        ]
        labels_of = {images.role: images.labels for images in known}
        found, of_memory = with_cpu_fallback(
            run.embedder,
            lambda where: modes_of(
                reals.features,
                fakes.features,
                uncovered_k=plan.ks[coverage.name],
                outside_k=plan.ks[precision.name],
                clusters=given.clusters,
                real_labels=labels_of.get("real"),
                fake_labels=labels_of.get("fake"),
                seed=given.seed,
                device=where.device,
                progress=None if given.progress is None else partial(report_neighbors, given.progress),
            ),
            "for the modes",
        )
        kinds = RealKinds.fit(reals.features, seed=given.seed)
        missing, notices = missing_modes(kinds, reals, fakes, Identities.from_features(fakes))
    of_labels = [item for images in known for item in images.notices]
    return FoundModes(
        missing,
        found,
        reals.source,
        fakes.source,
        reals.names,
        fakes.names,
        fakes.extractor or reals.extractor,
        tuple(dict.fromkeys((*notices, *image_notices(reals, fakes), *of_labels, *of_memory))),
        origins={images.role: images.origin for images in known},
        unlabeled={images.role: len(images.unlabeled) for images in known},
        passed_over=(reals.passed_over, fakes.passed_over),
    )


def sentences_of(modes: Modes) -> tuple[str, str]:
    """A sentence about uncovered reals and one about fakes outside."""
    return (
        _sentence("uncovered", "reals", "not covered by any fake", modes.uncovered),
        _sentence("outside", "fakes", "outside the real manifold", modes.outside),
    )


def _sentence(kind: str, images: str, what: str, clusters: Sequence[ModeCluster]) -> str:
    worst = [each for each in clusters if each.is_significant]
    if not worst:
        return f"{kind}: no cluster; the numbers of {images} that are {what} are consistent with chance"
    flagged, size = sum(each.flagged for each in worst), sum(each.size for each in worst)
    expected = sum(each.expected for each in worst)
    plural = "s" if len(worst) > 1 else ""
    text = (
        f"{kind}: {len(worst)} cluster{plural} with {size:,} {images}, of which {flagged:,} are {what} "
        f"({expected:,.0f} expected)"
    )
    classes: dict[str, int] = {}
    for name, count in (entry for each in worst for entry in each.classes):
        classes[name] = classes.get(name, 0) + count
    largest = sorted(classes.items(), key=lambda entry: (-entry[1], entry[0]))[:3]
    named = ", ".join(f"{name} {count / flagged:.0%}" for name, count in largest if count >= NAMED * flagged)
    return f"{text}: {named}" if named else text
