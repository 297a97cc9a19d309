"""Tables of bench_coverage.py from its records: coverage, nulls, comparisons of two generators, and ranks."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from _coverage_sets import DATA_SETS, EQUAL
from numpy.typing import NDArray

from genpr.metrics.registry import METRICS
from genpr.metrics.uncertainty import Resampled, difference

Record = dict[str, Any]
_LOW, _HIGH = 0.90, 0.99  # what the coverage of a 95 % interval should be within
_INNER = 0.05, 0.95  # truths of shares whose intervals are not cut at 0 or 1, and may be too wide
_FALSE_POSITIVES = 0.06
_LEGEND = """\
Truth is the mean of a metric over all draws of the generators A and B, which have one distribution. SD: deviation over draws.
Error: root mean square of the standard errors behind intervals. Width: mean width of intervals. Covered: share of the intervals
of A and B that hold the truth, with its Monte Carlo error, which takes the two of a draw as dependent. Shown: share of the draws
in which both have an interval; the columns from error to covered are of these. An exclamation mark is put at less than 90 %, and at
more than 99 % where the truth of a share is within [.05, .95]; (!) where this is within two Monte Carlo errors."""


def read_records(path: Path) -> tuple[list[Record], list[Record]]:
    """Runs and draws of a file; records of parts of the metrics of one draw are joined."""
    runs, draws = list[Record](), dict[tuple[str, int, str], Record]()
    for line in complete_lines(path):
        record = json.loads(line)
        if "cell" not in record:
            runs.append(record)
            continue
        key = record["cell"], record["draw"], record["device"]
        if key not in draws:
            draws[key] = record
            continue
        for part in ("requested", "metrics", "differences", "contenders"):
            if part in record:
                known = draws[key][part]
                draws[key][part] = known + record[part] if part == "requested" else known | record[part]
    return runs, list(draws.values())


def complete_lines(path: Path) -> list[str]:
    """Complete lines; the last one may be truncated."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


@dataclass(frozen=True, slots=True)
class Coverage:
    """The intervals of one metric in one cell."""

    cell: str
    metric: str
    draws: int  # with and without intervals
    shown: float  # share of the draws with intervals
    truth: float
    deviation: float
    error: float
    width: float
    covered: float
    covered_error: float

    @property
    def leaves(self) -> bool:
        """Whether less than 90 % are covered, or more than 99 % of a true value that is not at the end of its range."""
        metric = METRICS[self.metric]
        is_share = metric.lower == 0 and metric.upper == 1
        is_inner = not is_share or _INNER[0] <= self.truth <= _INNER[1]
        return self.covered < _LOW or (self.covered > _HIGH and is_inner)

    @property
    def mark(self) -> str:
        """A mark for the significance of the deviation."""
        slack = 2 * self.covered_error
        is_sure = self.covered + slack < _LOW or self.covered - slack > _HIGH
        return "" if not self.leaves else "!" if is_sure else "(!)"


def coverages(draws: Sequence[Record]) -> list[Coverage]:
    """The coverage of every cell and metric with intervals."""
    found = []
    for cell, metric, values in _of_equal(draws):
        scores = np.array([[each["value"] for each in pair] for pair in values])
        shown = [pair for pair in values if all("interval" in each for each in pair)]
        if len(shown) < 2:
            continue
        low, high = np.moveaxis(np.array([[each["interval"] for each in pair] for pair in shown]), 2, 0)
        errors = np.array([[each.get("error", np.nan) for each in pair] for pair in shown])
        truth = float(scores.mean())
        held = ((low <= truth) & (truth <= high)).mean(axis=1)
        count = len(held)
        # Where all or almost all are covered, the deviation over draws would suggest that this is exact.
        error = max(float(held.std()), (1 / (count + 2)) ** 0.5 * 0.5) / count**0.5
        rms = float(np.sqrt(np.mean(np.square(errors))))
        width = float((high - low).mean())
        deviation = float(scores.std(axis=0, ddof=1).mean())
        part = (len(values), count / len(values))
        found.append(Coverage(cell, metric, *part, truth, deviation, rms, width, float(held.mean()), error))
    return found


