"""A score as one HTML file without other files: summary, warnings, table, figures, map, galleries and provenance."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from genpr.errors import DataError, GenprError, UsageError, some
from genpr.evaluation.compare import compare
from genpr.evaluation.labels import OptionalLabels
from genpr.evaluation.per_class import ClassScores
from genpr.evaluation.per_image import PerImageScores
from genpr.evaluation.result import AlignmentSummary, EntitySummary, LabelSummary, Result
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import label_location, open_input
from genpr.images.policy import BadImagePolicy, DecodePolicy
from genpr.metrics.f_beta import F_SCORE_METRICS
from genpr.metrics.metric import MANIFOLD
from genpr.metrics.projection import Projection, project
from genpr.metrics.registry import ALL_METRICS
from genpr.report import selections
from genpr.report.gallery import Gallery, ImageLoader, ImageRef, Role
from genpr.report.interpretation import interpret
from genpr.report.page import MOST_BYTES, Figure, render_page
from genpr.report.plots import class_heat_map, has_plane, histogram, plane
from genpr.report.provenance import provenance_of
from genpr.report.score_tables import (
    control_text,
    features_of,
    known_null,
    relative_text,
    remarks_of,
    value_text,
)
from genpr.report.set_map import SetMap, set_map
from genpr.report.similarity import copy_candidates, near_copies, usual_pairs
from genpr.report.text import interval, number, shown

if TYPE_CHECKING:
    import torch

    from genpr.conditional.align import Aligned
    from genpr.features.options import StageProgress

_DASH = "–"
_BETTER = {"higher": "more", "lower": "less", "at null": "at its null"}
_TOP = 1.2  # of the line of a metric; a value beyond it is drawn at the end


def html_report(
    result: Result,
    galleries: Sequence[Gallery] = (),
    *,
    earlier: Mapping[str, Result] | None = None,
    realism: ArrayLike | None = None,
    real_radii: ArrayLike | None = None,
    fake_radii: ArrayLike | None = None,
    figures: Sequence[Figure] = (),
    set_map: SetMap | None = None,
    most_bytes: int = MOST_BYTES,
) -> str:
    """A result as one self-contained page: no other file, no network, light or dark as the reader prefers.

    Args:
        result: Of `genpr.score`, or an old one of `genpr.load_results`.
        galleries: Pictures to show; as many of each as `most_bytes` allows. One replaces the table of the same title.
        earlier: Other results for the plane of precision and recall, by name, with what differs from this one.
        realism: (m,) of the fakes, finite or infinite where a fake equals a real; drawn as a histogram.
        real_radii: (n,) distances of reals to their k-th neighbors; drawn as a histogram.
        fake_radii: (m,) the same of the fakes, over the same bins.
        figures: More drawings, after these.
        set_map: Both sets on a plane, as `genpr.report.set_map.set_map` draws it.
        most_bytes: The page stays below that as far as leaving out pictures of galleries can make it, and says how many. A
            map that would take more than half of it loses all of its pictures.

    Returns:
        The text of the file, in characters that UTF-8 can hold.

    Raises:
        UsageError: An array is not one row of numbers ("bad-option"), or fake radii come without those of reals.

    Example:
        >>> import genpr, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(size=(2, 100, 4))
        >>> page = html_report(genpr.score(real, fake, control=False))
        >>> page.startswith("<!doctype html>")
        True
    """
    others = earlier or {}
    pictured = {each.title for each in galleries if each.pictures}
    drawn = [*_plane(result, others), *_histograms(realism, real_radii, fake_radii), *figures]
    is_of_images = result.real.what == "images"
    families = [names for family, names in result.families.items() if family != MANIFOLD]
    return render_page(
        "report.html",
        galleries,
        most_bytes,
        version=result.versions.get("genpr", ""),
        result=result,
        made_by=features_of(result),
        names=[_last_part(each.source) for each in (result.real, result.fake)],
        interpretation=interpret(result),
        warnings=[(item, ()) for item in result.notices if item.level == "warning"],
        notes=[(item, ()) for item in result.notices if item.level == "note"],
        kicker="score" if is_of_images else result.protocol,
        roles=("reals", "fakes") if is_of_images else result.roles,
        rows=metric_rows(result, result.families.get(MANIFOLD, ())),
        conditional_rows=metric_rows(result, [name for names in families for name in names]),
        tables=[table for table in detail_tables(result) if table.title not in pictured],
        figures=drawn,
        earlier=_earlier(result, others),
        set_map=set_map.without_pictures() if set_map and set_map.size > most_bytes / 2 else set_map,
        provenance=provenance_of(result),
        record=base64.b64encode(result.to_json().encode()).decode(),
    )


def metric_rows(result: Result, names: Iterable[str]) -> list[dict[str, Any]]:
    """Texts of each metric by column; a dash where something is not known.

    "mark" is what its value is compared with on the line, the null or else chance; "line" holds the positions of the value,
    both ends and the mark on it, 0 to 100, None for what is no share.
    """
    bounds = {} if result.entities is None else {each.metric: each for each in result.entities.bounds}
    rows = []
    for name in names:
        metric, info = result.metrics[name], ALL_METRICS[name]
        null, relative = known_null(metric), relative_text(name, metric)
        control = control_text(name, result.control, "{value:.3f} (null {null:.3f})")
        mark = metric.chance if metric.null is None else metric.null
        low, high = metric.interval or (metric.value, metric.value)
        line = [None if each is None else _position(each) for each in (metric.value, low, high, mark)]
        is_share = (
            relative != "-" if name in result.families.get(MANIFOLD, ()) else name != "alignment.clip_score"
        )
        remarks = remarks_of(result, metric)
        if name in bounds:
            ends = bounds[name].low, bounds[name].high
            remarks.append(
                "{:.3f} if all unreadable answers were wrong, {:.3f} if all were right".format(*ends)
            )
        row = {
            "name": name,
            "meaning": "; ".join([info.meaning, *remarks]),
            "value": value_text(metric),
            "interval": interval(metric.interval, " to ", _DASH),
            "null": number(null, _DASH),
            "relative": _DASH if relative == "-" else relative.replace("%", " %"),
            "k": _DASH if metric.k is None else str(metric.k),
            "control": _DASH if control == "-" else control,
            "chance": number(metric.chance, _DASH),
            "pool": _DASH if metric.pool is None else f"{metric.pool:,}",
            "better": _BETTER[info.better],
            "mark": f"chance {number(metric.chance)}" if metric.null is None else f"null {number(null)}",
            "line": line if is_share else None,
        }
        rows.append(row)
    return rows


def _position(value: float) -> float:
    return round(100 * min(max(value, 0.0), _TOP) / _TOP, 2)


def _last_part(source: str) -> str:
    """The name of a file or folder without the folders above, for headings."""
    return source.rstrip("/").rsplit("/", 1)[-1] or source


def _plane(result: Result, earlier: Mapping[str, Result]) -> list[Figure]:
    if not has_plane(result):
        return []
    sentence = (
        "Up is better images, right is more variety. No generator is expected beyond the cross: that is a perfect one with "
        "so many images."
    )
    if (control := result.control) is not None:
        sentence += f" Reals against reals are {control.n_real:,} against {control.n_fake:,} images."
    return [Figure("Precision and recall", sentence, plane(result, list(earlier.values())))]


def _earlier(result: Result, earlier: Mapping[str, Result]) -> list[dict[str, Any]]:
    """The other results of the plane, and why they may not be compared."""
    found = []
    for index, (name, other) in enumerate(earlier.items(), 1):
        try:
            differences = compare({"this result": result, "it": other}, force=True).differences
        except DataError as error:
            differences = (str(error),)
        values = {each: f"{other[each]:.3f}" if each in other.metrics else _DASH for each in F_SCORE_METRICS}
        found.append(
            {
                "number": index if has_plane(other) else None,
                "name": name,
                "differences": differences,
                **values,
            }
        )
    return found


_OUTERMOST = "The outermost half percent at either end is drawn at the edge."


def _histograms(
    realism: ArrayLike | None, real_radii: ArrayLike | None, fake_radii: ArrayLike | None
) -> list[Figure]:
    if fake_radii is not None and real_radii is None:
        raise UsageError("fake_radii are drawn beside real_radii, which are missing", code="bad-option")
    found = []
    if realism is not None:
        values = _checked("realism", realism, is_finite=False)
        finite = values[np.isfinite(values)]
        text = (
            f"{(values >= 1).mean():.1%} of the fakes have a realism of 1 or more: they lie inside the ball of a real image. "
            "The larger half of the balls is left out here, and counts for precision."
        )
        if copies := len(values) - len(finite):
            text += f" {copies:,} equal a real image and have no finite realism."
        if len(finite):
            mark = (1.0, "edge of the manifold")
            svg = histogram([("fakes", finite)], name="realism", x_label="realism", mark=mark)
            found.append(Figure("Realism", f"{text} {_OUTERMOST}", svg))
    if real_radii is not None:
        samples = [("reals", _checked("real_radii", real_radii))]
        samples += [] if fake_radii is None else [("fakes", _checked("fake_radii", fake_radii))]
        medians = " and ".join(f"{np.median(values):.3g} for {name}" for name, values in samples)
        text = f"Distance of each image to its k-th neighbor in its own set; the median is {medians}. {_OUTERMOST}"
        found.append(Figure("k-NN radii", text, histogram(samples, name="radii", x_label="k-NN radius")))
    return found


def _checked(name: str, values: ArrayLike, *, is_finite: bool = True) -> NDArray[np.float64]:
    """One row of numbers; only infinity is allowed beside finite ones, and only unless `is_finite`."""
    row = np.asarray(values)
    is_row = row.ndim == 1 and len(row) and row.dtype.kind in "fiu"
    row = row.astype(np.float64) if is_row else row
    if not is_row or np.isnan(row).any() or (is_finite and np.isinf(row).any()):
        what = "finite number" if is_finite else "number"
        text = f"{name} needs one {what} per image, not an array of shape {row.shape} and dtype {row.dtype}"
        raise UsageError(f"{text}{' with other values' if is_row else ''}", code="bad-option")
    return row


_MOST_ROWS, _FEW_ROWS = 30, 12
_CELL = 120  # characters


@dataclass(frozen=True, slots=True)
class DetailTable:
    """Classes, prompts or entities of a score, the worst first.

    Attributes:
        title: The heading.
        sentence: What is shown.
        heads: Of the columns; the first holds names.
        rows: As text.
        more: Rows that are only in the JSON.
    """

    title: str
    sentence: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: int = 0


def detail_tables(result: Result) -> list[DetailTable]:
    """Those that have rows."""
    found: list[DetailTable] = []
    if result.labels is not None:
        found += _label_tables(result.labels)
    if result.alignment is not None:
        found.append(_prompt_table(result.alignment))
    if result.entities is not None:
        found += _entity_tables(result.entities)
    return [table for table in found if table.rows]


def _table(
    title: str, sentence: str, heads: tuple[str, ...], rows: Iterable[tuple[str, ...]], most: int, total: int
) -> DetailTable:
    cells = tuple(tuple(shown(cell, longest=_CELL) for cell in row) for row in list(rows)[:most])
    return DetailTable(title, sentence, heads, cells, max(0, total - len(cells)))


def _share(value: float | None) -> str:
    return _DASH if value is None else f"{value:.1%}".replace("%", " %")


def _label_tables(found: LabelSummary) -> list[DetailTable]:
    has_null = any(row.null_recall is not None for row in found.rows)
    neighbors = "" if found.k is None else f" (k = {found.k:,})"
    perfect = " Perfect: precision and recall of a perfect generator in the class." * has_null
    undefined = "".join(f" No value: {each}." for each in found.undefined)
    sentence = (
        "Requested: images that should be of the class. Recognized: of these, those that are recognized as it; others: images "
        f"of other classes that are recognized as it. By {shown(found.classifier, longest=_CELL)}{neighbors}."
    )
    rows = [
        (
            *(row.label, f"{row.n:,}", f"{row.tp:,}", f"{row.fp:,}"),
            *map(_share, (row.precision, row.recall, row.f1)),
            *[" / ".join(map(_share, (row.null_precision, row.null_recall)))] * has_null,
        )
        for row in found.rows
    ]
    heads = (
        "class",
        "requested",
        "recognized",
        "others",
        "precision",
        "recall",
        "F1",
        *["perfect"] * has_null,
    )
    confusions = [(each.asked, each.recognized, f"{each.n:,}") for each in found.confusions]
    return [
        _table("Classes, worst first", sentence + perfect + undefined, heads, rows, _MOST_ROWS, len(rows)),
        _table(
            "Most frequent confusions",
            "The requested class, and the one that was recognized.",
            ("requested", "recognized", "images"),
            confusions,
            _FEW_ROWS,
            len(confusions),
        ),
    ]


def _prompt_table(found: AlignmentSummary) -> DetailTable:
    rows = [(each.image, each.prompt, f"{each.rank:g}", each.winner) for each in found.failures]
    sentence = f"Each image ranks its own prompt among {found.pool:,}; these do not rank it first, or not alone; the worst first."
    heads = ("image", "its prompt", "rank", "ranked first")
    total = max(len(rows), found.n_failures)
    return _table("Images that fit another prompt better", sentence, heads, rows, _FEW_ROWS, total)


def _entity_tables(found: EntitySummary) -> list[DetailTable]:
    seen = found.classifier
    rates = {}
    if seen is not None and seen.chosen == "labeled":
        rates = {each.entity: (each.sensitivity, each.false_positive_rate) for each in seen.entities}
    rows = [
        (
            *(row.entity, f"{row.n_expected:,}", f"{row.n_found:,}"),
            _share(row.n_found / row.n_expected if row.n_expected else None),
            _DASH if row.n_false is None else f"{row.n_false:,}",
            *(map(_share, rates.get(row.entity, (None, None))) if rates else ()),
        )
        for row in found.rows
    ]
    sentence = (
        "Expected: how often it should be there; found: of these; unexpected: found where it should not be."
    )
    heads: tuple[str, ...] = ("entity", "expected", "found", "recall", "unexpected")
    if rates and seen is not None:
        heads += ("sensitivity", "false positives")
        sentence += (
            " Sensitivity and false positives: shares of labeled images with it, and without it, in which "
            f"{shown(seen.name, longest=_CELL)} recognizes it."
        )
    unread = [(each.name, each.reason, each.answer) for each in found.unreadable]
    text = f"{len(unread):,} of {found.n_answers:,} answers; they are in no score but the failure rate."
    return [
        _table("Entities, worst first", sentence, heads, rows, _MOST_ROWS, len(rows)),
        _table("Unreadable answers", text, ("about", "why", "it begins"), unread, _FEW_ROWS, len(unread)),
    ]


def class_figures(classes: ClassScores | None) -> Sequence[Figure]:
    """The heat map of a score class by class, if there is one."""
    if classes is None:
        return ()
    left_out = ""
    if classes.left_out:
        left_out = f" Left out, with too few images: {some([each.label for each in classes.left_out])}."
    sentence = f"{len(classes.classes):,} classes, each scored within itself, the worst first.{left_out}"
    return [Figure("Classes", sentence, class_heat_map(classes), is_broad=True)]


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
        real: Where the images of the reals are: the source that was scored. None, a source of features, or an iterable
            that gives its images once shows none.
        fake: Likewise of the fakes.
        real_labels: Classes of the reals, which name the missed modes: as of `genpr.find_modes`. None takes what `real`
            has.
        fake_labels: Likewise of the fakes.
        earlier: As of `html_report`.
        policy: How images are decoded; None for the default limits.
        device: Where modes are searched for.
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
    reals, fakes = evidence.real, evidence.fake
    loader = ImageLoader(
        {"real": (real, reals.names, reals.identities), "fake": (fake, fakes.names, fakes.identities)},
        policy or DecodePolicy(),
    )
    labels = (
        _labels(real, evidence.sides[0], "real", real_labels),
        _labels(fake, evidence.sides[1], "fake", fake_labels),
    )
    points = project(*(each.features for each in evidence.sides), seed=evidence.result.seed)
    galleries = []
    if loader.has_images:
        modes = selections.select_modes(evidence, labels=labels, device=device, progress=progress)
        galleries = _galleries(evidence, loader, _refs(points), modes, progress)
    radii = evidence.own_radii
    refs = _refs(points)
    pictures = {index: loader.pixels[ref] for index, ref in enumerate(refs) if ref in loader.pixels}
    return html_report(
        evidence.result,
        galleries,
        earlier=earlier,
        realism=evidence.fake.realism,
        real_radii=None if radii is None else radii.real,
        fake_radii=None if radii is None else radii.fake,
        figures=class_figures(evidence.classes),
        set_map=set_map(points, [loader.names[role][row] for role, row in refs], pictures),
        most_bytes=most_bytes,
    )


def _galleries(
    evidence: PerImageScores,
    loader: ImageLoader,
    on_map: Sequence[ImageRef],
    modes: list[Gallery],
    progress: StageProgress | None,
) -> list[Gallery]:
    """All images are read at once, those of the map, too."""
    least, most = selections.select_by_realism(evidence)
    candidates, usual = copy_candidates(evidence), usual_pairs(evidence)
    above = [*selections.select_mislabeled(evidence), *modes, least]
    below = [most, selections.select_hubs(evidence), selections.select_repeats(evidence)]
    pictures = [*candidates, *usual, *(picture for each in (*above, *below) for picture in each.pictures)]
    if progress is not None:
        progress("pictures", 0, 1)
    loader.read([*on_map, *(ref for picture in pictures for ref in picture.refs)])
    if progress is not None:
        progress("pictures", 1, 1)
    return [loader.gallery(each) for each in (*above, near_copies(candidates, usual, loader), *below)]


def _labels(source: object, features: FeatureSet, role: Role, given: object) -> selections.KnownLabels:
    """Known classes; without labels that were given, classes that do not fit are ignored."""
    any_missing = BadImagePolicy("skip", 1.0)
    try:
        opened = features if source is None else open_input(source, role)
        found = OptionalLabels.open(given, label_location(source, opened), role).match(
            opened, features, any_missing
        )
    except GenprError:
        if given is not None:
            raise
        return None
    return None if found is None else found.labels


def _refs(points: Projection) -> list[ImageRef]:
    roles: list[Role] = ["real" if is_real else "fake" for is_real in points.is_real.tolist()]
    return list(zip(roles, points.rows.tolist(), strict=True))


def align_report(
    aligned: Aligned,
    images: object = None,
    train: object = None,
    *,
    earlier: Mapping[str, Result] | None = None,
    policy: DecodePolicy | None = None,
    most_bytes: int = MOST_BYTES,
) -> str:
    """An alignment as one self-contained page, with the images that fit another prompt better than their own.

    Args:
        aligned: Of `genpr.conditional.align.align_with`.
        images: Where the images are: what was aligned. None, features, or an iterable that gives its images once shows none.
        train: Where the training images are, if copies of them were looked for; None shows none of them.
        earlier: As of `html_report`.
        policy: How images are decoded; None for the default limits.
        most_bytes: As of `html_report`.

    Raises:
        GenprError: The images cannot be opened any more.
    """
    names, copies = [each.image for each in aligned.ranks], aligned.copies
    sources: dict[Role, tuple[object, Sequence[str], Any]] = {"fake": (images, names, aligned.identities)}
    if copies is not None:
        sources["real"] = (train, copies.names, copies.identities)
    loader, galleries = ImageLoader(sources, policy or DecodePolicy()), []
    if loader.has_images:
        chosen = selections.select_by_prompt(aligned)
        chosen += [] if copies is None else [selections.select_copies(names, copies)]
        loader.read(ref for each in chosen for picture in each.pictures for ref in picture.refs)
        galleries = [loader.gallery(each) for each in chosen]
    return html_report(aligned.result, galleries, earlier=earlier, most_bytes=most_bytes)
