"""Classes, labels, prompts, entities and modes of a score as text: the worst first, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from genpr.evaluation.modes import NAMED, FoundModes
from genpr.evaluation.per_class import WEAKEST_FIRST, ClassScores
from genpr.evaluation.result import AlignmentSummary, EntitySummary, LabelSummary, Result
from genpr.metrics.registry import BALLS
from genpr.report.score_tables import THRESHOLDS
from genpr.report.text import WIDTH, and_more, interval, number, plus_minus, shortened, table, wrapped

_NAME = 30  # columns of a name
_CHANCE = "± is half the 95 % interval of one class: of many, some look bad by chance alone"


def label_lines(origins: Mapping[str, str], unlabeled: Mapping[str, int]) -> list[str]:
    """Where labels come from, and how many images have none, by role."""
    found = "; ".join(f"{role} labels: {origin}" for role, origin in origins.items())
    none = [
        f"{count:,} {role} images without a label are in no class"
        for role, count in unlabeled.items()
        if count
    ]
    return [found, *none] if found else none


_MOST_CLASSES, _WORST, _BEST, _MOST_NAMED = 24, 12, 5, 5


def class_table(scores: ClassScores) -> str:
    """Classes down, the worst first, and metrics across; of many classes, the worst and the best."""
    metrics = list(scores.macro)
    rows = [
        [
            shortened(found.label, _NAME),
            *(f"{found.n_real:,}", f"{found.n_fake:,}"),
            *(plus_minus(found.metrics[name].value, found.metrics[name].interval) for name in metrics),
        ]
        for found in scores.classes
    ]
    if len(rows) > _MOST_CLASSES:
        between = [f"({len(rows) - _WORST - _BEST:,} between)", *[""] * (len(metrics) + 2)]
        rows = [*rows[:_WORST], between, *rows[-_BEST:]]
    averages = [
        [
            f"{kind} average",
            "",
            "",
            *(plus_minus(found[name].value, found[name].interval) for name in metrics),
        ]
        for kind, found in (("macro", scores.macro), ("micro", scores.micro))
    ]
    nulls = ["perfect (macro)", "", "", *(plus_minus(scores.macro[name].null, None) for name in metrics)]
    heads = ["class, worst first", "reals", "fakes", *metrics]
    text = table(heads, [*rows, *averages, nulls], sections=[len(rows) - 1])
    by = "all metrics over their nulls" if scores.worst_by == WEAKEST_FIRST else scores.worst_by
    over = {
        role: [name for name in scores.micro if (BALLS[name].over == "fake") == (role == "fakes")]
        for role in ("fakes", "reals")
    }
    weights = "; ".join(f"its {role} for {' and '.join(names)}" for role, names in over.items() if names)
    count = len(scores.classes)
    lines = [
        f"{count:,} class{'es' * (count > 1)}, each scored within itself, worst by {by}",
        f"macro: each class counts the same; micro: each by {weights}",
        _CHANCE,
        *_left_out(scores),
        *label_lines(scores.origins, scores.unlabeled),
    ]
    return "\n".join([text, *map(wrapped, lines)])


def _left_out(scores: ClassScores) -> list[str]:
    """Classes that were not scored by reason, the largest first."""
    ordered = sorted(scores.left_out, key=lambda each: (each.reason, -each.n_real - each.n_fake))
    lines = []
    for reason, group in groupby(ordered, key=lambda each: each.reason):
        sizes = [
            f"{shortened(found.label, _NAME)} ({found.n_real:,} reals, {found.n_fake:,} fakes)"
            for found in group
        ]
        need = f" (needed: {scores.min_images:,})" if reason.startswith("too few") else ""
        more = and_more(len(sizes) - _MOST_NAMED)
        lines.append(" ".join([f"left out, {reason}{need}: {', '.join(sizes[:_MOST_NAMED])}", *more]))
    return lines


_MOST_LABELS, _MOST_CONFUSIONS, _CONFUSED = 12, 3, 26


def label_table(found: LabelSummary) -> str:
    """Requested against recognized labels: the worst classes, the most frequent confusions, and what columns mean."""
    rows = found.rows[:_MOST_LABELS]
    has_null = any(row.null_recall is not None for row in rows)
    cells = [
        [
            shortened(row.label, _NAME),
            *(f"{row.n:,}", f"{row.fp:,}"),
            plus_minus(row.precision, row.precision_interval),
            plus_minus(row.recall, row.recall_interval),
            plus_minus(row.f1, None),
            *[f"{plus_minus(row.null_precision, None)} {plus_minus(row.null_recall, None)}"] * has_null,
        ]
        for row in rows
    ]
    heads = ["class, worst first", "images", "others", "precision", "recall", "F1", *["perfect"] * has_null]
    lines = and_more(len(found.rows) - len(rows), "more classes, all in --json")
    lines += [
        f"{shortened(each.asked, _CONFUSED)} recognized as {shortened(each.recognized, _CONFUSED)}: {each.n:,}"
        for each in found.confusions[:_MOST_CONFUSIONS]
    ]
    perfect = "; perfect: precision and recall of a perfect generator" if has_null else ""
    lines.append(f"others: images of other classes that are recognized as this one{perfect}")
    lines += [_CHANCE] * any(row.recall_interval is not None for row in rows)
    votes = "" if found.k is None else f", k = {found.k:,}"
    lines += [*found.undefined, f"recognized by: {found.classifier}{votes}"]
    lines += label_lines(found.origins, found.unlabeled)
    return "\n".join([table(heads, cells), *map(wrapped, lines)])


_MOST_FAILURES = 8


def failures_list(found: AlignmentSummary) -> str:
    """The images that rank their own prompt lowest, each with the prompt that it ranks first; empty without any."""
    lines = [f"worst images by the rank of their own prompt among {found.pool:,}"] * bool(found.failures)
    for each in found.failures[:_MOST_FAILURES]:
        lines.append(f"{each.rank:>7g}  {shortened(each.image, WIDTH - 9)}")
        for what, score, prompt in (
            ("own", each.score, each.prompt),
            ("first", each.winner_score, each.winner),
        ):
            start = f"{'':9}{what:<5} {score:6.3f}  "
            lines.append(start + shortened(prompt, WIDTH - len(start)))
    more = and_more(found.n_failures - _MOST_FAILURES, "more that do not rank their own first")
    return "\n".join([*lines, *(f"{'':9}{line}" for line in more if found.failures)])


_MOST_ENTITIES, _MOST_UNREADABLE, _MOST_FORMS = 10, 5, 5


def entity_table(result: Result) -> str:
    """The scores of entities, the worst entities, the first unreadable answers; empty for other results."""
    found = result.entities
    if found is None:
        return ""
    bounds = {each.metric: (each.low, each.high) for each in found.bounds}
    rows = [
        [
            *(name, number(metric.value), interval(metric.interval)),
            *[interval(bounds.get(name))] * bool(bounds),
            "-" if metric.n_counted is None else f"{metric.n_counted:,}",
        ]
        for name, metric in result.metrics.items()
    ]
    heads = ["metric", "value", "95 % interval", *["with unreadable"] * bool(bounds), "images"]
    lines = ["images: how many count, or their prompts where several share one (10 for intervals)"]
    lines += ["with unreadable: if these answers were all wrong, and if they were all right"] * bool(bounds)
    by_reason: dict[str, list[str]] = {}
    for metric, why in found.undefined:
        by_reason.setdefault(why, []).append(metric)
    lines += [f"no {', '.join(names)}: {why}" for why, names in by_reason.items()]
    blocks = [
        "\n".join([table(heads, rows), *map(wrapped, lines)]),
        *_worst_entities(found),
        *_unreadable(found),
    ]
    return "\n\n".join([*blocks, _entity_footer(result, found)])


def _worst_entities(found: EntitySummary) -> list[str]:
    """Those that were missed most."""
    if not found.rows:
        return []
    known = () if found.classifier is None else found.classifier.entities
    sensitivity = {each.entity: f"{each.sensitivity:.3f}" for each in known if each.sensitivity is not None}
    has_false = any(row.n_false is not None for row in found.rows)
    rows = [
        [
            *(shortened(row.entity, _NAME), f"{row.n_expected:,}", f"{row.n_found:,}"),
            f"{row.n_found / row.n_expected:.3f}" if row.n_expected else "-",
            *["-" if row.n_false is None else f"{row.n_false:,}"] * has_false,
            *[sensitivity.get(row.entity, "-")] * bool(sensitivity),
        ]
        for row in found.rows[:_MOST_ENTITIES]
    ]
    heads = ["entity, most missed first", "expected", "found", "recall", *["wrong"] * has_false]
    lines = and_more(len(found.rows) - _MOST_ENTITIES)
    lines += ["sensitivity: share of labeled images with it in which it is recognized"] * bool(sensitivity)
    text = table([*heads, *["sensitivity"] * bool(sensitivity)], rows)
    return ["\n".join([text, *map(wrapped, lines)])]


def _unreadable(found: EntitySummary) -> list[str]:
    count = len(found.unreadable)
    if not count:
        return []
    lines = [
        f"{count:,} of {found.n_answers:,} answers could not be read, and are in no score but failure_rate:"
    ]
    for each in found.unreadable[:_MOST_UNREADABLE]:
        begin = f": {shortened(each.answer, 60)}" if each.answer.strip() else ""
        lines.append(
            wrapped(f"{shortened(each.name, _NAME)}: {each.reason}{begin}", first="  ", others="    ")
        )
    return ["\n".join([*lines, *(f"  {line}" for line in and_more(count - _MOST_UNREADABLE))])]


def _entity_footer(result: Result, found: EntitySummary) -> str:
    left_out = f", {len(result.fake.skipped):,} left out" if result.fake.skipped else ""
    lines = [
        f"expected  {result.real.n:,} of {result.real.source}",
        f"{result.fake.what:<8}  {result.fake.n:,} of {result.fake.source}{left_out}",
    ]
    if (seen := found.classifier) is not None:
        source = f" ({seen.source})" if seen.source else ""
        lines.append(
            f"recognized by {seen.name} ({seen.kind}); thresholds: {THRESHOLDS[seen.chosen]}{source}"
        )
    if found.forms:
        forms = ", ".join(f"{form} ({count:,})" for form, count in found.forms[:_MOST_FORMS])
        lines.append(" ".join([f"read as {forms}", *and_more(len(found.forms) - _MOST_FORMS, "more")]))
    wrong = (
        "wrong is what images exclude"
        if "entity.precision" in result.metrics
        else "nothing is known to be wrong"
    )
    if found.vocabulary is not None:
        wrong = f"wrong is what is found of {found.vocabulary:,} known entities and not expected"
    return "\n".join(map(wrapped, [*lines, f"{wrong}; fingerprint {result.fingerprint}"]))


_LONGEST = 60  # columns of a name


def modes_table(found: FoundModes, *, every: bool = False) -> str:
    """Missed and invented modes: sentences, then a row per significant cluster (all if `every`), and per class."""
    modes = found.modes
    blocks = ["\n".join(map(wrapped, found.summary)), _clusters(found, every, is_real=True)]
    blocks.append(_clusters(found, every, is_real=False))
    if modes.classes and (every or any(each.is_significant for each in modes.classes)):
        rows = [
            [
                *(shortened(each.name, _LONGEST), f"{each.size:,}", f"{each.uncovered / each.size:.1%}"),
                *(f"{each.expected / each.size:.1%}", f"{each.p:.2g}"),
            ]
            for each in modes.classes
        ]
        blocks.append(table(["class", "reals", "uncovered", "expected", "p"], rows))
    features = "features of an unknown extractor" if found.extractor is None else found.extractor.name
    lines = [
        "p: chance of any such cluster if real and fake were one distribution; up to .05 is shown",
        f"real  {modes.n_real:,} images of {found.real}",
        f"fake  {modes.n_fake:,} images of {found.fake}",
        f"{features}, uncovered at k = {modes.uncovered_k}, outside at k = {modes.outside_k}, seed {modes.seed}",
        *label_lines(found.origins, found.unlabeled),
    ]
    return "\n\n".join([*filter(None, blocks), "\n".join(map(wrapped, lines))])


def _clusters(found: FoundModes, every: bool, *, is_real: bool) -> str:
    clusters = found.modes.missed if is_real else found.modes.invented
    has_classes = any(each.classes for each in clusters)
    rows = []
    for index, each in enumerate([each for each in clusters if each.is_significant or every], start=1):
        classes = [
            f"{shortened(name, _LONGEST)} {count / each.flagged:.0%}"
            for name, count in each.classes
            if count >= NAMED * each.flagged
        ]
        row = [
            str(index),
            f"{each.size:,}",
            f"{each.flagged / each.size:.0%}",
            f"{each.expected / each.size:.0%}",
        ]
        row += [f"{each.others:,}", f"{each.p:.3f}", *[", ".join(classes[:2])] * has_classes]
        rows.append([*row, shortened(found.name_of("real" if is_real else "fake", each.rows[0]), _LONGEST)])
    if not rows:
        return ""
    heads = ["missed", "reals", "uncovered"] if is_real else ["invented", "fakes", "outside"]
    heads += ["expected", "fakes" if is_real else "reals", "p", *["mostly"] * has_classes, "example"]
    return table(heads, rows, texts=range(6, len(heads)))
