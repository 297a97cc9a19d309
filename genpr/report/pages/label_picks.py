"""Pictures of fakes that are not what they were asked to be, by what they were asked for and seen as."""

from __future__ import annotations

from genpr.evaluation.per_image import PerImageScores
from genpr.report.pages.picks import Pick, Selection
from genpr.report.safe_text import shown

_GROUPS, _IN_GROUP = 6, 8
_LONGEST = 60


def mistaken_picks(evidence: PerImageScores) -> Selection | None:
    """Of the most frequent confusions the most realistic fakes, each beside its nearest real; None without labels."""
    if evidence.labels is None:
        return None
    groups = evidence.labels.mistakes()
    realism, count = evidence.fake.realism, sum(map(len, groups.values()))
    picks = [
        _pick(evidence, row, f"Asked for {_short(asked)}, seen as {_short(seen)} ({len(rows):,})")
        for (asked, seen), rows in list(groups.items())[:_GROUPS]
        for row in sorted(rows, key=lambda row: (-realism[row], row))[:_IN_GROUP]
    ]
    sentence = (
        f"{count:,} of {len(evidence.fake):,} fakes are seen as another class than they were asked to be, by {_who(evidence)}, "
        "which may be wrong itself. Of the most frequent confusions, the most realistic fakes; each stands beside the real image "
        "that is nearest to it."
        if picks
        else "Every fake is seen as what it was asked to be."
    )
    return Selection("Not what was asked for", sentence, tuple(picks), count - len(picks))


def _who(evidence: PerImageScores) -> str:
    """Recognised them."""
    summary = evidence.result.labels
    known = {"knn": "a vote of the nearest reals", "linear": "a linear probe of the reals"}
    recogniser = "a recogniser" if summary is None else known.get(summary.recogniser, summary.recogniser)
    return _short(recogniser)


def _pick(evidence: PerImageScores, row: int, group: str) -> Pick:
    nearest = int(evidence.fake.nearest_real[row])
    return Pick(
        ("fake", row), evidence.fake.names[row], ("real", nearest), evidence.real.names[nearest], group
    )


def _short(label: str) -> str:
    return shown(label, longest=_LONGEST)
