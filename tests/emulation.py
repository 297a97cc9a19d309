"""Counts on emulated distances of two sets at once."""

from __future__ import annotations

from genpr.metrics.emulated_manifold import EmulatedSide
from genpr.metrics.membership import Memberships, ball_ks


def emulated_memberships(real, fake, *, ks, emulation, device="auto", progress=None) -> Memberships:
    side = EmulatedSide.fit(real, ks=ball_ks(ks)[0], emulation=emulation, device=device, progress=progress)
    return side.memberships(fake, ks=ks, progress=progress)
