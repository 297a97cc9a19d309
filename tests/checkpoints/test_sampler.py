import functools
import json
import math
import random
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from raising import raising
from torch import nn

import genpr
from genpr.checkpoints.generator import Sampler, to_uint8
from genpr.errors import DataError, ResourceError, UsageError

D = 12


def plain(latents, *, psi):
    """Images of 2 x 2 pixels that are their latents."""
    return (psi * latents).view(-1, 3, 2, 2)


def noisy(latents, *, psi):
    """Images of noise from all random streams that a generator may use."""
    noise = torch.randn(len(latents), 9)
    more = [[random.random(), np.random.rand(), np.random.randn()] for _ in latents]  # noqa: NPY002
    return torch.cat([noise, torch.tensor(more)], 1).float().view(-1, 3, 2, 2)


def sampler(generator=plain, **options):
    usual = {"n": 10, "latent_dim": D, "batch_size": 4, "image_range": (-4, 4)}
    return Sampler.of(generator, **usual | options)


def drawn(generator=plain, setting=1.0, **options):
    return torch.cat(list(sampler(generator, **options).images(setting)))


def test_setting_is_passed_by_the_name_of_the_axis():
    seen = []

    def watch(latents, *, guidance, labels=None):
        seen.append(guidance)
        return torch.zeros(len(latents), 3, 2, 2)

    images = sampler(watch, axis="guidance")
    for setting in (3.0, 7, np.float64(1.5), np.int64(2), "cosine", True):
        next(iter(images.images(setting)))
    assert seen == [3.0, 7, 1.5, 2, "cosine", True]
    assert [type(one) for one in seen] == [float, int, float, int, str, bool]
    drawn(lambda latents, **settings: torch.zeros(len(latents), 3, 2, len(settings)), axis="steps")


def test_noise_is_the_same_at_every_setting_and_in_every_pass():
    first = drawn(noisy)
    assert (first[:4] != first[4:8]).float().mean() > 0.9
    assert (drawn(noisy, seed=1) != first).float().mean() > 0.9
    torch.manual_seed(99)
    random.seed(99)
    np.random.seed(99)  # noqa: NPY002
    assert torch.equal(drawn(noisy, 0.2), first)
    images = iter(sampler(noisy).images(0.7))
    parts = [next(images)]
    torch.rand(3)
    random.random()
    parts += [next(images), next(images)]
    assert torch.equal(torch.cat(parts), first)


@pytest.mark.parametrize("fails", [False, True])
def test_random_states_are_restored(fails):
    def generate(latents, *, psi):
        if noisy(latents, psi=psi) is not None and fails:
            raise ZeroDivisionError
        return noisy(latents, psi=psi)

    states = torch.get_rng_state, random.getstate, lambda: repr(np.random.get_state())  # noqa: NPY002
    before = [state() for state in states]
    images = iter(sampler(generate).images(1.0))
    with pytest.raises(UsageError) if fails else nullcontext():
        next(images)  # and in the middle of a pass
    after = [state() for state in states]
    assert torch.equal(after[0], before[0])
    assert after[1:] == before[1:]


class Normed(nn.Module):
    z_dim = D

    def __init__(self):
        super().__init__()
        self.norm = nn.Sequential(nn.BatchNorm1d(D), nn.Dropout(0.5))
        self.frozen = nn.BatchNorm1d(D).eval()
        self.modes = []

    def forward(self, latents, psi):
        of_torch = torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
        self.modes.append((self.training, *of_torch))
        return (psi * self.frozen(self.norm(latents))).view(-1, 3, 2, 2)


class Pipeline:
    z_dim = D

    def __init__(self, network):
        self.network = network

    def __call__(self, latents, *, psi):
        return self.network(latents, psi)


@pytest.mark.parametrize("wrap", [lambda network: network, Pipeline])
def test_networks_run_in_evaluation_mode_and_are_restored(wrap):
    network = Normed()
    generator = wrap(network)
    flags = [module.training for module in network.modules()]
    state = {name: value.clone() for name, value in network.state_dict().items()}
    images = iter(sampler(generator).images(1.0))
    with torch.autocast("cpu", torch.bfloat16):
        batch = next(images)
        assert torch.is_autocast_enabled("cpu")
    assert [module.training for module in network.modules()] == flags  # between two batches too
    assert not torch.is_inference_mode_enabled()
    assert not batch.is_inference()
    rest = list(images)
    assert network.modes == [(False, True, False)] * 3
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    assert torch.equal(torch.cat([batch, *rest]), drawn(generator))
    assert sampler(generator).identity["weights"] is not None


def test_latents_are_on_the_device_of_the_networks():
    meta = nn.Linear(D, 12).to("meta")
    assert sampler(lambda latents, psi: meta(latents)).device == torch.device("meta")
    assert sampler().device == sampler(Normed(), device="cpu").device == torch.device("cpu")
    with raising(UsageError, "generator-device"):
        sampler(lambda latents, psi: meta(latents), device="cpu")
    with raising(UsageError, "meta-device"):
        drawn(lambda latents, psi: meta(latents))
    with pytest.raises(UsageError, match="device 'tpu'"):
        sampler(device="tpu")


@pytest.mark.parametrize(("factor", "warned"), [(1.08, False), (3.0, True)])
def test_result_has_a_notice_if_many_values_were_clamped(factor, warned):
    def overshoot(latents, *, psi):
        return factor * torch.rand(len(latents), 3, 16, 16)

    images = sampler(overshoot, n=12, image_range=(0, 1)).images(0.7)
    reals = np.random.default_rng(0).integers(0, 256, (12, 16, 16, 3), dtype=np.uint8)
    result = genpr.score(reals, images, extractor="pixels", control=False, intervals=False)
    assert images.clamped == pytest.approx(1 - 256 / 255 / factor, abs=0.02)
    assert ("clamped" in {one.code for one in result.notices}) == warned


