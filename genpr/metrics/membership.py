"""Who lies in whose balls: one count per sample, on which every metric of neighbours rests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from genpr.neighbors.balls import Ball
from genpr.neighbors.counts import CrossCounts


@dataclass(frozen=True, slots=True)
class Memberships:
    """Who lies in whose balls; each table maps a kind of ball to int64 counts.

    Attributes:
        n_real: Number of reals, n.
        n_fake: Number of fakes, m.
        real_balls_per_fake: (m,) how many real balls contain each fake.
        fakes_per_real_ball: (n,) how many fakes each real ball contains.
        fake_balls_per_real: (n,) how many fake balls contain each real.
        reals_per_fake_ball: (m,) how many reals each fake ball contains.
        real_in_degrees: (n,) how many balls of other reals contain each real.
        fake_in_degrees: (m,) how many balls of other fakes contain each fake.
        smallest_real_ball: (m,) float64, least squared radius of the real balls of one kind that contain each fake, infinite
            where none does; None if it was not asked for.
    """

    n_real: int
    n_fake: int
    real_balls_per_fake: Mapping[Ball, Tensor]
    fakes_per_real_ball: Mapping[Ball, Tensor]
    fake_balls_per_real: Mapping[Ball, Tensor]
    reals_per_fake_ball: Mapping[Ball, Tensor]
    real_in_degrees: Mapping[Ball, Tensor] = field(default_factory=dict)
    fake_in_degrees: Mapping[Ball, Tensor] = field(default_factory=dict)
    smallest_real_ball: Tensor | None = None

    @classmethod
    def of(
        cls,
        counts: CrossCounts,
        *,
        n_real: int,
        n_fake: int,
        real_balls: Sequence[Ball],
        fake_balls: Sequence[Ball],
        real_in_degrees: Sequence[Tensor] | Tensor = (),
        fake_in_degrees: Sequence[Tensor] | Tensor = (),
    ) -> Memberships:
        """The counts of one pass over both sets; of passes within each set, where these were made."""
        return cls(
            n_real=n_real,
            n_fake=n_fake,
            real_balls_per_fake=dict(zip(real_balls, counts.real_balls_per_fake, strict=True)),
            fakes_per_real_ball=dict(zip(real_balls, counts.fakes_per_real_ball, strict=True)),
            fake_balls_per_real=dict(zip(fake_balls, counts.fake_balls_per_real, strict=True)),
            reals_per_fake_ball=dict(zip(fake_balls, counts.reals_per_fake_ball, strict=True)),
            real_in_degrees=dict(zip(real_balls, real_in_degrees, strict=len(real_in_degrees) > 0)),
            fake_in_degrees=dict(zip(fake_balls, fake_in_degrees, strict=len(fake_in_degrees) > 0)),
            smallest_real_ball=counts.smallest_real_ball,
        )
