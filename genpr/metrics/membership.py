"""Who lies in whose balls, and the four metrics as shares of those counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from genpr.errors import UsageError
from genpr.metrics.catalogue import MANIFOLD_METRICS
from genpr.metrics.features import check_k
from genpr.neighbours.cross import CrossCounts


@dataclass(frozen=True, slots=True)
class Memberships:
    """Who lies in whose balls, one count per sample; each table maps k to int64 counts.

    Attributes:
        n_real: Number of reals, n.
        n_fake: Number of fakes, m.
        real_balls_per_fake: (m,) how many real balls contain each fake.
        fakes_per_real_ball: (n,) how many fakes each real ball contains.
        fake_balls_per_real: (n,) how many fake balls contain each real.
        reals_per_fake_ball: (m,) how many reals each fake ball contains.
    """

    n_real: int
    n_fake: int
    real_balls_per_fake: Mapping[int, Tensor]
    fakes_per_real_ball: Mapping[int, Tensor]
    fake_balls_per_real: Mapping[int, Tensor]
    reals_per_fake_ball: Mapping[int, Tensor]

    @classmethod
    def of(
        cls, counts: CrossCounts, *, n_real: int, n_fake: int, real_ks: Sequence[int], fake_ks: Sequence[int]
    ) -> Memberships:
        """The counts of one pass over both sets, by the k of their balls."""
        return cls(
            n_real=n_real,
            n_fake=n_fake,
            real_balls_per_fake=dict(zip(real_ks, counts.real_balls_per_fake, strict=True)),
            fakes_per_real_ball=dict(zip(real_ks, counts.fakes_per_real_ball, strict=True)),
            fake_balls_per_real=dict(zip(fake_ks, counts.fake_balls_per_real, strict=True)),
            reals_per_fake_ball=dict(zip(fake_ks, counts.reals_per_fake_ball, strict=True)),
        )

    def precision(self, k: int) -> float:
        """Share of fakes that lie in at least one real ball."""
        return _count(self.real_balls_per_fake[k] > 0) / self.n_fake

    def recall(self, k: int) -> float:
        """Share of reals that lie in at least one fake ball."""
        return _count(self.fake_balls_per_real[k] > 0) / self.n_real

    def density(self, k: int) -> float:
        """Real balls around a fake, on average, in units of k."""
        return _count(self.real_balls_per_fake[k]) / (k * self.n_fake)

    def coverage(self, k: int) -> float:
        """Share of real balls that contain at least one fake."""
        return _count(self.fakes_per_real_ball[k] > 0) / self.n_real


def ball_ks(ks: Mapping[str, int]) -> tuple[list[int], list[int]]:
    """The k of the real balls and of the fake balls that the metrics in `ks` look at, ascending.

    Raises:
        UsageError: A metric is unknown ("unknown-metric") or a k impossible ("bad-k").
    """
    unknown = sorted(set(ks) - set(MANIFOLD_METRICS))
    if unknown:
        known = ", ".join(MANIFOLD_METRICS)
        raise UsageError(f"unknown metrics: {', '.join(unknown)}; known: {known}", code="unknown-metric")
    checked = {name: check_k(k) for name, k in ks.items()}
    fake_ks = [checked.pop("recall")] if "recall" in checked else []
    return sorted(set(checked.values())), fake_ks


def _count(values: Tensor) -> int:
    return int(values.sum())
