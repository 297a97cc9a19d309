"""Every resize rule against the package that made it a convention, at photographs and at noise."""

import itertools
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from peers import Peer
from PIL import Image
from torch import Tensor, nn

from genpr.features.resize import RESIZE_RULES

fidelity = Peer("torch_fidelity.interpolate_compat_tensorflow")
pytorch_fid = Peer("pytorch_fid.inception")
torchmetrics_fid = Peer("torchmetrics.image.fid")
cleanfid = Peer("cleanfid.resize")
open_clip = Peer("open_clip.transform")
transforms = Peer("torchvision.transforms")

# For CLIP, the longer side and the offset of some sizes depend on the rounding rule.
SIZES = [
    (1, 1),
    (1, 17),
    (2, 3),
    (31, 45),
    (45, 31),
    (64, 64),
    (224, 224),
    (256, 256),
    (299, 299),
    (300, 298),
    (333, 500),
    (640, 427),
    (400, 412),
]
SIDES = [224, 299]

every_size = pytest.mark.parametrize(("h", "w"), SIZES)
every_side = pytest.mark.parametrize("side", SIDES)
every_kind = pytest.mark.parametrize("kind", ["photo", "noise"])


@pytest.fixture(scope="module")
def photos():
    datasets = pytest.importorskip("sklearn.datasets")
    return [torch.from_numpy(photo.copy()).permute(2, 0, 1) for photo in datasets.load_sample_images().images]


