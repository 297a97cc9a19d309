"""A real set with its radii: fitted once, scored against any number of fake sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.errors import UsageError
from genpr.metrics.features import (
    Features,
    check_features,
    check_k,
    check_rows,
    check_same_width,
    check_ties,
    choose_device,
)
from genpr.metrics.membership import Memberships, ball_ks
from genpr.metrics.progress import PairProgress, tally
from genpr.neighbours.choose import choose_engine
from genpr.neighbours.cross import Ties, cross_counts
from genpr.neighbours.engine import Engine
from genpr.neighbours.frame import Placed
from genpr.neighbours.plan import choose_frame, serves
from genpr.neighbours.radii import kth_sq_distances
from genpr.neighbours.sweep import Tick

_USUAL_K = 5  # to choose a frame by, where no neighbours are asked for


@dataclass(frozen=True, slots=True)
class RealSide:
    """A real set with its radii for several k, fitted once and scored against any number of fake sets.

    Attributes:
        points: The n reals, in a frame that serves both sides.
        ks: The k that were fitted, ascending.
        sq_radii: Squared radii (len(ks), n) float64.
        engine: What proposes candidate pairs.
    """

    points: Placed
    ks: tuple[int, ...]
    sq_radii: Tensor
    engine: Engine

    @classmethod
    def fit(
        cls,
        features: Features,
        *,
        ks: Iterable[int],
        device: str | torch.device = "auto",
        engine: Engine | None = None,
        progress: PairProgress | None = None,
    ) -> RealSide:
        """Find the radii of all balls.

        Args:
            features: (n, d), n > max(ks). They are not copied where that can be avoided: leave them unchanged.
            ks: Every k that will be asked for; none if only recall is.
            device: As in `manifold_metrics`.
            engine: None chooses by device.
            progress: Called with the pairs of rows done with and their number.

        Raises:
            FeatureError: The features are malformed, not finite or too few.
            UsageError: A k is impossible.
        """
        ks = tuple(sorted({check_k(k) for k in ks}))
        checked = check_features(features, "real")
        check_rows(checked, "real", k=max(ks, default=0))
        checked = checked.to(choose_device(features, device))
        engine = engine or choose_engine(checked.device)
        points = choose_frame(checked, max(ks, default=_USUAL_K)).place(checked)
        tick = tally(len(points) * (len(points) - 1) // 2, progress)
        return cls(points, ks, kth_sq_distances(points, ks, engine=engine, tick=tick), engine)

    def score(
        self,
        fake: Features,
        *,
        ks: Mapping[str, int],
        ties: Ties = "closed",
        progress: PairProgress | None = None,
    ) -> dict[str, float]:
        """The metrics named in `ks`, each with its own k; nothing that none of them needs is computed.

        Args:
            fake: (m, d) features.
            ks: k by metric: any of "precision", "recall", "density", "coverage".
            ties: As in `manifold_metrics`.
            progress: As in `fit`.

        Raises:
            FeatureError: The features are malformed, not finite, too few, or of another width than the reals.
            UsageError: A metric is unknown, or a k impossible or not fitted.
        """
        memberships = self.memberships(fake, ks=ks, ties=ties, progress=progress)
        return {name: getattr(memberships, name)(k) for name, k in ks.items()}

    def memberships(
        self,
        fake: Features,
        *,
        ks: Mapping[str, int],
        ties: Ties = "closed",
        progress: PairProgress | None = None,
    ) -> Memberships:
        """The integer counts behind `score`, sample by sample. Arguments and errors are those of `score`."""
        check_ties(ties)
        real_ks, fake_ks = ball_ks(ks)
        unfitted = [k for k in real_ks if k not in self.ks]
        if unfitted:
            raise UsageError(f"k = {unfitted[0]} was not fitted, only {self.ks}", code="k-not-fitted")
        checked = check_features(fake, "fake")
        check_same_width(self.points.features, checked)
        check_rows(checked, "fake", k=max(fake_ks, default=0))
        checked = checked.to(self.points.device)
        points, n, m = self.points.frame.place(checked), len(self.points), len(checked)
        tick = tally(n * m + (m * (m - 1) // 2 if fake_ks else 0), progress)
        counts = cross_counts(
            self.points,
            points,
            real_sq_radii=self.sq_radii[[self.ks.index(k) for k in real_ks]],
            fake_sq_radii=_sq_radii_of(points, fake_ks, self.engine, tick) if fake_ks else None,
            ties=ties,
            engine=self.engine,
            tick=tick,
        )
        return Memberships.of(counts, n_real=n, n_fake=m, real_ks=real_ks, fake_ks=fake_ks)


def _sq_radii_of(points: Placed, ks: list[int], engine: Engine, tick: Tick) -> Tensor:
    """Radii in the reals' frame, or in one of the set's own: collapsed fakes far from the reals need a finer one."""
    if not serves(points, max(ks)):
        points = choose_frame(points.features, max(ks)).place(points.features)
    return kth_sq_distances(points, ks, engine=engine, tick=tick)
