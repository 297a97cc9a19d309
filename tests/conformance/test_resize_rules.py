"""Every resize rule against the package that made it a convention, at photographs and at noise."""

from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from peers import Peer
from PIL import Image
from torch import Tensor, nn

from genpr.features.networks import clip
from genpr.features.resize import RESIZE_RULES, pillow_rule

fidelity = Peer("torch_fidelity.interpolate_compat_tensorflow")
pytorch_fid = Peer("pytorch_fid.inception")
torchmetrics_fid = Peer("torchmetrics.image.fid")
cleanfid = Peer("cleanfid.resize")
open_clip = Peer("open_clip.transform")
timm_data = Peer("timm.data")
transforms = Peer("torchvision.transforms")

SIZES = [  # for CLIP, the longer side and the offset of some depend on the rounding rule
    *((1, 1), (1, 17), (2, 3), (31, 45), (45, 31), (64, 64), (224, 224), (256, 256), (299, 299)),
    *((300, 298), (333, 500), (640, 427), (400, 412)),
]


@pytest.fixture(scope="module")
def sized(photos) -> list[Tensor]:
    """Noise and photos with black and white edges, uint8 (3, h, w), as decoders lay them out: channels next to each other."""
    images = []
    for number, (h, w) in enumerate(SIZES):
        image = torch.randint(0, 256, (3, h, w), generator=torch.Generator().manual_seed(h)).to(torch.uint8)
        if number % 2:
            photo = photos[h % 2] if h <= w else photos[h % 2].mT
            top, left = (photo.shape[1] - h) // 2, (photo.shape[2] - w) // 2
            image = photo[:, top : top + h, left : left + w].clone()
            image[:, h // 3 : h // 2, : w // 2] = 255
            image[:, h // 2 : h // 2 + 2, : w // 2] = 0
        images.append(image.permute(1, 2, 0).contiguous().permute(2, 0, 1))
    return images


def pixels(image: Tensor) -> np.ndarray:
    return image.permute(1, 2, 0).numpy()


def channels_first(found) -> Tensor:
    return torch.from_numpy(np.array(found)).permute(2, 0, 1)


def by_torch_fidelity(image, side):
    size = {"size": (side, side), "align_corners": False}
    return fidelity.interpolate_bilinear_2d_like_tensorflow1x(image[None].float(), **size)[0]


def by_pytorch_fid(image, side):
    """What reaches the first layer of its network. It scales to 0..1 before it resizes, which moves the last bits."""
    layers = ("Conv2d_1a_3x3", "Conv2d_2a_3x3", "Conv2d_2b_3x3")
    with pytest.MonkeyPatch.context() as patch:
        nothing = SimpleNamespace(**{layer: nn.Identity() for layer in layers})
        patch.setattr("pytorch_fid.inception.fid_inception_v3", lambda: nothing)
        network = pytorch_fid.InceptionV3(output_blocks=(0,), resize_input=True, normalize_input=False)
    network.blocks = nn.ModuleList([nn.Identity()])
    return network(transforms.functional.to_tensor(pixels(image).copy())[None])[0][0] * 255


def by_legacy_clean_fid(image, side):
    return channels_first(cleanfid.build_resizer("legacy_pytorch")(pixels(image)))


def by_clean_fid(image, side):
    found = cleanfid.make_resizer("PIL", False, "bicubic", (side, side))(pixels(image))
    assert side != 299 or np.array_equal(found, cleanfid.build_resizer("clean")(pixels(image)))
    return channels_first(found)


def by_torchmetrics(image, side):
    network = torchmetrics_fid.NoTrainInceptionV3.__new__(torchmetrics_fid.NoTrainInceptionV3)
    nn.Module.__init__(network)
    network.features_list, network.use_antialias = ["2048"], True
    network.Conv2d_1a_3x3 = Mock(side_effect=InterruptedError)  # in place of the first layer
    with pytest.raises(InterruptedError):
        network(image[None])
    return network.Conv2d_1a_3x3.call_args.args[0][0]


def by_edm2(image, side):
    """`resize_mode="torch"` in its calculate_metrics.py."""
    return F.interpolate(image[None].float(), size=(side, side), mode="bicubic", antialias=True)[0]


def by_dgm_eval(image, side):
    """models/dinov2.py."""
    rule = transforms.Resize((side, side), transforms.InterpolationMode.BICUBIC)
    return channels_first(rule(Image.fromarray(pixels(image)))).float()


def by_openai(image, side):
    """openai/CLIP, clip/clip.py, without its normalization."""
    resize = transforms.Resize(side, interpolation=transforms.InterpolationMode.BICUBIC)
    steps = [resize, transforms.CenterCrop(side), transforms.ToTensor()]
    return transforms.Compose(steps)(Image.fromarray(pixels(image)))


def by_open_clip(mode, interpolation):
    def resized(image, side):
        options = {"resize_mode": mode, "interpolation": interpolation, "mean": (0,) * 3, "std": (1,) * 3}
        return open_clip.image_transform(side, is_train=False, **options)(Image.fromarray(pixels(image)))

    return resized


def by_timm(interpolation, crop, mode):
    def resized(image, side):
        options = {"crop_pct": crop, "crop_mode": mode, "mean": (0, 0, 0), "std": (1, 1, 1)}
        transform = timm_data.create_transform((3, side, side), interpolation=interpolation, **options)
        return transform(Image.fromarray(pixels(image)))

    return resized


OF_TIMM = [
    *(("bicubic", 0.95, "center"), ("bilinear", 0.875, "center"), ("bicubic", 0.9, "squash")),
    *(("bilinear", 1.0, "center"), ("lanczos", 1.0, "squash")),
]
# A rule, a peer, sides, what the peer subtracts and divides by, and the largest difference.
PEERS = [
    ("tf1-bilinear", by_torch_fidelity, (224, 299), (0, 1), 0),
    ("torch-bilinear", by_pytorch_fid, (299,), (0, 1), 1e-4),
    ("torch-bilinear", by_legacy_clean_fid, (299,), (0, 1), 1e-4),
    ("torch-bilinear-antialias", by_torchmetrics, (299,), (128, 128), 0),
    ("pil-bicubic-float", by_clean_fid, (224, 299), (0, 1), 0),
    ("torch-bicubic-antialias", by_edm2, (224, 299), (0, 1), 0),
    ("pil-bicubic-uint8", by_dgm_eval, (224, 299), (0, 1), 0),
    ("clip", by_openai, (224, 336), (0, 255), 0),
    ("clip", by_open_clip("shortest", "bicubic"), (224, 336), (0, 255), 0),
    *(
        (clip.resize_rule({"resize_mode": mode, "interpolation": kind}), by_open_clip(mode, kind), (224,), (0, 255), 4e-7)
        for mode, kind in [("shortest", "bilinear"), ("squash", "bilinear"), ("squash", "bicubic")]
    ),
    *(
        (pillow_rule("timm", kind, crop=crop, squash=mode == "squash"), by_timm(kind, crop, mode), (224,), (0, 255), 4e-7)
        for kind, crop, mode in OF_TIMM
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "peer", "side", "unit", "most"),
    [(rule, peer, side, *rest) for rule, peer, sides, *rest in PEERS for side in sides],
)
@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated:DeprecationWarning")
def test_rule_equals_the_package_that_made_it_a_convention(sized, rule, peer, side, unit, most):
    for image in sized:
        found = RESIZE_RULES.get(rule, rule).resize(image, side)
        expected = peer(image, side)
        assert (found.dtype, found.shape, found.is_contiguous()) == (torch.float32, expected.shape, True)
        found = (found - unit[0]) / unit[1]
        assert float((found.double() - expected.double()).abs().max()) <= most, image.shape


def test_torch_bicubic_antialias_is_pil_bicubic_float_without_the_clipping(sized):
    for image in sized:
        expected, unclipped = (
            RESIZE_RULES[name].resize(image, 224) for name in ("pil-bicubic-float", "torch-bicubic-antialias")
        )
        assert float((unclipped.clamp(0, 255) - expected).abs().max()) <= 0.02, image.shape
