"""Counts on emulated distances of two sets at once."""

from genpr.metrics.emulated_manifold import EmulatedSide
from genpr.metrics.real_manifold import Memberships
from genpr.metrics.registry import needed_balls


def emulated_memberships(real, fake, *, ks, emulation, device="auto", progress=None) -> Memberships:
    side = EmulatedSide.fit(
        real,
        ks=[ball.k for ball in needed_balls(ks)[0]],
        emulation=emulation,
        device=device,
        progress=progress,
    )
    return side.memberships(fake, ks=ks, progress=progress)
