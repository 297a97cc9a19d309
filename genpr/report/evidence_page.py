"""A score as a page that shows the images behind it: galleries, histograms and classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from genpr.class_scores import ClassScores
from genpr.errors import GenprError
from genpr.evidence import Evidence
from genpr.features.feature_set import FeatureSet
from genpr.images.likeness import Likeness, likeness
from genpr.images.policy import BadImagePolicy, DecodePolicy
from genpr.metrics.projection import Projection, project
from genpr.mode_labels import SideLabels
from genpr.report.album import Album
from genpr.report.gallery import Gallery
from genpr.report.mode_picks import KnownLabels, mode_picks
from genpr.report.page import MOST_BYTES, Figure, html_report
from genpr.report.picks import (
    Image,
    Pick,
    Selection,
    Side,
    copy_candidates,
    hub_picks,
    realism_picks,
    repeat_picks,
)
from genpr.report.set_map import SetMap, set_map
from genpr.result import Result
from genpr.sides import open_side

if TYPE_CHECKING:
    import torch

    from genpr.side_features import StageProgress

_CANDIDATES = 400  # pairs whose pixels are compared
_COPIES = 100
_ANY = BadImagePolicy("skip", 1.0)  # images without a class are none the worse here


def evidence_report(
    evidence: Evidence,
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
        >>> import genpr
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
    galleries, both = _shown(evidence, album, labels, device, progress)
    radii = evidence.own_radii
    return html_report(
        evidence.result,
        galleries if album.has_pictures else [],
        earlier=earlier,
        realism=evidence.fake.realism,
        real_radii=None if radii is None else radii.real,
        fake_radii=None if radii is None else radii.fake,
        figures=class_figures(evidence.classes),
        set_map=both,
        most_bytes=most_bytes,
    )


def _shown(
    evidence: Evidence,
    album: Album,
    labels: tuple[KnownLabels, KnownLabels],
    device: torch.device | str,
    progress: StageProgress | None,
) -> tuple[list[Gallery], SetMap]:
    """Everything that needs pictures, which are read in one go."""
    report = progress or (lambda *_: None)
    missed, invented = mode_picks(evidence, labels=labels, device=device, progress=progress)
    least, most = realism_picks(evidence)
    hubs, repeats, candidates = hub_picks(evidence), repeat_picks(evidence), _candidates(evidence)
    points = project(*(side.features for side in evidence.sides), seed=evidence.result.seed, device=device)
    images = _on_map(points)
    report("pictures", 0, 1)
    album.read(
        [
            *images,
            *(
                image
                for selection in (missed, invented, least, most, hubs, repeats, candidates)
                for pick in selection.picks
                for image in (pick.image, pick.partner)
                if image is not None
            ),
        ]
    )
    copies = _copies(candidates, album)
    report("pictures", 1, 1)
    galleries = [album.gallery(each) for each in (missed, invented, least, copies, most, hubs, repeats)]
    pictures = {place: album.pixels[image] for place, image in enumerate(images) if image in album.pixels}
    return galleries, set_map(points, album.names_of(images), pictures)


def _labels(source: object, features: FeatureSet, role: Side, given: object) -> KnownLabels:
    """Classes that are known; a page can do without, and says nothing of them where they do not fit."""
    try:
        opened = features if source is None else open_side(source, role)
        found = SideLabels.of(given, source, role).of_embedded(opened, features, _ANY)
    except GenprError:
        if given is not None:
            raise
        return None
    return None if found is None else found.labels


def _on_map(points: Projection) -> list[Image]:
    sides: list[Side] = ["real" if is_real else "fake" for is_real in points.is_real.tolist()]
    return list(zip(sides, points.rows.tolist(), strict=True))


def _candidates(evidence: Evidence) -> Selection:
    """Fakes that may be copies, beside the real that they may be copies of."""
    fake, real = evidence.fake, evidence.real
    rows = copy_candidates(evidence, _CANDIDATES).tolist()
    pairs = [(row, int(fake.nearest_real[row])) for row in rows]
    picks = tuple(Pick(("fake", a), fake.names[a], ("real", b), real.names[b]) for a, b in pairs)
    return Selection("Near-copies of real images", "", picks)


def _copies(candidates: Selection, album: Album) -> Selection:
    """Those that are copies by their pixels, the most alike first."""
    alike: list[tuple[Likeness, Pick]] = []
    for pick in candidates.picks:
        assert pick.partner is not None
        pixels = album.pixels.get(pick.image), album.pixels.get(pick.partner)
        if pixels[0] is not None and pixels[1] is not None:
            found = likeness(pixels[0], pixels[1])
            if found.is_same:
                alike.append((found, pick))
    alike.sort(key=lambda each: -min(each[0].detail, each[0].whole))
    picks = tuple(_with_likeness(pick, found) for found, pick in alike[:_COPIES])
    sentence = (
        f"Of the {len(candidates.picks):,} fakes that are nearest to a real image, {len(alike):,} "
        f"{'is' if len(alike) == 1 else 'are'} the same picture by their pixels, perhaps encoded anew, recoloured, "
        "mirrored or shifted a little. Data sets repeat themselves: a few such pairs prove no copying."
    )
    return Selection(candidates.title, sentence, picks, len(alike) - len(picks))


def _with_likeness(pick: Pick, found: Likeness) -> Pick:
    mirrored = ", mirrored" if found.is_mirrored else ""
    caption = f"{pick.caption}: agrees by {min(found.detail, found.whole):.3f}{mirrored}"
    return Pick(pick.image, caption, pick.partner, pick.partner_caption)


def class_figures(classes: ClassScores | None) -> Sequence[Figure]:
    """The heat map of a score class by class, if there is one."""
    if classes is None:
        return ()
    from genpr.report.class_plot import class_heat_map

    left_out = f" {len(classes.left_out):,} with too few images are left out." if classes.left_out else ""
    sentence = f"{len(classes.classes):,} classes, each scored within itself, the worst first.{left_out}"
    return [Figure("Classes", sentence, class_heat_map(classes))]