def _of_equal(
    draws: Sequence[Record], *, ranks: bool = False
) -> Iterator[tuple[str, str, list[list[Mapping[str, Any]]]]]:
    """Cell, metric, and the values of equal generators in every draw that has them."""
    found: dict[tuple[str, str], list[list[Mapping[str, Any]]]] = defaultdict(list)
    for draw in draws:
        if draw["data"].startswith("rank-") != ranks:
            continue
        for metric, of in draw["metrics"].items():
            names = sorted(of) if ranks else EQUAL
            if all(name in of for name in names):
                found[draw["cell"], metric].append([of[name] for name in names])
    for (cell, metric), values in found.items():
        if len(values) > 1:
            yield cell, metric, values


def markdown(runs: Sequence[Record], draws: Sequence[Record]) -> str:
    """All tables."""
    draws = sorted(draws, key=lambda each: (each["cell"], each["draw"]))
    found = coverages(draws)
    parts = ["# How often 95 % intervals hold the truth, and whether nulls are right", _machines(runs)]
    parts += ["## Coverage", _LEGEND, _coverage_grid(found), _coverage_table(found)]
    parts += ["## Nulls", _null_table(draws), "## Two generators", _comparison_table(draws)]
    parts += ["## Best of equal generators", _rank_table(draws), "## Draws", _draw_table(draws)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _machines(runs: Sequence[Record]) -> str:
    lines = []
    for run in runs:
        machine = run["machine"]
        commit = f"genpr {machine['commit'][:8]}, " if machine["commit"] else ""
        lines.append(f"- {run['started']}, {commit}{machine['gpu'] or machine['cpu']}")
    return "\n".join(dict.fromkeys(lines))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * left + "--:|" * (len(head) - left)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) if rows else ""


def _coverage_grid(found: Sequence[Coverage]) -> str:
    """Percent covered: a row per cell, a column per metric."""
    metrics, cells = (dict.fromkeys(getattr(each, name) for each in found) for name in ("metric", "cell"))
    by = {(each.cell, each.metric): each for each in found}
    rows = []
    for cell in cells:
        shown = [by.get((cell, metric)) for metric in metrics]
        rows.append(
            [cell, *("" if each is None else f"{each.covered:.1%} {each.mark}".strip() for each in shown)]
        )
    return _table(["cell", *metrics], rows)


def _coverage_table(found: Sequence[Coverage]) -> str:
    head = ["cell", "metric", "truth", "SD", "error", "error / SD", "width", "covered", "shown", "draws"]
    rows = [
        [
            each.cell,
            each.metric,
            f"{each.truth:.4g}",
            f"{each.deviation:.3g}",
            f"{each.error:.3g}",
            f"{each.error / each.deviation:.2f}" if each.deviation else "",
            f"{each.width:.3g}",
            f"{100 * each.covered:.1f} ± {100 * each.covered_error:.1f} % {each.mark}".strip(),
            f"{each.shown:.0%}",
            str(each.draws),
        ]
        for each in found
    ]
    return _table(head, rows, left=2)


def _null_table(draws: Sequence[Record]) -> str:
    """Mean scores of perfect generators, and their reported nulls."""
    rows = []
    cells = [
        (cell, metric, values)
        for ranks in (False, True)
        for cell, metric, values in _of_equal(draws, ranks=ranks)
    ]
    data_of = {draw["cell"]: draw["data"] for draw in draws}
    for cell, metric, values in cells:
        if not DATA_SETS[data_of[cell]].is_perfect or not all(
            "null" in each for row in values for each in row
        ):
            continue
        scores, nulls = (
            np.array([[each[key] for each in row] for row in values]) for key in ("value", "null")
        )
        gap = (scores - nulls).mean(axis=1)
        error = float(gap.std(ddof=1)) / len(gap) ** 0.5
        mean, null = float(scores.mean()), float(nulls.mean())
        sure = "!" if abs(gap.mean()) > 3 * error and abs(gap.mean()) > 0.005 * abs(null) else ""
        shown = f"{gap.mean():+.4f} ± {error:.4f} {sure}".strip()
        rows.append([cell, metric, f"{mean:.4f}", f"{null:.4f}", shown, str(len(gap))])
    head = ["cell", "metric", "mean value", "mean null", "value - null", "draws"]
    table = _table(head, rows, left=2)
    note = "Generators with the distribution of the reals. An exclamation mark: off by more than three standard errors and .5 %."
    return f"{note}\n\n{table}" if table else ""


