"""The GPU decides as the CPU does, to the last bit."""

from __future__ import annotations

import feature_cases
import pytest
import torch

from genpr.neighbours.bounds import Frame
from genpr.neighbours.search import cross_counts, kth_sq_distances
from genpr.neighbours.torch_tiles import TorchTiles
from genpr.neighbours.verify import sq_distances

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("d", [1, 37, 2048])
def test_distances_have_the_same_bits(d, rng):
    x, y = torch.from_numpy(rng.normal(5, 1, (2, 300, d))).float()
    assert torch.equal(sq_distances(x.cuda(), y.cuda()).cpu(), sq_distances(x, y))


@pytest.mark.parametrize("case", feature_cases.names())
@pytest.mark.parametrize("tiles", [TorchTiles(), TorchTiles(64, 50)], ids=["budget", "small"])
@pytest.mark.parametrize("tf32", [False, True])
def test_radii_and_counts_are_equal(case, tiles, tf32):
    real, fake = map(torch.from_numpy, feature_cases.make(case))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        results = []
        for device in ("cpu", "cuda"):
            frame = Frame.fit(real.to(device))
            x, y = frame.place(real.to(device)), frame.place(fake.to(device))
            radii = [kth_sq_distances(points, [3, 5], engine=tiles) for points in (x, y)]
            counts = cross_counts(x, y, real_sq_radii=radii[0], fake_sq_radii=radii[1], engine=tiles)
            tables = (
                counts.real_balls_per_fake,
                counts.fakes_per_real_ball,
                counts.fake_balls_per_real,
                counts.reals_per_fake_ball,
            )
            results.append([table.cpu() for table in (*radii, *tables)])
        for on_cpu, on_cuda in zip(*results, strict=True):
            assert torch.equal(on_cpu, on_cuda)
    finally:
        torch.set_float32_matmul_precision(before)
