"""Ours against the two packages whose numbers the field quotes, with random weights (the real ones are not needed
to tell two networks apart) that keep every layer alive."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
import torch
from torch import nn

from genpr.features.inception import InceptionExtractor
from genpr.features.resize import tf1_bilinear
from genpr.features.weights import INCEPTION_2015

pytorch_fid = pytest.importorskip("pytorch_fid.inception")
fidelity_resize = pytest.importorskip("torch_fidelity.interpolate_compat_tensorflow")
fidelity_network = pytest.importorskip("torch_fidelity.feature_extractor_inceptionv3")


class BuiltError(Exception):
    """Raised in place of a download."""


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """A random state dict with the names and shapes of the published one, taken from pytorch-fid's network."""
    shapes = {}

    def remember(module, *_args, **_kwargs):
        shapes.update({name: value.shape for name, value in module.state_dict().items()})
        raise BuiltError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytorch_fid, "load_state_dict_from_url", lambda *_args, **_kwargs: {})
        patch.setattr(nn.Module, "load_state_dict", remember)
        with torch.device("meta"), pytest.raises(BuiltError):
            pytorch_fid.fid_inception_v3()
    return {name: live_tensor(name, shape) for name, shape in shapes.items()}


def live_tensor(name: str, shape: torch.Size) -> torch.Tensor:
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")
    generator = torch.Generator().manual_seed(seed)
    if name.endswith("num_batches_tracked"):
        return torch.tensor(1)
    if name.endswith(("bn.weight", "running_var")):
        return torch.rand(shape, generator=generator) + 0.5
    if name.endswith("conv.weight"):
        return torch.randn(shape, generator=generator) * (2 / shape[1:].numel()) ** 0.5
    return torch.randn(shape, generator=generator) * 0.1


@pytest.fixture(scope="module")
def path(state, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / INCEPTION_2015.name
    torch.save(state, path)
    return path


@pytest.fixture(scope="module")
def ours(path):
    data = path.read_bytes()
    entry = replace(INCEPTION_2015, size=len(data), sha256=hashlib.sha256(data).hexdigest())
    return InceptionExtractor(entry, path, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def images():
    generator = torch.Generator().manual_seed(3)
    images = torch.randint(0, 256, (4, 3, 40, 56), dtype=torch.uint8, generator=generator)
    images[1] //= 2
    images[2, :, :, 28:] = 255
    images[3] = images[3].sort(dim=-1).values
    return images


def close(features: torch.Tensor, reference: torch.Tensor) -> None:
    assert (reference > 0).float().mean() > 0.5, "the random network must be alive"
    spread = reference.std(dim=0)
    assert spread.median() > 0.05, "and tell the images apart"
    torch.testing.assert_close(features, reference, rtol=1e-5, atol=1e-5 * float(reference.abs().max()))


def test_names_and_shapes_are_those_of_the_published_file(state, ours):
    network = ours._network.state_dict()
    assert {name: value.shape for name, value in network.items()} == {
        name: value.shape for name, value in state.items()
    }


def test_pool3_equals_pytorch_fid(state, ours, images, monkeypatch):
    monkeypatch.setattr(pytorch_fid, "load_state_dict_from_url", lambda *_args, **_kwargs: state)
    reference = pytorch_fid.InceptionV3(resize_input=False, normalize_input=False).eval()
    batch = torch.stack([ours.prepare(image) for image in images])
    with torch.inference_mode():
        expected = reference((batch - 128) / 128)[0].flatten(1)
    close(ours.forward(batch), expected)


def test_pixels_to_pool3_equals_torch_fidelity(path, ours, images):
    reference = fidelity_network.FeatureExtractorInceptionV3(
        "inception-v3-compat", ["2048"], feature_extractor_weights_path=str(path)
    )
    with torch.inference_mode():
        (expected,) = reference(images)
    close(ours(images), expected)


@pytest.mark.parametrize(
    ("h", "w"),
    [(1, 1), (2, 5), (32, 32), (64, 48), (299, 299), (300, 298), (512, 512), (97, 1301), (1024, 768)],
)
def test_the_tf1_resize_equals_torch_fidelity_bit_for_bit(h, w):
    image = torch.randint(0, 256, (3, h, w), dtype=torch.uint8, generator=torch.Generator().manual_seed(h))
    (expected,) = fidelity_resize.interpolate_bilinear_2d_like_tensorflow1x(
        image[None].float(), size=(299, 299), align_corners=False
    )
    assert torch.equal(tf1_bilinear(image, 299), expected)
