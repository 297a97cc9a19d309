"""Truncation rules of z, to the last bit, and interpolation of w towards its mean."""

import math
import re
from pathlib import Path
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
import torch
from raising import raising

from genpr.checkpoints.generator import RULES, Sampler, check_psi
from genpr.errors import DataError, UsageError


@pytest.fixture(scope="module")
def z():
    return torch.randn(2000, 10, generator=torch.Generator().manual_seed(3))


POINTS = [1e-30, 1e-10, 1e-4, 0.01, 0.3, 0.67, 0.7, 1.0, 2.0, 3.3, 5.0, 5.6, 6.5, 8.0]


def test_scaling_and_clipping_equal_their_definitions(z):
    np.testing.assert_array_equal(RULES["z-scale"](z, 0.5).numpy(), z.numpy() * np.float32(0.5))
    np.testing.assert_array_equal(RULES["z-clip"](z, 0.75).numpy(), np.clip(z.numpy(), -0.75, 0.75))


@pytest.mark.parametrize("psi", [1e-8, 1e-3, 0.02, 0.3, 1.0, 1.5, 2.5, 5.0, 8.0, 40.0])
def test_resampling_is_exact_to_the_last_bit(psi):
    z = torch.tensor([POINTS, [-point for point in POINTS]])
    with mpmath.workdps(60):
        bound = mpmath.erf(mpmath.mpf(psi) / mpmath.sqrt(2))
        exact = [
            float(mpmath.sqrt(2) * mpmath.erfinv(mpmath.erf(mpmath.mpf(point) / mpmath.sqrt(2)) * bound))
            for point in z[0].tolist()
        ]
    expected = torch.tensor([exact, [-x for x in exact]], dtype=torch.float64).float()
    assert torch.equal(RULES["z-resample"](z, psi), expected)


@pytest.mark.parametrize("rule", ["z-scale", "z-clip", "z-resample"])
def test_psi_zero_gives_zero_latents_and_bounded_rules_keep_order(z, rule):
    before = z.clone()
    assert not RULES[rule](z, 0.0).any()
    for psi in (0.05, 0.7, 3.0) if rule != "z-scale" else ():
        drawn = RULES[rule](z, psi)
        assert drawn.dtype == torch.float32
        assert drawn.abs().max() <= float(np.float32(psi))
        assert (drawn[z[:, 0].argsort(), 0].diff() >= 0).all()
    assert torch.equal(z, before)


@pytest.mark.parametrize("psi", [math.nan, math.inf, True, "0.5", None, -0.5])
def test_invalid_psi_and_unknown_rules_are_errors(psi):
    check_psi("w-interpolate", -1)
    for rule in RULES:
        if (rule, psi) != ("w-interpolate", -0.5):
            with raising(UsageError, "bad-psi"):
                check_psi(rule, psi)
    with raising(UsageError, "unknown-rule"):
        check_psi("z-fold", 0.5)


def test_page_names_every_truncation_rule():
    page = (Path(__file__).parents[2] / "docs" / "generators.md").read_text()
    assert set(re.findall(r"^\| `([zw]-\w+)`", page, re.MULTILINE)) == set(RULES)


D, W = 6, 12


class Style:
    """Images of 2 x 2 pixels whose 12 values are w, and a mapping that records its inputs."""

    z_dim = D

    def __init__(self, mapping=lambda z: z.square().repeat(1, 2)):
        self.seen, self.mapped, self._mapping = [], [], mapping

    def mapping(self, z, labels=None):
        self.mapped.append(z)
        return self._mapping(z) if labels is None else self._mapping(z, labels)

    def synthesis(self, w):
        self.seen.append(w)
        return w.reshape(len(w), -1)[:, :W].view(-1, 3, 2, 2).sigmoid()


def run(style, psi, **options):
    """The w that the synthesis received, (n, ...)."""
    style.seen.clear()
    style.mapped.clear()
    list(Sampler.of(style, **{"n": 20, "image_range": (0, 1), "seed": 4} | options).images(psi))
    return torch.cat(style.seen)


@pytest.mark.parametrize(
    "mapping", [lambda z: z.square().repeat(1, 2), lambda z: z.square()[:, None].repeat(1, 3, 2)]
)
@pytest.mark.parametrize("psi", [0.0, 0.3, -1.0, 1.5])
def test_w_is_interpolated_towards_the_mean_of_10000_latents(mapping, psi):
    style = Style(mapping)
    w = run(style, 1.0)
    assert sum(map(len, style.mapped)) == 20, "at 1, no mean is needed"
    truncated = run(style, psi, batch_size=7)
    means = torch.cat([z for z in style.mapped if len(z) == 1000])
    assert len(means) == 10_000
    mean = mapping(means).double().mean(dim=0)
    assert mean.sub(1).abs().max() < 0.1, "of the squares of normal numbers"
    torch.testing.assert_close(truncated, (mean + psi * (w - mean)).float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("one_hot", [False, True])
def test_every_label_has_a_separate_mean(one_hot):
    places = torch.tensor([[-40.0], [0.0], [30.0]])
    style = Style(lambda z, labels: (z + places[labels.argmax(1) if one_hot else labels]).repeat(1, 2))
    labels = torch.tensor([2, 0, 0, 2, 2, 0, 2, 0, 0, 2, 2])  # 1 never
    given = torch.eye(3)[labels] if one_hot else labels
    w = run(style, 0.0, n=11, labels=given, batch_size=4)
    assert w.sub(places[labels]).abs().max() < 0.1
    assert sum(len(z) == 1000 for z in style.mapped) == 20


def test_rules_of_z_do_not_truncate_w():
    style = Style()
    w = run(style, 0.5, rule="z-clip")
    assert w.max() == 0.25
    assert sum(map(len, style.mapped)) == 20


def test_stylegan_receives_c_with_and_without_labels():
    given = []
    style = Style()
    style.mapping = lambda z, c: (given.append(c), z.repeat(1, 2))[1]
    run(style, 0.5)
    assert {*given} == {None}
    given.clear()
    labels = torch.eye(5)[torch.arange(20) % 5]
    run(style, 0.5, labels=labels)
    assert torch.equal(given[0], labels)


def test_invalid_outputs_of_mappings_and_missing_parameters_are_errors():
    bad = [lambda z: z[:-1], lambda z: z[:, 0], lambda z: z.int(), lambda z: (z, z), lambda z: z + math.nan]
    for mapping in bad:
        style = SimpleNamespace(z_dim=D, mapping=mapping, synthesis=lambda w: w.view(-1, 3, 2, 1))
        with pytest.raises(DataError) as caught:
            list(Sampler.of(style, n=20, image_range=(0, 1)).images(0.5))
        assert caught.value.code in {"generator-output", "generator-non-finite"}
    with raising(UsageError, "generator-labels"):
        Sampler.of(style, n=20, labels=[0] * 20)
    for generator, options in (
        (style, {"axis": "guidance"}),
        (torch.relu, {"rule": "w-interpolate", "latent_dim": 2}),
    ):
        with raising(UsageError, "bad-axis"):
            Sampler.of(generator, n=20, **options)
