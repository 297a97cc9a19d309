"""A score as a page that shows the images behind it: galleries, histograms and classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from genpr.errors import GenprError, some
from genpr.evaluation.labels import OptionalLabels
from genpr.evaluation.per_class import ClassScores
from genpr.evaluation.per_image import PerImageScores
from genpr.evaluation.result import Result
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import label_location, open_input
from genpr.images.policy import BadImagePolicy, DecodePolicy
from genpr.metrics.projection import Projection, project
from genpr.report.pages.album import Album
from genpr.report.pages.gallery import Gallery
from genpr.report.pages.label_picks import mistaken_picks
from genpr.report.pages.mode_picks import KnownLabels, mode_picks
from genpr.report.pages.near_copies import copies_among, copy_candidates, usual_pairs
from genpr.report.pages.picks import Image, Side, hub_picks, realism_picks, repeat_picks
from genpr.report.pages.score_page import MOST_BYTES, Figure, html_report
from genpr.report.pages.set_map import SetMap, set_map

if TYPE_CHECKING:
    import torch

    from genpr.features.options import StageProgress

_ANY = BadImagePolicy("skip", 1.0)  # images without a class are none the worse here


def evidence_report(
    evidence: PerImageScores,
    real: object = None,
    fake: object = None,
    *,
    real_labels: object = None,
    fake_labels: object = None,
    earlier: Mapping[str, Result] | None = None,
    policy: DecodePolicy | None = None,
    device: torch.device | str = "auto",
    progress: StageProgress | None = None,
    most_bytes: int = MOST_BYTES,
) -> str:
    """A score as one self-contained page, with the images behind the numbers.

    Args:
        evidence: Of `genpr.Evaluator.evidence`.
        real: Where the pictures of the reals are: the source that was scored. None, a source of features, or an iterable
            that gives its images once shows none.
        fake: Likewise of the fakes.
        real_labels: Classes of the reals, which name the kinds that are missed: as of `genpr.find_modes`. None takes what
            `real` has.
        fake_labels: Likewise of the fakes.
        earlier: As of `html_report`.
        policy: How pictures are decoded; None for the default limits.
        device: Where kinds of images are looked for.
        progress: Called with a stage ("kinds", "pictures"), what is done, and the total.
        most_bytes: As of `html_report`.

    Returns:
        The text of the file.

    Example:
        >>> import genpr, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(size=(2, 100, 4))
        >>> page = evidence_report(genpr.Evaluator(real, control=False).evidence(fake))
        >>> "k-NN radii" in page
        True
    """
    album = Album.of(evidence, {"real": real, "fake": fake}, policy or DecodePolicy())
    labels = (
        _labels(real, evidence.sides[0], "real", real_labels),
        _labels(fake, evidence.sides[1], "fake", fake_labels),
    )
    points = project(*(side.features for side in evidence.sides), seed=evidence.result.seed, device=device)
    galleries = _galleries(evidence, album, points, labels, device, progress) if album.has_pictures else []
    radii = evidence.own_radii
    return html_report(
        evidence.result,
        galleries,
        earlier=earlier,
        realism=evidence.fake.realism,
        real_radii=None if radii is None else radii.real,
        fake_radii=None if radii is None else radii.fake,
        figures=class_figures(evidence.classes),
        set_map=_map(points, album),
        most_bytes=most_bytes,
    )


def _galleries(
    evidence: PerImageScores,
    album: Album,
    points: Projection,
    labels: tuple[KnownLabels, KnownLabels],
    device: torch.device | str,
    progress: StageProgress | None,
) -> list[Gallery]:
    """All pictures are read in one go, those of the map, too."""
    report = progress or (lambda *_: None)
    missed, invented = mode_picks(evidence, labels=labels, device=device, progress=progress)
    least, most = realism_picks(evidence)
    hubs, repeats, candidates = hub_picks(evidence), repeat_picks(evidence), copy_candidates(evidence)
    usual = usual_pairs(evidence)
    mistaken = mistaken_picks(evidence)
    above = [*([] if mistaken is None else [mistaken]), missed, invented, least]
    below = [most, hubs, repeats]
    picks = [
        *candidates,
        *usual,
        *(pick for each in (*above, *below) for pick in each.picks),
    ]
    report("pictures", 0, 1)
    album.read([*_images(points), *(image for pick in picks for image in pick.images)])
    report("pictures", 1, 1)
    copies = copies_among(candidates, usual, album)
    return [album.gallery(each) for each in (*above, copies, *below)]


def _map(points: Projection, album: Album) -> SetMap:
    images = _images(points)
    pictures = {place: album.pixels[image] for place, image in enumerate(images) if image in album.pixels}
    return set_map(points, album.names_of(images), pictures)


def _labels(source: object, features: FeatureSet, role: Side, given: object) -> KnownLabels:
    """Classes that are known; a page can do without, and says nothing of them where they do not fit."""
    try:
        opened = features if source is None else open_input(source, role)
        found = OptionalLabels.open(given, label_location(source, opened), role).match(opened, features, _ANY)
    except GenprError:
        if given is not None:
            raise
        return None
    return None if found is None else found.labels


def _images(points: Projection) -> list[Image]:
    sides: list[Side] = ["real" if is_real else "fake" for is_real in points.is_real.tolist()]
    return list(zip(sides, points.rows.tolist(), strict=True))


def class_figures(classes: ClassScores | None) -> Sequence[Figure]:
    """The heat map of a score class by class, if there is one."""
    if classes is None:
        return ()
    from genpr.report.plots.class_plot import class_heat_map

    named = some([each.label for each in classes.left_out])
    left_out = f" Left out, with too few images on a side: {named}." if classes.left_out else ""
    sentence = f"{len(classes.classes):,} classes, each scored within itself, the worst first.{left_out}"
    return [Figure("Classes", sentence, class_heat_map(classes), is_broad=True)]
