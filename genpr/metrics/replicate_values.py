"""Metrics of random halves of both sets: what their spread says about the whole sets is in `uncertainty`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from torch import Tensor

from genpr.errors import UsageError
from genpr.metrics.metric import HalfSampling, HalfSizes
from genpr.metrics.real_manifold import choose_engine
from genpr.metrics.registry import BALLS
from genpr.neighbors.balls import Ties
from genpr.neighbors.engine import Engine
from genpr.neighbors.halves import Halves
from genpr.neighbors.index import Placed
from genpr.neighbors.nearest import NeighborLists
from genpr.neighbors.resample import Asked, ReplicateCounter, ResampledSet, direct_replicate_counts
from genpr.neighbors.search import Visitor
from genpr.validation import check_count, check_k

REPLICATES = 100
_REAL_STREAM, _FAKE_STREAM = 0, 1
_LEAST_COLUMNS = 16  # fewer make distances cheaper, but every half sorts all of its distances


class Replicates:
    """Metrics of random halves of the reals against random halves of the fakes, counted as pairs are found.

    Halves are drawn without replacement and come in complementary pairs: replicates 2 s and 2 s + 1 share no image.
    Those of the reals depend on the seed and n alone, those of the fakes on the seed and m: two sets of fakes scored on
    the same reals meet the same halves of these, and if both are of one size, fakes of the same place in their sets
    fall into the same halves. Where such fakes share a latent, the difference of the two scores gains from it; where
    they are unrelated, it does no harm, since what they then have in common is zero on average.

    Args:
        real: n reals and their neighbor lists, best as long as `others_for` says.
        fake: m fakes, placed in the frame of the reals, and theirs.
        ks: k by metric, any ball metric with an interval; ignored for "nn_accuracy".
        ties: Whether a point on a sphere is inside.
        seed: From 0.
        replicates: B, even.
        engine: What proposes pairs; None chooses by device.

    Attributes:
        visitors: To be shown the pairs between the two sets; none for small sets, whose distances are all computed.

    Raises:
        UsageError: A metric is unknown ("unknown-metric"), a k impossible ("bad-k") or too large for a half of either
            set ("too-few-for-halves"), or replicates or seed impossible ("bad-option").
    """

    def __init__(
        self,
        real: tuple[Placed, NeighborLists],
        fake: tuple[Placed, NeighborLists],
        ks: Mapping[str, int],
        *,
        ties: Ties = "closed",
        seed: int = 0,
        replicates: int = REPLICATES,
        engine: Engine | None = None,
    ) -> None:
        self._metrics = {name: (_half_sampling(name), check_k(k)) for name, k in ks.items()}
        check_count(replicates, "replicates", least=2)
        check_count(seed, "seed", least=0)
        if replicates % 2:
            raise UsageError(f"replicates come in pairs: an even number, not {replicates}", code="bad-option")
        self._asked = {name: metric.requests(k, ties) for name, (metric, k) in self._metrics.items()}
        everything = list(dict.fromkeys(each for some in self._asked.values() for each in some))
        halved_real = _halved(*real, seed, _REAL_STREAM, replicates)
        halved_fake = _halved(*fake, seed, _FAKE_STREAM, replicates)
        self._sizes = HalfSizes(halved_real.halves.size, halved_fake.halves.size)
        _check_sizes(everything, self._sizes)
        engine = engine or choose_engine(real[0].device)
        d, most = real[0].features.shape[1], max(len(real[0]), len(fake[0]))
        self.visitors: list[Visitor] = []
        self._count: Callable[[], dict[Asked, Tensor]]
        of_others = all(each.rows == "other" for each in everything)
        if of_others and engine.is_direct(most, most, max(d, _LEAST_COLUMNS)):
            self._count = partial(direct_replicate_counts, halved_real, halved_fake, everything, engine)
        else:
            counter = ReplicateCounter(halved_real, halved_fake, everything, engine=engine)
            self.visitors, self._count = [counter], counter.counts

    def values(self) -> dict[str, Tensor]:
        """By metric, (B,) float64. For the minimum of two metrics, the one that is lower on average over all halves."""
        counts = self._count()
        return {
            name: metric.value(k, self._sizes, [counts[each] for each in self._asked[name]])
            for name, (metric, k) in self._metrics.items()
        }


def _halved(points: Placed, lists: NeighborLists, seed: int, stream: int, count: int) -> ResampledSet:
    halves = Halves.drawn(len(points), seed=seed, stream=stream, count=count, device=points.device)
    return ResampledSet(points, lists, halves)


def _half_sampling(name: str) -> HalfSampling:
    metric = BALLS.get(name)
    if metric is None or metric.halves is None:
        known = ", ".join(name for name, metric in BALLS.items() if metric.halves)
        raise UsageError(f"no interval for {name!r}; known: {known}", code="unknown-metric")
    return metric.halves


def _check_sizes(asked: Sequence[Asked], sizes: HalfSizes) -> None:
    for each in asked:
        size = sizes.real if each.balls == "real" else sizes.fake
        if size <= each.ball.k:
            raise UsageError(
                f"halves of {size} {each.balls} images have no {each.ball.k} neighbors each; intervals need at least "
                f"{2 * each.ball.k + 2} images, or a smaller k",
                code="too-few-for-halves",
            )
