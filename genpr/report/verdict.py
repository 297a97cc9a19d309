"""What a comparison says, in plain language, by written rules.

1. Where results were not made alike, that is the sentence: nothing is said of who is better.
2. Of three or more results that all have precision and recall with intervals, the sentence says who is first by F1, or by
   what was asked for, and who cannot be told from the best: by the bounds of `genpr rank`, which hold for all at once.
3. Else it says how the others differ from the first, by the 95 % intervals of the differences, and nothing where none is
   known. "Higher" and "lower" are said only where the whole interval lies on that side of 0.
4. Each other result has a line of its own by the same intervals, each of which holds by itself alone. That is said, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from genpr.checkpoints.rank import Ranking, listed
from genpr.evaluation.compare import Comparison
from genpr.metrics.uncertainty import Difference
from genpr.report.reading import Reading, capital


def judge_contrasts(comparison: Comparison, ranking: Ranking | None) -> Reading:
    """Say in words what tells results apart, by the rules of this module.

    Args:
        comparison: At least two results.
        ranking: Of the same; None where they lack what it needs, or were not made alike.
    """
    others = list(comparison.results)[1:]
    found = {name: _contrasts(comparison, name) for name in others}
    lines = tuple(_line(comparison, name, found[name]) for name in others)
    sentence = _sentence(comparison, ranking, found, lines)
    grounds = [line for line in lines if line != sentence]
    if ranking is not None and (summary := _said(ranking)) != sentence:
        grounds.append(summary)
    cautions = [] if comparison.differences else _unpaired(found)
    count = sum(len(each) for each in found.values())
    if count > 1:
        grounds.append(
            f"Each of the {count} differences has a 95 % interval that holds by itself: where nothing differs, one in twenty "
            "says otherwise by chance."
        )
    return Reading(sentence, tuple(grounds), tuple(cautions))


def side_of(contrast: Difference | None) -> str:
    """A difference to the first in words: "higher", "lower", "not distinguishable", or that no interval is known."""
    if contrast is None:
        return "no interval"
    if contrast.verdict == "not distinguishable":
        return contrast.verdict
    return "higher" if contrast.value > 0 else "lower"


def _contrasts(comparison: Comparison, name: str) -> dict[str, Difference]:
    """Those that are known, by metric."""
    found = {metric: comparison.contrast(name, metric) for metric in comparison.metrics}
    return {metric: each for metric, each in found.items() if each is not None}


def _sentence(
    comparison: Comparison,
    ranking: Ranking | None,
    found: dict[str, dict[str, Difference]],
    lines: Sequence[str],
) -> str:
    first = next(iter(comparison.results))
    if comparison.differences:
        return "These results were not made alike, so what differs between them may come from how they were scored."
    if ranking is not None and ranking.has_bounds and len(lines) > 1:
        return _said(ranking)
    if not any(found.values()):
        return "No interval of a difference is known here, so nobody can say which of these differences is more than luck."
    if len(lines) == 1:
        return lines[0]
    told = [
        name
        for name, each in found.items()
        if any(side_of(one) in ("higher", "lower") for one in each.values())
    ]
    if not told:
        return (
            f"Nothing tells the other {len(lines)} from {first}: no difference to it can be told from none."
        )
    rest = [name for name in found if name not in told]
    ahead = f"{listed(told)} {'differs' if len(told) == 1 else 'differ'} from {first}"
    return f"{ahead}; {listed(rest)} cannot be told from it." if rest else f"{ahead}."


def _line(comparison: Comparison, name: str, found: dict[str, Difference]) -> str:
    """One other result against the first."""
    first = next(iter(comparison.results))
    sides = {metric: side_of(each) for metric, each in found.items()}
    higher, lower, alike = (
        [metric for metric, side in sides.items() if side == wanted]
        for wanted in ("higher", "lower", "not distinguishable")
    )
    unknown = [metric for metric in comparison.metrics if metric not in found]
    if not found:
        return f"{name} against {first}: no interval of a difference is known."
    if not higher and not lower:
        text = f"Nothing tells {name} from {first}: {_all(alike)} not distinguishable"
    else:
        moved = [
            f"{word} {listed(each) if len(each) < len(comparison.metrics) else _whole(each)}"
            for word, each in (("higher", higher), ("lower", lower))
            if each
        ]
        text = f"{name} has {' and '.join(moved)} than {first}"
        text += f"; {_all(alike)} not distinguishable" if alike else ""
    return text + (f"; no interval is known for {listed(unknown)}." if unknown else ".")


def _whole(metrics: Sequence[str]) -> str:
    return f"values of all {len(metrics)} metrics" if len(metrics) > 1 else metrics[0]


def _all(metrics: Sequence[str]) -> str:
    return f"{listed(metrics)} {'is' if len(metrics) == 1 else 'are'}"


def _said(ranking: Ranking) -> str:
    """The summary of a ranking as a sentence of its own; names keep their case."""
    summary = ranking.summary
    is_name = any(summary.startswith(each.name) for each in ranking.entries)
    return summary if is_name else capital(summary)


def _unpaired(found: dict[str, dict[str, Difference]]) -> list[str]:
    names = [name for name, each in found.items() if any(one.pairing == "unpaired" for one in each.values())]
    if not names:
        return []
    text = (
        f"The differences of {listed(names)} are unpaired, by other reals or halves of them: what the reals do to both does "
        "not cancel, so less can be told apart."
    )
    return [text]
