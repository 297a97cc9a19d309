"""Precision, recall, density and coverage on the distances of a tool that computes in float16.

Only for comparison with published numbers: rounding makes ties, and closed balls, which both tools use, count them as
inside. `genpr.metrics.manifold` computes the exact metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.errors import UsageError
from genpr.metrics.real_manifold import Memberships, PairProgress, progress_counter
from genpr.metrics.registry import needed_balls
from genpr.neighbors.emulated import Emulation, emulated_counts, emulated_radii, find_emulation
from genpr.validation import (
    Features,
    check_features,
    check_k,
    check_rows,
    check_same_width,
    choose_device,
)


@dataclass(frozen=True, slots=True)
class EmulatedSide:
    """A real set with its radii on emulated distances, the counterpart of `RealManifold`."""

    features: Tensor  # the n reals, (n, d)
    ks: tuple[int, ...]  # the k that were fitted, ascending
    radii: Tensor  # (len(ks), n) float32, in the unit of the tool
    emulation: Emulation  # the tool that is emulated

    @classmethod
    def fit(
        cls,
        features: Features,
        *,
        ks: Iterable[int],
        emulation: str,
        device: str | torch.device = "auto",
        progress: PairProgress | None = None,
    ) -> EmulatedSide:
        """Find the radii of all balls."""
        chosen, ks = find_emulation(emulation), tuple(sorted({check_k(k) for k in ks}))
        checked = check_features(features, "real")
        check_rows(checked, "real", k=max(ks, default=0))
        checked = checked.to(choose_device(features, device))
        advance = progress_counter(len(checked) ** 2 if ks else 0, progress)
        radii = emulated_radii(chosen, checked, ks, advance=advance)
        return cls(checked, ks, radii, chosen)

    def memberships(
        self, fake: Features, *, ks: Mapping[str, int], progress: PairProgress | None = None
    ) -> Memberships:
        """Counts for the metrics in `ks` (k by metric); without "recall", the radii of the fakes are not computed."""
        real_balls, fake_balls = needed_balls(ks)
        real_ks, fake_ks = [ball.k for ball in real_balls], [ball.k for ball in fake_balls]
        unfitted = [k for k in real_ks if k not in self.ks]
        if unfitted:
            raise UsageError(f"k = {unfitted[0]} was not fitted, only {self.ks}", code="k-not-fitted")
        checked = check_features(fake, "fake")
        check_same_width(self.features, checked)
        check_rows(checked, "fake", k=max(fake_ks, default=0))
        checked = checked.to(self.features.device)
        n, m = len(self.features), len(checked)
        advance = progress_counter(n * m + (m * m if fake_ks else 0), progress)
        counts = emulated_counts(
            self.emulation,
            self.features,
            checked,
            real_radii=self.radii[[self.ks.index(k) for k in real_ks]],
            fake_radii=emulated_radii(self.emulation, checked, fake_ks, advance=advance),
            advance=advance,
        )
        return Memberships(
            n_real=n,
            n_fake=m,
            real_balls_per_fake=dict(zip(real_balls, counts.real_balls_per_fake, strict=True)),
            fakes_per_real_ball=dict(zip(real_balls, counts.fakes_per_real_ball, strict=True)),
            fake_balls_per_real=dict(zip(fake_balls, counts.fake_balls_per_real, strict=True)),
            reals_per_fake_ball=dict(zip(fake_balls, counts.reals_per_fake_ball, strict=True)),
        )
