"""A score as one self-contained HTML file: summary, warnings, tables, figures, galleries and provenance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from genpr.errors import GenprError
from genpr.evaluation.labels import SourceLabels
from genpr.evaluation.per_image import PerImageScores
from genpr.evaluation.result import ClassScores, Result
from genpr.features.feature_set import FeatureSet
from genpr.features.source_features import open_input
from genpr.images.policy import BadImagePolicy, DecodePolicy, policy_of
from genpr.metrics.f_beta import F_SCORE_METRICS
from genpr.metrics.metric import MANIFOLD, family_of
from genpr.metrics.registry import ALL_METRICS
from genpr.report import selections
from genpr.report.interpretation import interpret
from genpr.report.page import Figure, Gallery, Role, load_images, open_pictures, render_page
from genpr.report.plots import plane
from genpr.report.score_tables import detail_tables, features_of, metric_texts, remarks_of
from genpr.report.text import shown

if TYPE_CHECKING:
    import torch

    from genpr.conditional.align import Aligned
    from genpr.evaluation.diversity import Diverse
    from genpr.evaluation.reconstruction import Reconstructed
    from genpr.features.options import StageProgress

_DASH = "–"
_BETTER = {"higher": "higher", "lower": "lower", "at null": "near perfect"}


def html_report(
    result: Result, galleries: Sequence[Gallery] = (), *, classes: ClassScores | None = None
) -> str:
    """A result as one self-contained page: no other file, no network, light or dark as the reader prefers.

    Args:
        result: From `genpr.score` or `genpr.load_results`.
        galleries: Pictures to show. A gallery replaces the table of the same title.
        classes: The same score class by class.

    Returns:
        The text of the file, which can be encoded in UTF-8.

    Example:
        >>> import genpr, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(size=(2, 100, 4))
        >>> page = html_report(genpr.score(real, fake, control=False))
        >>> page.startswith("<!doctype html>")
        True
    """
    pictured = {each.title for each in galleries if each.pictures}
    is_of_images = result.real.what == "images"
    others = [name for family, names in result.families.items() if family != MANIFOLD for name in names]
    figures, rows = plane_of([(1, result)]), metric_rows(result, others)
    summary, caveats = interpret(result)
    details = [each for each in detail_tables(result, classes, on_page=True) if each.title not in pictured]
    names = [each.source.rstrip("/").rpartition("/")[2] or each.source for each in (result.real, result.fake)]
    roles = ("reals", "fakes") if is_of_images else result.roles
    return render_page(
        "report.html",
        {"": result},
        galleries=galleries,
        title=f"{shown(names[1])} against {shown(names[0])}",
        record=result.to_json(),
        kicker="score" if is_of_images else result.protocol,
        facts=[f"{result.fake.n:,} {roles[1]}, {result.real.n:,} {roles[0]}", *features_of(result)],
        summary=summary,
        caveats=caveats,
        rows=metric_rows(result, result.families.get(MANIFOLD, ())),
        conditional_rows=rows,
        conditional_columns=[
            head for head in ("null", "chance", "pool") if any(row[head] != _DASH for row in rows)
        ],
        details=details,
        details_title="Labels, classes, prompts and entities" if result.diversity is None else "Groups",
        figures=figures,
    )


def metric_rows(result: Result, names: Iterable[str]) -> list[dict[str, Any]]:
    """Texts of each metric by column, with a dash for unknown ones; "line" has what is drawn of metrics that are shares."""
    rows = []
    for name in names:
        metric, info = result.metrics[name], ALL_METRICS[name]
        texts = metric_texts(result, name, between=" to ")
        mark = metric.chance if metric.known_null is None else metric.known_null
        line = (metric.value, *(metric.interval or (metric.value, metric.value)), mark)
        is_share = texts["/null"] != "-" or (info.upper == 1 and family_of(name) != MANIFOLD)
        row = {head: _DASH if text == "-" else text.replace("%", " %") for head, text in texts.items()}
        meaning = "; ".join([info.meaning, *remarks_of(result, name)])
        row |= {"name": name, "meaning": meaning, "better": _BETTER[info.better]}
        rows.append({**row, "line": line if is_share else None})
    return rows


def plane_of(results: Sequence[tuple[int, Result]]) -> list[Figure]:
    """The plot of all results that have precision and recall, each with its number; none without such results."""
    found = [each for each in results if {*F_SCORE_METRICS} <= {*each[1].metrics}]
    if not found:
        return []
    text = "Higher is better fidelity, further right is better diversity."
    if all(found[0][1].metrics[name].known_null is not None for name in F_SCORE_METRICS):
        text += " The cross is a perfect generator with the same numbers of images."
    if len(results) > 1:
        text += " The line is the Pareto front: no result exceeds those at its corners in both values."
    return [Figure("Precision and recall", text, plane(found))]


def evidence_report(
    evidence: PerImageScores,
    real: object = None,
    fake: object = None,
    *,
    real_labels: object = None,
    fake_labels: object = None,
    policy: DecodePolicy | None = None,
    device: torch.device | str = "auto",
    progress: StageProgress | None = None,
) -> str:
    """A score as one self-contained page with images.

    Args:
        evidence: From `genpr.Evaluator.evidence`.
        real: The source of the reals that was scored. Without it, with features, or with an iterable that can be read only
            once, the page shows no images of this set.
        fake: The source of the fakes, with the same rules.
        real_labels: Classes of the reals, which name the clusters, as for `genpr.find_modes`; None takes those in `real`.
        fake_labels: Classes of the fakes, which name the clusters; None takes those in `fake`.
        policy: How images are decoded; None for the choices of the score with the default limits.
        device: Device of the search for modes.
        progress: Called with "kinds", the progress of the search for modes, and the total.

    Returns:
        The text of the file.

    Example:
        >>> import genpr, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(size=(2, 100, 4))
        >>> page = evidence_report(genpr.Evaluator(real, control=False).evidence(fake))
        >>> "Precision and recall" in page
        True
    """
    policy = policy or policy_of(evidence.result.fake.decoder)
    reals, fakes = evidence.sides
    pictures = open_pictures({"real": real, "fake": fake}, {"real": reals, "fake": fakes}, policy)
    labels = (
        _labels(real, reals, "real", real_labels, policy),
        _labels(fake, fakes, "fake", fake_labels, policy),
    )
    galleries = []
    if pictures:
        modes = selections.select_modes(evidence, labels=labels, device=device, progress=progress)
        least, most = selections.select_by_realism(evidence)
        chosen = [*modes, least, selections.select_likely_copies(evidence), most]
        galleries = load_images(pictures, chosen)
    return html_report(evidence.result, galleries, classes=evidence.classes)


def _labels(
    source: object, features: FeatureSet, role: Role, given: object, policy: DecodePolicy
) -> selections.KnownLabels:
    """The classes of a source; those that do not fit are an error only if they were given by the user."""
    any_missing = BadImagePolicy("skip", 1.0)
    try:
        opened = features if source is None else open_input(source, role, policy)
        found = SourceLabels.open(given, opened, role, any_missing, is_optional=True).match(features)
    except GenprError:
        if given is not None:
            raise
        return None
    return None if found is None else found.labels


def align_report(aligned: Aligned, images: object = None, *, policy: DecodePolicy | None = None) -> str:
    """An alignment as one self-contained page, with the images that match another prompt better than their own.

    `images` is the source that was scored; None shows no images.
    """
    chosen = [selections.select_by_prompt(aligned)]
    return _report_with_images(aligned.result, {"fake": images}, {"fake": aligned.features}, chosen, policy)


def reconstruction_report(
    found: Reconstructed, real: object, fake: object, *, policy: DecodePolicy | None = None
) -> str:
    """Metrics of pairs as one self-contained page, with the worst pairs by each metric.

    `real` and `fake` are the sources of the originals and of the reconstructions.
    """
    sets: dict[Role, FeatureSet] = {"real": found.sources[0], "fake": found.sources[1]}
    chosen = [selections.select_worst_pairs(found, metric) for metric in found.values]
    return _report_with_images(found.result, {"real": real, "fake": fake}, sets, chosen, policy)


def diversity_report(
    found: Diverse, given: Mapping[Role, object], *, policy: DecodePolicy | None = None
) -> str:
    """Diversity within groups as one page, with images of the least diverse groups; `given` are the sources by role."""
    chosen = [selections.select_groups(found, role) for role in found.images]
    return _report_with_images(found.result, given, found.images, chosen, policy)


def _report_with_images(
    result: Result,
    given: Mapping[Role, object],
    sets: Mapping[Role, FeatureSet],
    chosen: Sequence[Gallery],
    policy: DecodePolicy | None,
) -> str:
    pictures = open_pictures(given, sets, policy or policy_of(result.fake.decoder))
    return html_report(result, load_images(pictures, chosen) if pictures else ())
