"""Truncation rules of z, to the last bit, and interpolation of w towards its mean."""

import math
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
import torch
from raising import raising
from torch import nn

from genpr.checkpoints.generator import RULES, check_psi, draw_latents
from genpr.checkpoints.sampler import Sampler
from genpr.errors import DataError, UsageError

D, W = 6, 12


class Style(nn.Module):
    """Images of 2 x 2 pixels whose 12 values are w."""

    z_dim = D

    def __init__(self, mapping, synthesis=None):
        super().__init__()
        self.mapping = mapping
        self.seen = []
        self.synthesis = synthesis or self._synthesis

    def _synthesis(self, w):
        self.seen.append(w.clone())
        return w.reshape(len(w), -1)[:, :W].view(-1, 3, 2, 2).sigmoid()


class Curved(nn.Module):
    """A nonlinear mapping that records its inputs."""

    def __init__(self, num_ws=None):
        super().__init__()
        self.linear = nn.Linear(D, W)
        with torch.no_grad():
            self.linear.weight.normal_(generator=torch.Generator().manual_seed(1))
        self.num_ws = num_ws
        self.calls = []

    def forward(self, z):
        self.calls.append(z.clone())
        w = self.linear(z).square()
        if self.num_ws is None:
            return w
        return w[:, None] * torch.arange(1, self.num_ws + 1)[None, :, None]


def sampler(style, **options):
    return Sampler.of(style, **{"n": 20, "image_range": (0, 1), "seed": 4} | options)


def run(style, psi, **options):
    """The w that the synthesis received, (n, ...)."""
    style.seen.clear()
    list(sampler(style, **options).images(psi))
    return torch.cat(style.seen)


def mean_of(mapping):
    """Mean over the latents that were mapped before the samples, and their number."""
    calls = [z for z in mapping.calls if len(z) == 1000]
    mapping.calls.clear()
    with torch.no_grad():
        w = torch.cat([mapping(z) for z in calls])
    mapping.calls.clear()
    return w.double().mean(0), len(w)


@pytest.mark.parametrize("num_ws", [None, 3])
@pytest.mark.parametrize("psi", [0.0, 0.3, 0.8, -1.0, 1.5])
def test_w_is_interpolated_towards_the_mean_of_10000_latents(num_ws, psi):
    style = Style(Curved(num_ws))
    w = run(style, 1.0)
    assert w.shape == ((20, W) if num_ws is None else (20, num_ws, W))
    style.mapping.calls.clear()
    truncated = run(style, psi)
    mean, count = mean_of(style.mapping)
    assert count == 10_000
    torch.testing.assert_close(truncated, (mean + psi * (w.double() - mean)).float(), rtol=1e-5, atol=1e-4)
    assert (mean - style.mapping(torch.zeros(1, D))[0]).abs().max() > 0.5  # no other center would do
    with torch.no_grad():
        assert torch.equal(w, style.mapping(sampler(style).latents))
    for options in ({"seed": 9}, {"n": 7}, {"batch_size": 3}):
        assert torch.equal(run(style, 0.0, **options)[0], run(style, 0.0)[0])


def test_mean_is_computed_once_and_again_when_weights_change():
    style = Style(Curved())
    drawn = sampler(style)
    first, again = (torch.cat(list(drawn.images(psi))) for psi in (0.0, 0.0))
    assert torch.equal(first, again)
    assert sum(len(z) == 1000 for z in style.mapping.calls) == 10
    with torch.no_grad():
        style.mapping.linear.weight.mul_(2)
    assert not torch.equal(torch.cat(list(drawn.images(0.0))), first)
    assert sum(len(z) == 1000 for z in style.mapping.calls) == 20


def test_mean_of_a_mapping_without_weights_is_computed_every_time():
    factor = [1.0]

    class Plain:
        z_dim = D

        def mapping(self, z):
            return (z + factor[0]).repeat(1, 2)

        def synthesis(self, w):
            return w.view(-1, 3, 2, 2)

    drawn = Sampler.of(Plain(), n=4, image_range=(-5, 5))
    first = next(iter(drawn.images(0.0)))
    factor[0] = 2.0
    assert (next(iter(drawn.images(0.0))).int() - first.int()).abs().max() > 20


class Conditional(nn.Module):
    """A mapping with a separate mean of w for each label."""

    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.tensor([[-40.0], [0.0], [30.0]]))

    def forward(self, z, labels):
        index = labels if labels.ndim == 1 else labels.argmax(1)
        return (z + self.places[index]).repeat(1, 2)


@pytest.mark.parametrize("one_hot", [False, True])
def test_every_label_has_a_separate_mean(one_hot):
    style = Style(Conditional())
    labels = torch.tensor([2, 0, 0, 2, 2, 0, 2, 0, 0, 2, 2])  # 1 never
    given = torch.eye(3)[labels] if one_hot else labels
    w = run(style, 0.0, n=11, labels=given, batch_size=4)
    assert w[labels == 0].sub(-40).abs().max() < 0.1
    assert w[labels == 2].sub(30).abs().max() < 0.1
    half = run(style, 0.5, n=11, labels=given, batch_size=4)
    whole = run(style, 1.0, n=11, labels=given, batch_size=4)
    torch.testing.assert_close(half, (w + whole) / 2)


def test_stylegan_receives_c_with_and_without_labels():
    class Mapping(nn.Module):
        given = None

        def forward(self, z, c, truncation_psi=1, truncation_cutoff=None):
            assert truncation_psi == 1
            Mapping.given = c
            return z.repeat(1, 2)

    style = Style(Mapping())
    run(style, 0.5)
    assert Mapping.given is None
    labels = torch.eye(5)[torch.arange(20) % 5]
    run(style, 0.5, labels=labels)
    assert torch.equal(Mapping.given, labels)


def test_rules_of_z_do_not_truncate_w():
    style = Style(Curved())
    w = run(style, 0.5, rule="z-clip")
    with torch.no_grad():
        assert torch.equal(w, style.mapping(sampler(style).latents.clamp(-0.5, 0.5)))
    assert not any(len(z) == 1000 for z in style.mapping.calls)


def test_invalid_outputs_of_mappings_are_errors():
    bad = [
        *[lambda z: z[:-1], lambda z: z[:, 0], lambda z: z[:, :, None, None]],
        *[lambda z: z.int(), lambda z: (z, z), lambda z: z + math.nan],
    ]
    for mapping in bad:
        style = SimpleNamespace(z_dim=D, mapping=mapping, synthesis=lambda w: w.view(-1, 3, 2, 1))
        with pytest.raises(DataError) as caught:
            list(sampler(style).images(0.5))
        assert caught.value.code in {"generator-output", "generator-non-finite"}
    with raising(UsageError, "generator-labels"):
        sampler(Style(Curved()), labels=[0] * 20)


@pytest.fixture(scope="module")
def z():
    return draw_latents(2000, 10, seed=3)


POINTS = [1e-30, 1e-10, 1e-4, 0.01, 0.3, 0.67, 0.7, 1.0, 2.0, 3.3, 5.0, 5.6, 6.5, 8.0]


def test_scaling_and_clipping_equal_their_definitions(z):
    np.testing.assert_array_equal(RULES["z-scale"](z, 0.5).numpy(), z.numpy() * np.float32(0.5))
    np.testing.assert_array_equal(RULES["z-clip"](z, 0.75).numpy(), np.clip(z.numpy(), -0.75, 0.75))
    assert torch.equal(RULES["w-interpolate"](z, 0.3), z)


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
