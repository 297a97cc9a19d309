"""Distances on a GPU equal those of the CPU and are reproducible, for sets that fit in its memory or not."""

from functools import partial
from itertools import cycle

import numpy as np
import pytest
import torch

from genpr.metrics import blocks
from genpr.metrics.fakes_only import inception_score, vendi_score
from genpr.metrics.frechet import frechet_distance, frechet_infinity
from genpr.metrics.kernel import cmmd, kernel_distance
from genpr.metrics.mind import monge_inception_distance

pytestmark = pytest.mark.gpu


def inception(_real, fake, device):
    shares = (9 * torch.as_tensor(fake).cpu()).softmax(dim=1)
    shares = shares.numpy() if isinstance(fake, np.ndarray) else shares.to(fake.device)
    return inception_score(shares, device=device)


FUNCTIONS = {
    "fd": frechet_distance,
    "fd_infinity": frechet_infinity,
    "kid": partial(kernel_distance, subsets=3, subset_size=97),
    "cmmd": cmmd,
    "mind": partial(monge_inception_distance, directions=20),
    "vendi": lambda _, fake, device: vendi_score(fake, device=device),
    "inception_score": inception,
}


@pytest.mark.parametrize(("d", "fits"), [(24, [True]), (150, [False]), (25, [True, False])])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gpu_values_equal_cpu_values(name, d, fits, rng, monkeypatch):
    function = FUNCTIONS[name]
    real, fake = (rng.normal(5, 0.05 + i / 50, (130 - 9 * i, d)).astype(np.float32) for i in range(2))
    expected = function(real, fake, device="cpu")
    answers = cycle(fits)  # of the sets, which are more and fewer rows than features
    monkeypatch.setattr(blocks, "fits", lambda *_: next(answers))
    monkeypatch.setattr(blocks, "_TILE_ROWS", 18)
    monkeypatch.setattr(blocks, "_BLOCK_ELEMENTS", 40 * d)
    there = [torch.from_numpy(each).cuda() for each in (real, fake)]
    found = [function(real, fake, device="cuda") for _ in range(2)] + [function(*there, device="auto")]
    assert found[0] == found[1] == found[2]
    assert found[0] == pytest.approx(expected, rel=1e-6)
    assert function(*there, device="cpu") == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "most_waits"),
    [("fd", 13), ("kid", 5), ("cmmd", 8), ("mind", 4), ("vendi", 5), ("inception_score", 12)],
)
def test_set_is_uploaded_once_with_few_synchronizations(name, most_waits, gpu, rng, monkeypatch):
    if gpu is None:
        pytest.skip("only the practice GPU counts")
    monkeypatch.setattr(blocks, "_TILE_ROWS", 18)
    monkeypatch.setattr(blocks, "_BLOCK_ELEMENTS", 40 * 90)
    sets = [rng.normal(5, 1, (200, 90)).astype(np.float32) for _ in range(2)]
    gpu.reset()
    FUNCTIONS[name](*sets, device="cuda")
    assert gpu.copied_bytes["to device"] < 1.1 * sum(each.nbytes for each in sets)
    assert gpu.synchronizations.total() <= most_waits
    assert not gpu.nondeterministic