@pytest.fixture
def image(photos, kind, h, w) -> Tensor:
    """uint8 (3, h, w), with black and white edges, as decoders lay it out: channels next to each other."""
    if kind == "noise":
        image = torch.randint(0, 256, (3, h, w), generator=torch.Generator().manual_seed(h)).to(torch.uint8)
    else:
        photo = photos[h % 2] if h <= w else photos[h % 2].mT
        top, left = (photo.shape[1] - h) // 2, (photo.shape[2] - w) // 2
        image = photo[:, top : top + h, left : left + w].clone()
        assert image.shape == (3, h, w)
        image[:, h // 3 : h // 2, : w // 2] = 255
        image[:, h // 2 : h // 2 + 2, : w // 2] = 0
    return image.permute(1, 2, 0).contiguous().permute(2, 0, 1)


def resized(name: str, image: Tensor, side: int) -> Tensor:
    return RESIZE_RULES[name].resize(image, side)


def pixels(image: Tensor) -> np.ndarray:
    return image.permute(1, 2, 0).numpy()


def greatest_difference(one: Tensor, other: Tensor) -> float:
    assert one.shape == other.shape
    return float((one.double() - other.double()).abs().max())


@every_kind
@every_size
@every_side
def test_tf1_bilinear_equals_torch_fidelity(image, side):
    (expected,) = fidelity.interpolate_bilinear_2d_like_tensorflow1x(
        image[None].float(), size=(side, side), align_corners=False
    )
    assert torch.equal(resized("tf1-bilinear", image, side), expected)


@pytest.fixture
def input_of_pytorch_fid(monkeypatch):
    """pytorch-fid's `InceptionV3` without its layers: what reaches the first of them."""
    nothing = SimpleNamespace(
        Conv2d_1a_3x3=nn.Identity(), Conv2d_2a_3x3=nn.Identity(), Conv2d_2b_3x3=nn.Identity()
    )
    monkeypatch.setattr("pytorch_fid.inception.fid_inception_v3", lambda: nothing)
    network = pytorch_fid.InceptionV3(output_blocks=(0,), resize_input=True, normalize_input=False)
    network.blocks = nn.ModuleList([nn.Identity()])
    return network


@every_kind
@every_size
def test_torch_bilinear_equals_pytorch_fid(image, input_of_pytorch_fid):
    # It scales to 0..1 before it resizes; that, and the order in which it blends, move the last bits.
    (expected,) = input_of_pytorch_fid(transforms.functional.to_tensor(pixels(image).copy())[None])
    assert greatest_difference(resized("torch-bilinear", image, 299), expected[0] * 255) <= 1e-4


@every_kind
@every_size
def test_torch_bilinear_equals_the_legacy_mode_of_clean_fid(image):
    with warnings.catch_warnings():  # it adds a filter
        expected = cleanfid.build_resizer("legacy_pytorch")(pixels(image))
    expected = torch.from_numpy(expected).permute(2, 0, 1)
    assert greatest_difference(resized("torch-bilinear", image, 299), expected) <= 1e-4


class SeenError(Exception):
    """Raised in place of the first layer."""


class FirstLayer(nn.Module):
    def forward(self, x):
        raise SeenError(x)


@every_kind
@every_size
def test_torch_bilinear_antialias_equals_torchmetrics(image):
    network = torchmetrics_fid.NoTrainInceptionV3.__new__(torchmetrics_fid.NoTrainInceptionV3)
    nn.Module.__init__(network)
    network.features_list, network.use_antialias, network.Conv2d_1a_3x3 = ["2048"], True, FirstLayer()
    with pytest.raises(SeenError) as seen:
        network(image[None])
    (expected,) = seen.value.args[0]
    assert torch.equal((resized("torch-bilinear-antialias", image, 299) - 128) / 128, expected)


@every_kind
@every_size
@every_side
@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated:DeprecationWarning")
def test_pil_bicubic_float_equals_clean_fid(image, side):
    resizer = cleanfid.make_resizer("PIL", False, "bicubic", (side, side))
    expected = torch.from_numpy(resizer(pixels(image))).permute(2, 0, 1)
    ours = resized("pil-bicubic-float", image, side)
    assert torch.equal(ours, expected)
    if side == 299:
        assert np.array_equal(pixels(ours), cleanfid.build_resizer("clean")(pixels(image)))


@every_kind
@every_size
@every_side
def test_torch_bicubic_antialias_equals_edm2(image, side):
    # `resize_mode="torch"` in its calculate_metrics.py
    (expected,) = F.interpolate(
        image[None].to(torch.float32), size=(side, side), mode="bicubic", antialias=True
    )
    assert torch.equal(resized("torch-bicubic-antialias", image, side), expected)


@every_kind
@every_size
@every_side
def test_torch_bicubic_antialias_is_pil_bicubic_float_without_the_clipping(image, side):
    expected = resized("pil-bicubic-float", image, side)
    unclipped = resized("torch-bicubic-antialias", image, side)
    assert greatest_difference(unclipped.clamp(0, 255), expected) <= 0.02


@every_kind
@every_size
@every_side
def test_pil_bicubic_uint8_equals_torchvision(image, side):
    # dgm-eval, models/dinov2.py
    rule = transforms.Resize((side, side), transforms.InterpolationMode.BICUBIC)
    expected = torch.from_numpy(np.array(rule(Image.fromarray(pixels(image))))).permute(2, 0, 1)
    assert torch.equal(resized("pil-bicubic-uint8", image, side), expected.float())


@every_kind
@every_size
@pytest.mark.parametrize("side", [224, 336])
def test_clip_equals_open_clip_and_openai(image, side):
    transform = open_clip.image_transform(side, is_train=False, mean=(0.0,) * 3, std=(1.0,) * 3)
    expected = transform(Image.fromarray(pixels(image)))
    assert torch.equal(resized("clip", image, side) / 255, expected)
    # openai/CLIP, clip/clip.py, without its normalization
    resize = transforms.Resize(side, interpolation=transforms.InterpolationMode.BICUBIC)
    transform = transforms.Compose([resize, transforms.CenterCrop(side), transforms.ToTensor()])
    assert torch.equal(transform(Image.fromarray(pixels(image))), expected)


def test_sizes_distinguish_all_rounding_rules_of_clip():
    scaled = [224 * max(size) / min(size) for size in SIZES]
    assert any(int(longer) != round(longer) for longer in scaled)
    offsets = [(int(longer) - 224) / 2 for longer in scaled]
    assert any(round(offset) != int(offset) for offset in offsets)  # as against cutting off
    assert any(round(offset) != int(offset + 0.5) for offset in offsets)  # as against rounding halves up


def test_rules_of_different_names_differ():
    image = torch.randint(0, 2, (3, 40, 70), generator=torch.Generator().manual_seed(1)).to(torch.uint8) * 255
    for (name, one), (other, two) in itertools.combinations(RESIZE_RULES.items(), 2):
        assert greatest_difference(one.resize(image, 30), two.resize(image, 30)) >= 0.5, (name, other)
