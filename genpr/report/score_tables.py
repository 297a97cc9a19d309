"""Scores as text tables: metrics, then classes, labels, prompts, entities and modes, the worst first."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from genpr.errors import count_of, printable, some
from genpr.evaluation.result import EntitySummary, LabelSummary, Result, SideSummary, StatisticsSummary
from genpr.images.item import passed_over_text
from genpr.images.policy import choices_in
from genpr.metrics.metric import MANIFOLD, MetricValue, family_of
from genpr.metrics.registry import ALL_METRICS, BALLS, MOMENTS
from genpr.report.text import Table, and_more, cut, interval, number, plus_minus, wrapped

if TYPE_CHECKING:
    from genpr.evaluation.modes import FoundModes
    from genpr.evaluation.result import Average, ClassScores


def features_of(result: Result) -> list[str]:
    """The extractor of the features; none for scores of answers, which have no features, and of pairs, which may have several."""
    if (info := result.extractor) is not None:
        return [f"{info.name} ({info.dim}-d, {info.resize_text})"]
    is_of_answers = result.entities is not None and set(result.families) <= {"entity"}
    return [] if is_of_answers or result.is_of_pairs else ["features of an unknown extractor"]


def remarks_of(result: Result, name: str) -> list[str]:
    """Remarks on one value: spread, bias, features, variant."""
    metric, found = result.metrics[name], []
    if metric.spread is not None:
        found.append(f"standard deviation {metric.spread:.4g} over {metric.spread_over}")
    if metric.bias is not None:
        found.append(f"finite-sample bias of at least about {metric.bias:.3g}")
    own = result.extractor.name if result.extractor else None
    if metric.extractor not in {None, own} and (own or result.is_of_pairs):
        found.append(f"on {metric.extractor} features")
    if metric.variant is not None:
        found.append(metric.variant)
    return found


def metric_texts(result: Result, name: str, *, between: str = " - ") -> dict[str, str]:
    """The texts of a metric by column; a hyphen for unknown ones."""
    metric, control = result.metrics[name], result.control
    value, null = (None, None) if control is None else (control.values.get(name), control.nulls.get(name))
    is_share = metric.relative is not None and ALL_METRICS[name].better == "higher"
    return {
        "value": number(metric.value),
        "95 % interval": interval(metric.interval, between, as_values=result.is_of_pairs),
        "null": number(metric.known_null),
        "/null": f"{metric.relative:.0%}" if is_share else "-",
        "k": "-" if metric.k is None else str(metric.k),
        "real v. real": number(value) if value is None or null is None else f"{value:.3f} ({null:.3f})",
        "chance": number(metric.chance),
        "pool": "-" if metric.pool is None else f"{metric.pool:,}",
    }


def score_table(result: Result) -> str:
    """Every metric with its interval, null and control, then explanations, the sources and settings."""
    found, control = result.metrics, result.control
    purposes = {
        purpose: ", ".join(name for name in found if f"({purpose})" in ALL_METRICS[name].meaning)
        for purpose in ("fidelity", "diversity")
    }
    purposes["lower is better"] = ", ".join(name for name in found if ALL_METRICS[name].better == "lower")
    purpose = "; ".join(f"{what}: {names}" for what, names in purposes.items() if names)
    lines = [purpose] if purpose else []
    if any(metric.known_null is not None for metric in found.values()):
        perfect = "a perfect generator with these numbers of images"
        lines.append(f"null: the mean value of {'reals of the same groups' if result.diversity else perfect}")
    if control is not None:
        sizes = f"{control.n_real:,} of the reals against the other {control.n_fake:,}"
        lines.append(f"real v. real: {sizes} (in parentheses: null)")
    if any(metric.null_source == "real halves" for metric in found.values()):
        lines.append("without a null (-), compare the value with real v. real")
    if any(metric.chance is not None for metric in found.values()):
        lines.append("chance: the value of random guessing")
    if any(metric.pool is not None for metric in found.values()):
        lines.append("pool: number of ranked candidates")
    remarks: dict[str, list[str]] = {}
    for name in found:
        remarks.setdefault("; ".join(remarks_of(result, name)), []).append(name)
    lines += [f"{some(names, 6)}: {text}" for text, names in remarks.items() if text]
    lines += [f"undefined for these images: {', '.join(result.undefined)}"] * bool(result.undefined)
    sides = sides_text(dict(zip(result.roles, (result.real, result.fake), strict=True)))
    if result.reference_statistics is not None:
        sides += statistics_lines(result.reference_statistics)
    records = [{"metric": name} | metric_texts(result, name) for name in found]
    table = Table.of("", records, lines)
    return "\n".join([str(table), *sides, *map(wrapped, settings_lines(result))])


def sides_text(sides: Mapping[str, SideSummary]) -> list[str]:
    """A line for each source by its role; paths are not wrapped."""
    width, lines = max(map(len, sides)), []
    for role, summary in sides.items():
        chosen = "".join(f", {name} {value}" for name, value in choices_in(summary.decoder).items())
        skipped = f", {len(summary.skipped):,} left out" if summary.skipped else ""
        skipped += passed_over_text(summary.passed_over)
        counted = f"{summary.n:,} {summary.what}" if summary.n else "mean and covariance"
        counted += f" in {summary.n_groups:,} groups" if summary.n_groups else ""
        lines.append(f"{role:<{width}}  {counted} of {printable(summary.source + chosen)}{skipped}")
    return lines


def settings_lines(result: Result) -> list[str]:
    """Features, protocol and device of a result, and the hash of its settings."""
    balls = [f"{result.ties} balls"] * (MANIFOLD in result.families)
    parts = [*features_of(result), f"protocol {result.protocol}", *balls, result.device]
    lines = [", ".join(parts), f"settings hash {result.fingerprint}"]
    return [*lines, *["not comparable with published numbers"] * (not result.comparable)]


def statistics_lines(*results: StatisticsSummary) -> list[str]:
    """The reference statistics in a file and the metrics that use them; keys are named for a single result."""
    summary = results[0]
    names = ", ".join(dict.fromkeys(name for each in results for name in each.metrics))
    keys = f" ({', '.join(dict.fromkeys(summary.metrics.values()))})" if len(results) == 1 else ""
    facts = [summary.known] if summary.known else []
    facts += [f"of {summary.count:,} images"] if summary.count else []
    # Paths are not wrapped.
    first = f"{names} from mean and covariance{keys} of {printable(summary.source)}"
    return [first, *[wrapped(", ".join(facts), first="  ")] * bool(facts)]


_CHANCE = "± is half the 95 % interval of one class; among many classes, some look bad by chance"
_WORST, _FEW = 12, 8  # rows in text
_ON_PAGE = 30


def result_text(result: Result, classes: ClassScores | None = None) -> str:
    """A score as text: its metrics, then tables of labels, prompts, entities and classes."""
    return "\n\n".join([score_table(result), *map(str, detail_tables(result, classes))])


def detail_tables(
    result: Result, classes: ClassScores | None = None, *, on_page: bool = False
) -> list[Table]:
    """The tables with rows; those of a page have more rows."""
    most, few = (_ON_PAGE, _WORST) if on_page else (_WORST, _FEW)
    found: list[Table] = []
    if result.labels is not None:
        found += _label_tables(result.labels, most, few)
    if (ranked := result.alignment) is not None:
        rows = [
            [
                each.image,
                f"{each.rank:g}",
                each.prompt,
                f"{each.score:.3f}",
                each.winner,
                f"{each.winner_score:.3f}",
            ]
            for each in ranked.failures[:few]
        ]
        what = "listed are images that do not rank it first, or only tied"
        lines = [f"rank: position of the image's own prompt among {ranked.pool:,}; {what}"]
        lines += and_more(max(len(ranked.failures), ranked.n_failures) - len(rows))
        heads = ["image", "rank", "its prompt", "cosine", "ranked first", "cosine"]
        found.append(Table("Images that match another prompt better", heads, rows, lines, {0, 2, 4}))
    if result.entities is not None:
        found += _entity_tables(result.entities, most, few)
    if (within := result.diversity) is not None:
        records = []
        for group, row in list(within.groups.items())[:most]:
            counts = {name: f"{row[name]:,.0f}" for name in ("images", "pairs")}
            names = [name.partition(".")[2] for name in result.metrics]
            cells = {head: number(row.get(head)) for name in names for head in (name, f"real_{name}")}
            records.append({"group": group, **counts, **cells})
        pairs = sum(row["pairs"] for row in within.groups.values())
        total = (
            f"{pairs:,.0f} pairs of fakes in {count_of(len(within.groups), 'group')} from {within.grouped_by}"
        )
        lines = [*and_more(len(within.groups) - most), f"the least diverse groups first; {total}"]
        found.append(Table.of("Least diverse groups", records, lines))
    if classes is not None:
        found.append(class_table(classes, most))
    return [table for table in found if table.rows]


def label_lines(origins: Mapping[str, str], unlabeled: Mapping[str, int]) -> list[str]:
    """The origin of labels and the number of images without one, by role."""
    found = "; ".join(f"{role} labels: {origin}" for role, origin in origins.items())
    counts = {role: count for role, count in unlabeled.items() if count}
    none = [
        f"{count_of(count, f'{role} image')} without a label, in no class" for role, count in counts.items()
    ]
    return [found] * bool(found) + none


def _distance_lines(scores: ClassScores) -> list[str]:
    """The published name of averages of distances, their bias, and metrics without values of classes."""
    lines = []
    if frechet := [name for name in scores.macro if name in MOMENTS]:
        lines.append(f"intra-FID: the macro average of {', '.join(frechet)} (lower is better)")
    for name, average in scores.macro.items():
        if average.bias is not None:
            own = [each.metrics[name].bias or 0.0 for each in scores.classes]
            text = f"{min(own):.3g} to {max(own):.3g} in a class, {average.bias:.3g} in the macro average"
            lines.append(f"{name}: finite-sample bias of at least about {text}")
    if missing := [
        name for name in scores.overall.metrics if family_of(name) == MANIFOLD and name not in scores.macro
    ]:
        lines.append(f"not of each class: {', '.join(missing)}")
    return lines


def class_table(scores: ClassScores, most: int = _WORST) -> Table:
    """Classes as rows and metrics as columns, the worst classes first."""
    balls = [name for name in scores.macro if name in BALLS]
    raw = {BALLS[name].calibrates for name in balls}  # for which there is no room
    metrics = [name for name in scores.macro if name not in raw]

    def row(label: str, found: Mapping[str, MetricValue | Average], *sizes: int) -> list[str]:
        texts = [
            plus_minus(found[name].value, found[name].interval, 2 if name in BALLS else None)
            if name in found
            else "-"
            for name in metrics
        ]
        return [label, *([f"{size:,}" for size in sizes] or ["", ""]), *texts]

    rows = [row(found.label, found.metrics, found.n_real, found.n_fake) for found in scores.classes[:most]]
    averages = [row("macro average", scores.macro)]
    if balls:
        averages.append(row("micro average", scores.micro))
        nulls = [plus_minus(scores.macro[name].null, None) for name in metrics]
        averages.append(["perfect (macro)", "", "", *nulls])
    over = {
        role: ", ".join(name for name in balls if name not in raw and f"{BALLS[name].over}s" == role)
        for role in ("fakes", "reals")
    }
    weights = "; ".join(f"its {role} for {names}" for role, names in over.items() if names)
    count = len(scores.classes)
    lines = [
        *and_more(count - len(rows)),
        f"{count:,} class{'es' * (count > 1)}, sorted by {'mean value over null' if balls else 'their distances'}",
        "macro: all classes have equal weight"
        + f"; micro: each class is weighted by {weights}" * bool(balls),
        _CHANCE,
        *_distance_lines(scores),
    ]
    # Classes that were not scored, by reason, the largest first.
    ordered = sorted(scores.left_out, key=lambda each: (each.reason, -each.n_real - each.n_fake))
    for reason, group in groupby(ordered, key=lambda each: each.reason):
        sizes = [f"{cut(each.label, 30)} ({each.n_real:,} reals, {each.n_fake:,} fakes)" for each in group]
        need = f" (needed: {scores.min_images:,})" if reason.startswith("too few") else ""
        lines.append(f"left out, {reason}{need}: {some(sizes, 5, longest=80)}")
    lines += label_lines(scores.origins, scores.unlabeled)
    heads = ["class, worst first", "reals", "fakes", *metrics]
    return Table("Metrics of each class", heads, [*rows, *averages], lines)


def _label_tables(found: LabelSummary, most: int, few: int) -> list[Table]:
    """Requested against recognized labels, and the most frequent confusions."""
    records = []
    for row in found.rows[:most]:
        null = f"{plus_minus(row.null_precision, None)} {plus_minus(row.null_recall, None)}"
        records.append(
            {
                "class, worst first": row.label,
                "images": f"{row.n:,}",
                "others": f"{row.fp:,}",
                "precision": plus_minus(row.precision, row.precision_interval),
                "recall": plus_minus(row.recall, row.recall_interval),
                "F1": plus_minus(row.f1, None),
                "perfect": "-" if row.null_recall is None else null,
            }
        )
    votes = "" if found.k is None else f", k = {found.k:,}"
    perfect = "; perfect: precision and recall of a perfect generator"
    lines = [
        *and_more(len(found.rows) - len(records)),
        "others: images of other classes that are recognized as this class"
        + perfect * any(row.null_recall is not None for row in found.rows),
        *[_CHANCE] * any(row.recall_interval is not None for row in found.rows),
        *(*found.undefined, f"recognized by: {found.classifier}{votes}"),
        *label_lines(found.origins, found.unlabeled),
    ]
    confusions = [[each.requested, each.recognized, f"{each.n:,}"] for each in found.confusions[:few]]
    more, heads = and_more(len(found.confusions) - few), ["requested", "recognized", "images"]
    return [
        Table.of("Classes, worst first", records, lines),
        Table("Most frequent confusions", heads, confusions, more, {0, 1}),
    ]


def _entity_tables(found: EntitySummary, most: int, few: int) -> list[Table]:
    """The entities that were missed most often, and the first unreadable answers."""
    seen = found.classifier
    sensitivity = {each.entity: each.sensitivity for each in (() if seen is None else seen.entities)}
    records = []
    for row in found.rows[:most]:
        share = sensitivity.get(row.entity)
        records.append(
            {
                "entity, most missed first": row.entity,
                "expected": f"{row.n_expected:,}",
                "found": f"{row.n_found:,}",
                "recall": f"{row.n_found / row.n_expected:.3f}" if row.n_expected else "-",
                "wrong": "-" if row.n_false is None else f"{row.n_false:,}",
                "sensitivity": "-" if share is None else f"{share:.3f}",
            }
        )
    lines = and_more(len(found.rows) - len(records))
    if found.vocabulary is not None:
        lines.append(
            f"wrong: entities of the vocabulary ({found.vocabulary:,}) that are found but not expected"
        )
    elif all(row.n_false is None for row in found.rows):
        lines.append("wrong entities cannot be detected without a vocabulary")
    if any(each is not None for each in sensitivity.values()):
        lines.append("sensitivity: share of the labeled images with an entity in which it is recognized")
    lines += [f"no {metric}: {why}" for metric, why in found.undefined]
    if seen is not None:
        source = f" ({seen.source})" if seen.source else ""
        lines.append(f"recognized by {seen.name} ({seen.kind}); thresholds: {seen.chosen}{source}")
    unread = [[each.name, each.reason, each.answer] for each in found.unreadable[:few]]
    text = f"{len(found.unreadable):,} of {found.n_answers:,} answers; they count in failure_rate only"
    return [
        Table.of("Entities, worst first", records, lines),
        Table("Unreadable answers", ["answer of", "reason", "first words"], unread, [text], {0, 1, 2}),
    ]


def modes_table(found: FoundModes, *, every: bool = False) -> str:
    """A row per missing mode, a summary of clusters, and a row per significant cluster (all if `every`)."""
    modes, missing = found.modes, list[dict[str, str]]()
    for index, mode in enumerate(found.missing, start=1):
        shares = {"reals": f"{mode.real_share:.1%}", "fakes": f"{mode.fake_share:.1%}"}
        missing.append({"missing": str(index), **shares, "example": found.name_of("real", mode.row)})
    tables = [_clusters(found, every, is_real=True), _clusters(found, every, is_real=False)]
    features = "features of an unknown extractor" if found.extractor is None else found.extractor.name
    lines = [
        "p: probability of such a cluster if reals and fakes had the same distribution; clusters up to .05 are shown",
        f"real  {modes.n_real:,} images of {found.real}{passed_over_text(found.passed_over[0])}",
        f"fake  {modes.n_fake:,} images of {found.fake}{passed_over_text(found.passed_over[1])}",
        f"{features}, k = {modes.uncovered_k} for uncovered reals and {modes.outside_k} for fakes outside, seed {modes.seed}",
        *label_lines(found.origins, found.unlabeled),
    ]
    of_missing = [str(Table.of("", missing, texts={"example"}))] if missing else ["missing: no mode"]
    shown = [str(each) for each in tables if each.rows]
    summary, footer = ("\n".join(map(wrapped, each)) for each in (found.summary, lines))
    return "\n\n".join([*of_missing, summary, *shown, footer])


def _clusters(found: FoundModes, every: bool, *, is_real: bool) -> Table:
    from genpr.evaluation.modes import NAMED

    clusters = found.modes.uncovered if is_real else found.modes.outside
    size, flagged, others = ("reals", "uncovered", "fakes") if is_real else ("fakes", "outside", "reals")
    records = []
    for index, each in enumerate([each for each in clusters if each.is_significant or every], start=1):
        named = [(name, count / each.flagged) for name, count in each.classes]
        records.append(
            {
                "cluster": str(index),
                size: f"{each.size:,}",
                flagged: f"{each.flagged / each.size:.0%}",
                "expected": f"{each.expected / each.size:.0%}",
                others: f"{each.others:,}",
                "p": f"{each.p:.3f}",
                "mostly": ", ".join([f"{name} {share:.0%}" for name, share in named if share >= NAMED][:2])
                or "-",
                "example": found.name_of("real" if is_real else "fake", each.rows[0]),
            }
        )
    return Table.of("", records, texts={"mostly", "example"})
