"""Decisions on a GPU equal those on the CPU, to the last bit."""

from dataclasses import fields, replace
from itertools import cycle

import feature_cases
import numpy as np
import pytest
import torch
from search_cases import SEARCH_KINDS, projection_of, sq_radii

from genpr.neighbors import index
from genpr.neighbors.counts import Radii, cross_counts
from genpr.neighbors.distance import sq_distances
from genpr.neighbors.engine import Engine
from genpr.neighbors.index import IndexedPoints, Projection, choose_projection, is_suitable
from genpr.neighbors.nearest import nearest_between

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("d", [1, 37, 2048])
def test_distances_on_a_gpu_have_the_same_bits(d, rng):
    x, y = torch.from_numpy(rng.normal(5, 1, (2, 300, d))).float()
    assert torch.equal(sq_distances(x.cuda(), y.cuda()).cpu(), sq_distances(x, y))


def _moved(projection: Projection, device: str) -> Projection:
    tensors = {
        field.name: value.to(device)
        for field in fields(projection)
        if isinstance(value := getattr(projection, field.name), torch.Tensor)
    }
    return replace(projection, **tensors)


def _everything(x: IndexedPoints, y: IndexedPoints, engine: Engine) -> list[torch.Tensor]:
    known = [sq_radii(points, [3, 5], engine=engine) for points in (x, y)]
    radii, tables = [Radii(each, each) for each in known], []
    for ties in ("closed", "strict"):
        counts = cross_counts(x, y, real_radii=radii[0], fake_radii=radii[1], ties=ties, engine=engine)
        tables += [
            counts.real_balls_per_fake,
            counts.fakes_per_real_ball,
            counts.fake_balls_per_real,
            counts.reals_per_fake_ball,
        ]
    nearest = nearest_between(x, y, 4, engine=engine)[1]
    assert all(table.device == x.features.device for table in (*known, *tables, nearest))
    return [table.cpu() for table in (*known, *tables, nearest)]


def _assert_equal(on_cpu: list[torch.Tensor], on_cuda: list[torch.Tensor]) -> None:
    for one, other in zip(on_cpu, on_cuda, strict=True):
        assert torch.equal(one, other)


@pytest.mark.filterwarnings("ignore:Please use the new API")  # of torch 2.9 and later, once in a process
@pytest.mark.parametrize(
    ("case", "kind"), [*zip([*feature_cases.names()[::3], "duplicates"], cycle(SEARCH_KINDS))]
)
def test_radii_and_counts_on_a_gpu_are_equal(case, kind):
    real, fake = map(torch.from_numpy, feature_cases.make(case))
    projection = projection_of(real, kind)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")  # allows TF32, which must not be used
    try:
        results = []
        for device in ("cpu", "cuda"):
            moved = _moved(projection, device)
            x, y = moved.place(real.to(device)), moved.place(fake.to(device))
            results.append(_everything(x, y, Engine() if device == "cpu" else Engine(96, 80)))
    finally:
        torch.set_float32_matmul_precision(before)
    _assert_equal(*results)


def test_projection_chosen_on_the_gpu_gives_equal_results(gpu, rng, monkeypatch):
    monkeypatch.setattr(index, "_MIN_ROWS", 1500)
    directions = rng.normal(size=(8, 128)) / np.sqrt(8)
    latent = rng.normal(size=(2, 1500, 8)) @ directions
    sets = [torch.from_numpy(x + 3 + 0.01 * rng.normal(size=x.shape)).half() for x in latent]
    results = []
    for device in ("cpu", "cuda"):
        projection = choose_projection(sets[0].to(device), 5)
        assert gpu is None or not any(name.startswith("index_add") for name, _ in gpu.nondeterministic)
        assert (projection.basis is None) == (device == "cuda")
        assert projection.rounding == (torch.float16 if device == "cuda" else None)
        x, y = (projection.place(features.to(device)) for features in sets)
        assert is_suitable(y, 5)
        results.append(_everything(x, y, Engine()))
    _assert_equal(*results)