def labeled(latents, *, psi=1.0, labels=None, guidance=1.0):
    return plain(latents, psi=psi)


@pytest.mark.parametrize(
    "change",
    [
        *[{"n": 9, "labels": [0] * 9}, {"latent_dim": 24}, {"seed": 1}, {"axis": "guidance"}],
        *[{"labels": [0] * 9 + [1]}, {"labels": torch.zeros(10)}, {"labels": None}, {"image_range": (-3, 4)}],
        *[{"image_range": None}, {"batch_size": 5}, {"name": "other"}, {"rule": "z-clip"}],
    ],
    ids=str,
)
def test_every_option_that_changes_images_changes_the_identity(change):
    options = {"labels": [0] * 10}
    assert sampler(labeled, **options | change).identity != sampler(labeled, **options).identity


@pytest.mark.parametrize(
    ("generator", "options", "code"),
    [
        (3, {}, "custom-generator"),
        (lambda: None, {"rule": "z-clip"}, "custom-generator"),
        (lambda z, size, psi: z, {}, "custom-generator"),
        *[(plain, each, "custom-generator") for each in ({"axis": "guidance"}, {"labels": [0] * 10})],
        *[(plain, {"axis": each}, "bad-axis") for each in ("not a name", "labels")],
        (plain, {"rule": "z-scale", "axis": "guidance"}, "bad-axis"),
        *((plain, {"rule": "z-fold"}, "unknown-rule"), (plain, {"rule": "w-interpolate"}, "bad-axis")),
        (plain, {"latent_dim": None}, "latent-dim"),
        *[(plain, {each: 0}, "bad-option") for each in ("latent_dim", "n", "batch_size")],
        (plain, {"seed": -1}, "seed"),
        (plain, {"image_range": (1, 0)}, "image-range"),
        *[(labeled, {"labels": each}, "generator-labels") for each in ([0] * 9, ["cat"] * 10)],
        (labeled, {"labels": np.zeros((10, 1, 1))}, "generator-labels"),
        (labeled, {"labels": torch.zeros(10, device="meta")}, "generator-labels"),
    ],
)
def test_invalid_options_are_errors_before_sampling(generator, options, code):
    with raising(UsageError, code):
        sampler(generator, **options)


def test_latent_dim_defaults_to_the_attribute_of_the_generator():
    for attribute in ("z_dim", "latent_dim"):
        generator = functools.partial(plain)
        setattr(generator, attribute, 24)
        assert sampler(generator, latent_dim=None).latents.shape == (10, 24)
    assert sampler(Pipeline(Normed()), latent_dim=6).latents.shape == (10, 6)


def test_latents_and_labels_are_the_same_at_every_setting():
    seen, labels = [], np.arange(20).reshape(10, 2)

    def watch(latents, *, psi, labels):
        seen.append((latents.clone(), labels))
        latents.zero_()  # a generator may work in place
        return torch.zeros(len(latents), 3, 2, 2)

    one = sampler(watch, labels=labels)
    for setting in (1.0, 0.3):
        batches = list(one.images(setting))
    assert [batch.shape for batch in batches] == [(n, 3, 2, 2) for n in (4, 4, 2)]
    assert {batch.dtype for batch in batches} == {torch.uint8}
    expected = torch.randn(10, D, generator=torch.Generator().manual_seed(0))
    for found in (seen[:3], seen[3:]):
        assert torch.equal(torch.cat([latents for latents, _ in found]), expected)
        assert torch.equal(torch.cat([given for _, given in found]), torch.from_numpy(labels))
    truncated = drawn(lambda latents: latents.view(-1, 3, 2, 2), 0.4, rule="z-clip")
    clipped = expected.clamp(-0.4, 0.4).view(-1, 3, 2, 2)
    assert torch.equal(truncated, to_uint8(clipped, expected=10, image_range=(-4, 4), who="")[0])


def test_identity_is_json_and_depends_on_the_weights():
    network = Normed()
    one = sampler(network)
    before = one.identity
    assert json.loads(json.dumps(before, allow_nan=False)) == before == sampler(network).identity
    with torch.no_grad():
        network.norm[0].weight.add_(1)
    assert one.identity != before
    assert sampler().identity["weights"] is None


@pytest.mark.parametrize("setting", [math.nan, math.inf, None, [1], torch.tensor(1.0)])
def test_invalid_settings_are_errors(setting):
    with raising(UsageError, "bad-setting"):
        sampler().images(setting)
    with raising(UsageError, "bad-psi"):
        sampler(labeled, rule="z-clip").images(-1)


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (KeyError("conv1\nconv2"), UsageError, "generator-failed"),
        (SystemExit(0), UsageError, "generator-failed"),
        (StopIteration(), UsageError, "generator-failed"),
        (GeneratorExit(), UsageError, "generator-failed"),
        (torch.OutOfMemoryError("CUDA out of memory"), ResourceError, "oom"),
        (DataError("no", code="mine"), DataError, "mine"),
        (None, DataError, "generator-output"),
    ],
)
def test_errors_of_a_generator_name_it_and_the_batch(error, kind, code):
    def broken(latents, *, psi):
        if error is not None:
            raise error
        return torch.zeros(3, 3, 2, 2)

    with pytest.raises(kind) as caught:
        drawn(broken, 0.25)
    assert caught.value.code == code
    assert code == "mine" or "'broken at psi=0.25', batch 0" in str(caught.value)