def _comparison_table(draws: Sequence[Record]) -> str:
    """How often two equal and two different generators are distinguished, by metric over all cells."""
    verdicts: dict[str, dict[str, dict[str, list[bool]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for draw in draws:
        for metric, of in draw.get("differences", {}).items():
            for name, kind in (("A - B", "equal"), ("A - C", "different")):
                if name in of:
                    verdicts[metric][kind][draw["cell"]].append(bool(of[name][3]))
    unpaired = _unpaired(draws)
    rows = []
    for metric, kinds in verdicts.items():
        equal = [each for of in kinds["equal"].values() for each in of]
        worst = max(kinds["equal"].items(), key=lambda item: np.mean(item[1]))
        power = [float(np.mean(of)) for of in kinds["different"].values()]
        alone = unpaired.get(metric, [])
        share = float(np.mean(equal))
        rows.append(
            [
                metric,
                f"{sum(equal)} of {len(equal)} ({share:.1%}{' !' if share > _FALSE_POSITIVES else ''})",
                f"{np.mean(worst[1]):.1%} of {len(worst[1])} ({worst[0]})",
                f"{sum(alone)} of {len(alone)} ({np.mean(alone):.1%})" if alone else "",
                f"{np.mean(power):.0%} ({min(power):.0%} to {max(power):.0%})" if power else "",
            ]
        )
    note = (
        "Equal: A and B, scored on the same reals, declared different; the cell with most of it; A and B of successive draws,\n"
        "which have other reals. Power: A and C declared different, mean and range over cells; C differs in another way in each."
    )
    table = _table(["metric", "equal", "most", "equal, other reals", "power"], rows)
    return f"{note}\n\n{table}" if table else ""


def _unpaired(draws: Sequence[Record]) -> dict[str, list[bool]]:
    """Verdicts on A of one draw and B of the next."""
    found: dict[str, list[bool]] = defaultdict(list)
    for _, metric, values in _of_equal(draws):
        for (a, _), (_, b) in pairwise(values):
            if "error" in a and "error" in b:
                found[metric].append(difference(_alone(a), _alone(b)).verdict == "distinguishable")
    return found


def _alone(value: Mapping[str, Any]) -> Resampled:
    """A score with separate reals, whose replicates have the recorded standard error."""
    replicates: NDArray[np.float64] = np.tile([value["error"], -value["error"]], value["replicates"] // 2)
    fields = {"n": value["n"], "seed": 0, "n_real": 0, "real_identity": None}
    return Resampled(value=value["value"], replicates=replicates, **fields)


def _rank_table(draws: Sequence[Record]) -> str:
    """How often an equal generator is excluded as the best."""
    outs: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for draw in draws:
        for metric, contenders in draw.get("contenders", {}).items():
            outs[draw["cell"], metric].append(not all(contenders))
    rows = []
    for (cell, metric), of in outs.items():
        share = float(np.mean(of))
        error = max(share * (1 - share), 0.25 / len(of)) ** 0.5 / len(of) ** 0.5
        rows.append([cell, metric, f"{sum(of)} of {len(of)} ({share:.1%} ± {error:.1%})"])
    note = "Every generator is the best. Violated: one of them is not among the possible best; at most 5 % should be."
    table = _table(["cell", "metric", "violated"], rows, left=2)
    return f"{note}\n\n{table}" if table else ""


def _draw_table(draws: Sequence[Record]) -> str:
    """The number and the duration of the draws."""
    of: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for draw in draws:
        of[draw["cell"], draw["device"]].append(draw)
    rows = [
        [
            cell,
            DATA_SETS[each[0]["data"]].meaning,
            device,
            str(len(each)),
            f"{np.mean([draw['seconds'] for draw in each]):.2f}",
        ]
        for (cell, device), each in of.items()
    ]
    return _table(["cell", "data set", "device", "draws", "mean seconds"], rows, left=3)
