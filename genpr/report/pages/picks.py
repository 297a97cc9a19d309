"""Which images a page shows: chosen by what is known of each, before any picture is read."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from genpr.evaluation.per_image import PerImageScores
from genpr.metrics.ball_metrics import coverage
from genpr.metrics.blocks import double_blocks

Side = Literal["real", "fake"]
Image = tuple[Side, int]
"""An image by its side and row."""

_REALISM = 24  # pictures at either end
_HUBS, _REPEATS = 12, 12
_OVER_FAIR = 10  # times the fair part of the fakes that a suspicious image vouches for


@dataclass(frozen=True, slots=True)
class Pick:
    """An image to show.

    Attributes:
        image: Which.
        caption: What is said of it.
        partner: The image to set beside it; None for none.
        partner_caption: What is said of that.
        group: Heading that it stands below; empty for none.
    """

    image: Image
    caption: str
    partner: Image | None = None
    partner_caption: str = ""
    group: str = ""

    @property
    def images(self) -> list[Image]:
        """What has to be read for it."""
        return [self.image] if self.partner is None else [self.image, self.partner]


@dataclass(frozen=True, slots=True)
class Selection:
    """Images to show together.

    Attributes:
        title: The heading.
        sentence: What is seen, and how it was chosen.
        picks: In the order of the page.
        more: How many there are beside these.
    """

    title: str
    sentence: str
    picks: tuple[Pick, ...]
    more: int = 0


def realism_picks(evidence: PerImageScores) -> list[Selection]:
    """The least realistic fakes and the most realistic ones, each beside its nearest real."""
    realism = evidence.fake.realism
    order = np.argsort(realism, kind="stable")
    finite = order[np.isfinite(realism[order])]
    copies = len(order) - len(finite)
    shown = min(_REALISM, (len(finite) + 1) // 2)  # no fake is at both ends
    nothing = f" {copies:,} that equal a real image are left out." if copies else ""
    least = Selection(
        "Least realistic fakes",
        "Realism is 1 at the edge of what real images look like, and less outside. Each stands beside the real image that "
        "is nearest to it.",
        tuple(_beside_nearest(evidence, row) for row in finite[:shown].tolist()),
    )
    most = Selection(
        "Most realistic fakes",
        f"Nearest to a real image for the size of its ball: look for copies among them.{nothing}",
        tuple(
            _beside_nearest(evidence, row) for row in finite[::-1][: min(shown, len(finite) - shown)].tolist()
        ),
    )
    return [least, most]


def hub_picks(evidence: PerImageScores) -> Selection:
    """Reals that vouch for suspiciously many fakes, each beside the fake that is nearest to it."""
    real, n, m, k = evidence.real, len(evidence.real), len(evidence.fake), evidence.k[coverage.name]
    fair = k * m / n
    order = np.argsort(-real.n_fakes, kind="stable")
    many = order[real.n_fakes[order] > _OVER_FAIR * max(fair, 1.0)]
    picks = [
        Pick(
            ("real", row),
            f"{real.names[row]}: {real.n_fakes[row]:,} fakes, {real.n_fakes[row] / m:.1%}",
            ("fake", int(real.nearest_fake[row])),
            evidence.fake.names[real.nearest_fake[row]],
        )
        for row in many[:_HUBS].tolist()
    ]
    sentence = f"A real image vouches for the fakes in its ball: for {fair:.3g} of them on average if the generator is perfect. "
    limit = f"more than {_OVER_FAIR}{' times as many' if fair >= 1 else ''}"
    sentence += (
        f"{_of(len(many), n)} reals {'vouches' if len(many) == 1 else 'vouch'} for {limit}; what rests on them is doubtful."
        if picks
        else f"None of the {n:,} vouches for {limit}."
    )
    return Selection("Images that vouch for many fakes", sentence, tuple(picks), len(many) - len(picks))


def repeat_picks(evidence: PerImageScores) -> Selection:
    """Images that occur several times on their side: the first of each, those that occur most often before others."""
    sides: tuple[Side, Side] = ("fake", "real")
    picks, sentences, more = [], [], 0
    for side, features in zip(sides, reversed(evidence.sides), strict=True):
        groups = repeats(features.features)
        repeated = sum(len(rows) - 1 for rows in groups)
        sentences.append(f"{_of(repeated, len(features))} {side}s repeat an earlier {side}")
        for rows in groups[:_REPEATS]:
            name = (evidence.fake if side == "fake" else evidence.real).names[rows[0]]
            caption = f"{name}: {len(rows):,} times"
            picks.append(Pick((side, rows[0]), caption, group=f"Among the {side}s"))
        more += max(0, len(groups) - _REPEATS)
    sentence = f"{', and '.join(sentences)}, told by features that are equal to the last bit."
    return Selection("Duplicates", sentence, tuple(picks), more)


def repeats(features: Tensor) -> list[list[int]]:
    """Rows that are equal, in groups: the largest first, equally large ones by their first row."""
    groups: dict[bytes, list[int]] = defaultdict(list)
    row = 0
    for block in double_blocks(features, torch.device("cpu")):
        for each in block.numpy() + 0.0:  # so that -0 is 0
            groups[hashlib.blake2b(each.tobytes(), digest_size=16).digest()].append(row)
            row += 1
    found = [rows for rows in groups.values() if len(rows) > 1]
    return sorted(found, key=lambda rows: (-len(rows), rows[0]))


def _beside_nearest(evidence: PerImageScores, row: int) -> Pick:
    fake, nearest = evidence.fake, int(evidence.fake.nearest_real[row])
    return Pick(
        ("fake", row),
        f"{fake.names[row]}: realism {fake.realism[row]:.2f}",
        ("real", nearest),
        evidence.real.names[nearest],
    )


def _of(count: int, total: int) -> str:
    return f"{count:,} of {total:,}"
