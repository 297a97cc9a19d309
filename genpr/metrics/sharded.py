"""Memberships of two sets whose rows are divided among ranks, exactly: no rank holds all features.

Every rank keeps its own rows, and in step s compares them with those of the rank s positions before it, each pair of blocks
once. Within one set, both ranks of a pair compare their rows, since each rank has only the reach of its own rows.
"""

from __future__ import annotations

from itertools import chain

import torch
from torch import Tensor

from genpr.distributed import Communicator, current_communicator
from genpr.errors import FeatureError
from genpr.metrics.real_manifold import Memberships, PairProgress, progress_counter
from genpr.neighbors.balls import Ball, Ties
from genpr.neighbors.counts import Neighborhood, cross_counts
from genpr.neighbors.engine import Engine
from genpr.neighbors.index import IndexedPoints
from genpr.neighbors.nearest import nearest_between
from genpr.neighbors.search import Advance
from genpr.validation import Features, check_features, check_rows, check_same_width, choose_device

_ENGINE = Engine()  # whose searches are those of this rank alone


def memberships_of_ranks(
    real: Features,
    fake: Features,
    *,
    k: int,
    ties: Ties,
    device: str | torch.device,
    progress: PairProgress | None = None,
) -> Memberships:
    """Memberships in balls of k neighbors for all rows in rank order, the same on every rank; see `manifold_metrics`."""
    sides = check_features(real, "real"), check_features(fake, "fake")
    check_same_width(*sides)
    communicator, where = current_communicator(), choose_device(real, device)
    own = [*map(len, sides), sides[0].shape[1], *(str(side.dtype) for side in sides)]
    lengths, fake_lengths, widths, *types = map(
        list, zip(*communicator.all_gather_object(own, "shapes"), strict=True)
    )
    if len({*widths}) > 1:
        raise FeatureError(
            f"the ranks have {widths} features per image; embed the images on all ranks with the same extractor",
            code="width-mismatch",
        )
    if len({*chain(*types)}) > 1:  # large ones may be float16
        sides = sides[0].float(), sides[1].float()
    for name, total in (("real", sum(lengths)), ("fake", sum(fake_lengths))):
        check_rows(torch.empty(total, 0, device="meta"), name, k=k)
    x, y, n, m = sides[0].to(where), sides[1].to(where), sum(lengths), sum(fake_lengths)
    pairs = (2 * n - len(x) - 1) * len(x) // 2 + (2 * m - len(y) - 1) * len(y) // 2 + len(x) * m
    advance, placed = progress_counter(pairs, progress), IndexedPoints.from_features(x, k)
    x_sq_radii = kth_sq_distances(placed, k, communicator, advance)
    y_sq_radii = kth_sq_distances(IndexedPoints.from_features(y, k), k, communicator, advance)
    by_real = torch.zeros(2, n, dtype=torch.int64, device=where)
    by_fake = torch.zeros(2, m, dtype=torch.int64, device=where)
    of_own, of_visiting = torch.split(by_real, lengths, dim=1), torch.split(by_fake, fake_lengths, dim=1)
    for step in range(communicator.size):
        there = (communicator.rank - step) % communicator.size
        visiting, sq_radii = communicator.rotate(y, step), communicator.rotate(y_sq_radii, step)
        if len(x) and len(visiting):
            found = cross_counts(
                placed,
                placed.in_same_frame(visiting),
                real_sq_radii=x_sq_radii[None],
                fake_sq_radii=sq_radii[None],
                ties=ties,
                engine=_ENGINE,
                advance=advance,
            )
            of_own[communicator.rank].add_(torch.cat([found.fakes_per_real_ball, found.fake_balls_per_real]))
            of_visiting[there].add_(torch.cat([found.real_balls_per_fake, found.reals_per_fake_ball]))
        del visiting  # before the next ones come
    by_real, by_fake = communicator.all_reduce_sum(by_real), communicator.all_reduce_sum(by_fake)
    return Memberships(
        n_real=n,
        n_fake=m,
        real_balls_per_fake={Ball(k): by_fake[0]},
        fakes_per_real_ball={Ball(k): by_real[0]},
        fake_balls_per_real={Ball(k): by_real[1]},
        reals_per_fake_ball={Ball(k): by_fake[1]},
    )


def kth_sq_distances(own: IndexedPoints, k: int, communicator: Communicator, advance: Advance) -> Tensor:
    """Squared distances (n,) float64 of the rows of this rank to the k-th nearest other row of any rank."""
    n = len(own)
    nearest = torch.full((n, k), torch.inf, dtype=torch.float64, device=own.device)
    if n > 1:
        balls = [Ball(each) for each in range(1, min(k, n - 1) + 1)]
        nearest[:, : len(balls)] = Neighborhood.from_points(
            own, balls, engine=_ENGINE, advance=advance
        ).sq_radii.T
    for step in range(1, communicator.size):
        visiting = communicator.rotate(own.features, step)
        if n and len(visiting):
            most = min(k, len(visiting))
            _, sq = nearest_between(own, own.in_same_frame(visiting), most, engine=_ENGINE, advance=advance)
            nearest = torch.cat([nearest, sq], dim=1).sort(dim=1).values[:, :k]
        del visiting
    return nearest[:, k - 1].contiguous()
