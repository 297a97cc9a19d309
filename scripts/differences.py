"""Print a number of another package and genpr's on the same input: `python scripts/differences.py [ROW ...]`.

docs/differences.md explains each row. A row whose packages are not installed prints the command that installs them.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

import genpr
from genpr.features.resize import find_rule
from genpr.images.decode import decode
from genpr.images.policy import DecodePolicy
from genpr.metrics.kernel import cmmd

Numbers = tuple[float, float]
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Row:
    """Two numbers and the packages that they need."""

    requirements: tuple[str, ...]
    compute: Callable[[], Numbers]

    def missing(self) -> list[str]:
        """Requirements that are not installed, in any version."""
        return [each for each in self.requirements if _installed(each.partition("==")[0]) is None]


ROWS: dict[str, Row] = {}


def _row(*requirements: str) -> Callable[[Callable[[], Numbers]], Callable[[], Numbers]]:
    def add(compute: Callable[[], Numbers]) -> Callable[[], Numbers]:
        ROWS[compute.__name__[1:].replace("_", "-")] = Row(requirements, compute)
        return compute

    return add


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main() -> None:
    """Print a line for each row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"one of {', '.join(ROWS)}; all by default")
    chosen = parser.parse_args().rows or list(ROWS)
    if unknown := sorted(set(chosen) - ROWS.keys()):
        parser.error(f"unknown rows: {', '.join(unknown)}; known are {', '.join(ROWS)}")
    warnings.simplefilter("ignore")
    for name in chosen:
        row = ROWS[name]
        if row.missing():
            print(f"{name}: needs `pip install {' '.join(row.requirements)}`")
            continue
        with redirect_stdout(io.StringIO()):  # prdc and piq print
            theirs, ours = row.compute()
        packages = (each.partition("==")[0] for each in row.requirements)
        versions = ", ".join(f"{each} {_installed(each)}" for each in packages)
        print(f"{name}: {versions} {theirs:.6g}, genpr {ours:.6g}", flush=True)


# Inputs ------------------------------------------------------------------------------------------------------------


def _normal(n: int, d: int, *, seed: int, scale: float = 1.0, mean: float = 0.0) -> Tensor:
    """Rows of a normal distribution, float32."""
    random = np.random.default_rng(seed)
    return torch.from_numpy((mean + scale * random.normal(size=(n, d))).astype(np.float32))


def _rectified(n: int, d: int) -> Tensor:
    """Non-negative features with strong correlations, like those of networks."""
    random = np.random.default_rng(0)
    mixed = random.normal(size=(n, 12)) @ random.normal(size=(12, d)) + random.normal(size=(n, d))
    return torch.from_numpy((np.maximum(mixed, 0) / 4).astype(np.float32))


def _certain(n: int) -> Tensor:
    """Logits of n images, each of which certainly is of a class of its own."""
    return 60 * torch.eye(n)


def _photo() -> Pixels:
    """A photograph of 427 x 640 pixels."""
    from sklearn.datasets import load_sample_images

    photo: Pixels = load_sample_images().images[0]
    return photo


def _file(image: Image.Image, **options: str | int) -> bytes:
    file = io.BytesIO()
    image.save(file, **options)
    return file.getvalue()


def _by_genpr(image: Image.Image | Pixels | bytes, prepare: str = "none") -> Pixels:
    """The pixels (h, w, 3) that genpr makes of an image."""
    return np.asarray(decode(image, name="image", policy=DecodePolicy(prepare=prepare)).pixels)


def _level_error(found: object, expected: object) -> float:
    return float(np.abs(np.asarray(found, dtype=float) - np.asarray(expected, dtype=float)).mean())


class _Identity(nn.Module):
    """An extractor whose images are features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.num_features = width

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, : self.num_features]


# Metrics -----------------------------------------------------------------------------------------------------------


@_row("torchmetrics==1.9.0")
def _torchmetrics_is_parts() -> Numbers:
    from torchmetrics.image.inception import InceptionScore

    metric = InceptionScore(feature=_Identity(25))
    metric.update(_certain(25))
    return float(metric.compute()[0]), genpr.inception_score(_certain(25).softmax(dim=1)).mean


@_row("torchmetrics==1.9.0")
def _torchmetrics_is_nan() -> Numbers:
    from torchmetrics.image.inception import InceptionScore

    logits = torch.tensor([[60.0, 0.0, -200.0], [0.0, 60.0, -200.0]]).repeat(50, 1)
    metric = InceptionScore(feature=_Identity(3), splits=1)
    metric.update(logits)
    return float(metric.compute()[0]), genpr.inception_score(logits.softmax(dim=1), splits=1).mean


@_row("torchmetrics==1.9.0")
def _torchmetrics_mifid() -> Numbers:
    from torchmetrics.image.fid import FrechetInceptionDistance
    from torchmetrics.image.mifid import MemorizationInformedFrechetInceptionDistance

    real = _normal(1000, 16, seed=0, mean=1)
    values = []
    for kind in (MemorizationInformedFrechetInceptionDistance, FrechetInceptionDistance):
        metric = kind(feature=_Identity(16)).set_dtype(torch.float64)
        metric.update(real.double(), True)
        metric.update(real[:100].double(), False)
        values.append(float(metric.compute()))
    score = genpr.score(real, real[:100], metrics=["authenticity"], intervals=False)
    return values[0] / values[1], score["authenticity"]


@_row("torchmetrics==1.9.0")
def _torchmetrics_kid_seed() -> Numbers:
    from torchmetrics.image.kid import KernelInceptionDistance

    real, fake = _normal(1000, 32, seed=0), _normal(1000, 32, seed=1, scale=1.2)
    metric = KernelInceptionDistance(feature=_Identity(32), subset_size=200).set_dtype(torch.float64)
    metric.update(real.double(), True)
    metric.update(fake.double(), False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = float(metric.compute()[0])
    return theirs, genpr.kernel_distance(real, fake, subset_size=200).mean


@_row("piq==0.8.0")
def _piq_is_parts() -> Numbers:
    from piq.isc import inception_score

    return float(inception_score(_certain(25))[0]), genpr.inception_score(_certain(25).softmax(dim=1)).mean


@_row("piq==0.8.0")
def _piq_fid() -> Numbers:
    from piq import FID

    features = _rectified(400, 256)
    return float(FID()(features, features)), genpr.frechet_distance(features, features)


@_row("piq==0.8.0")
def _piq_kid_sizes() -> Numbers:
    from piq import KID

    real, fake = _normal(500, 32, seed=0), _normal(2000, 32, seed=1, scale=1.2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = float(KID()(real, fake))
    return theirs, genpr.kernel_distance(real, fake).mean


@_row("piq==0.8.0")
def _piq_recall() -> Numbers:
    from piq.pr import PR

    real, fake = torch.tensor([[0.0], [2.0]]), torch.tensor([[4.0], [4.5]])
    return float(PR(nearest_k=1)(real, fake)[1]), genpr.precision_recall(real, fake, k=1).recall


@_row("torcheval==0.0.7")
def _torcheval_fid() -> Numbers:
    from torcheval.metrics import FrechetInceptionDistance

    features = _rectified(400, 768)
    metric = FrechetInceptionDistance(model=_Identity(768), feature_dim=768)
    for is_real in (True, False):
        metric.update(features[:, None, :, None].expand(-1, 3, -1, 1), is_real)
    return float(metric.compute()), genpr.frechet_distance(features, features)


@_row("monai==1.6.1")
def _monai_mmd() -> Numbers:
    from monai.metrics import MMDMetric

    real, fake = _normal(1000, 16, seed=0), _normal(1000, 16, seed=1, scale=3)
    fake = fake - fake.mean(dim=0) + real.mean(dim=0)
    return float(MMDMetric()(real, fake)), genpr.kernel_distance(real, fake).mean


@_row("clip-mmd==0.0.2", "transformers")
def _clip_mmd_steps() -> Numbers:
    from clip_mmd.calculation import mmd_efficient

    real, fake = (_normal(1000, 64, seed=seed, mean=1) for seed in (0, 1))
    return mmd_efficient(F.normalize(real), F.normalize(fake)), cmmd(real, fake)


@_row("m3-score==0.1.0")
def _m3_memorization() -> Numbers:
    from m3score.stats import memorization

    real, fake = _normal(2000, 32, seed=0), _normal(2000, 32, seed=1)
    score = genpr.score(real, fake, metrics=["authenticity"], intervals=False)
    return memorization(real, fake)[0], 1 - score["authenticity"]


@_row("vendi-score==0.0.3", "scikit-learn")
def _vendi_order() -> Numbers:
    from vendi_score import vendi

    features = _normal(100, 16, seed=0)
    return float(vendi.score_X(features.double().numpy(), q=2)), genpr.vendi_score(features)


@_row("scipy==1.17.1")
def _scipy_tree() -> Numbers:
    from scipy.spatial import cKDTree

    points = _normal(2000, 16, seed=0)
    tree = cKDTree(points.numpy())
    radii = tree.query(points.numpy(), k=4)[0][:, 3]
    theirs = tree.query_ball_point(points.numpy(), radii, return_length=True).sum() / (3 * 2000)
    return float(theirs), genpr.manifold_metrics(points, points, k=3).density


@_row("scikit-learn==1.9.1")
def _sklearn_tree() -> Numbers:
    from sklearn.neighbors import KDTree

    points = _normal(2000, 16, seed=0)
    tree = KDTree(points.numpy())
    radii = tree.query(points.numpy(), k=4)[0][:, 3]
    theirs = tree.query_radius(points.numpy(), radii, count_only=True).sum() / (3 * 2000)
    return float(theirs), genpr.manifold_metrics(points, points, k=3).density


@_row("prdc==0.2")
def _prdc_open_balls() -> Numbers:
    from prdc import compute_prdc

    points = np.random.default_rng(0).integers(0, 2**20, (500, 8)).astype(np.float64)
    theirs = compute_prdc(points, points.copy(), nearest_k=3)["density"]
    return float(theirs), genpr.manifold_metrics(points, points, k=3).density


@_row("torch-fidelity==0.4.0")
def _torch_fidelity_float32() -> Numbers:
    from torch_fidelity.metric_prc import prc_features_to_metric

    real, fake = (_normal(1000, 16, seed=seed, mean=3000) for seed in (0, 1))
    options = {"prc_neighborhood": 3, "prc_batch_size": 1000, "verbose": False}
    theirs = prc_features_to_metric(fake, real, **options)["precision"]
    return float(theirs), genpr.precision_recall(real, fake, k=3).precision


# Images ------------------------------------------------------------------------------------------------------------


def _planes() -> Tensor:
    """The photograph (1, 3, 427, 640)."""
    return torch.from_numpy(_photo()).permute(2, 0, 1)[None]


def _red(resized: Tensor) -> float:
    """One number of a resized photograph (3, 299, 299)."""
    return float(resized[0, 150, 150])


def _default_red() -> float:
    """The same number by the resize of genpr's default `inception`."""
    return _red(find_rule("tf1-bilinear").resize(_planes()[0], 299))


@_row("pytorch-fid==0.3.0", "scikit-learn")
def _pytorch_fid_resize() -> Numbers:
    from pytorch_fid.inception import InceptionV3

    steps = {"resize_input": True, "normalize_input": False, "last_needed_block": 0, "output_blocks": [0]}
    network = SimpleNamespace(**steps, blocks=[nn.Identity()])  # without layers, thus without weights
    return _red(InceptionV3.forward(network, _planes().float())[0][0]), _default_red()


@_row("torchmetrics==1.9.0", "torch-fidelity", "scikit-learn")
def _torchmetrics_resize() -> Numbers:
    from torchmetrics.image.fid import NoTrainInceptionV3

    network: Any = NoTrainInceptionV3.__new__(NoTrainInceptionV3)  # without layers, thus without weights
    nn.Module.__init__(network)
    network.features_list, network.use_antialias = ["64"], True
    network.Conv2d_1a_3x3 = Mock(side_effect=InterruptedError)  # in place of the first layer
    with suppress(InterruptedError):
        network(_planes())
    return _red(network.Conv2d_1a_3x3.call_args.args[0][0] * 128 + 128), _default_red()


@_row("clean-fid==0.1.35", "scikit-learn")
def _clean_fid_resize() -> Numbers:
    from cleanfid.resize import build_resizer

    return _red(torch.from_numpy(build_resizer("clean")(_photo())).permute(2, 0, 1)), _default_red()


@_row("torchmetrics==1.9.0", "torchvision")
def _torchmetrics_normalize() -> Numbers:
    from torchmetrics.image.inception import InceptionScore
    from torchvision.utils import save_image

    image = torch.full((1, 3, 8, 8), 100.9 / 255)
    metric = InceptionScore(feature=_Identity(3 * 8 * 8), normalize=True)
    metric.update(image)
    file = io.BytesIO()
    save_image(image, file, format="png")
    return float(metric.features[0][0, 0]), float(_by_genpr(file.getvalue())[0, 0, 0])


@_row("transformers==5.24.0")
def _transformers_alpha() -> Numbers:
    from transformers import CLIPImageProcessor

    image = Image.new("RGBA", (64, 64), (200, 40, 40, 128))
    processor = CLIPImageProcessor(do_normalize=False)
    theirs = 255 * processor(image, return_tensors="np").pixel_values[0, 0, 9, 9]
    return float(theirs), float(_by_genpr(image)[9, 9, 0])


@_row("transformers==5.24.0")
def _transformers_palette() -> Numbers:
    from transformers import DINOv3ViTImageProcessor

    image = Image.new("P", (64, 64), 3)
    image.putpalette([0, 0, 0] * 3 + [200, 40, 40])
    processor = DINOv3ViTImageProcessor(do_normalize=False)
    theirs = 255 * processor(image, return_tensors="np").pixel_values[0, 0, 9, 9]
    return float(theirs), float(_by_genpr(image)[9, 9, 0])


@_row("timm==1.0.31")
def _timm_dinov3() -> Numbers:
    import timm
    from safetensors.torch import save_file
    from torchvision.transforms import Normalize

    model = "vit_small_patch16_dinov3"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network: Any = timm.create_model(model).eval()
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (1, 3, 256, 256), dtype=np.uint8))
    normalize = Normalize(network.default_cfg["mean"], network.default_cfg["std"])
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        weights = Path(folder) / "weights.safetensors"
        save_file(network.state_dict(), weights)
        token = genpr.load_extractor(f"timm:{model}@cls", weights=weights)(pixels)
        return float(network(normalize(pixels / 255))[0, 0]), float(token[0, 0])


@_row("torchvision")
def _torchvision_gray() -> Numbers:
    from torchvision.transforms.functional import rgb_to_grayscale

    theirs = rgb_to_grayscale(torch.full((3, 8, 8), 100, dtype=torch.uint8))
    return float(theirs[0, 0, 0]), float(_by_genpr(Image.new("L", (8, 8), 100))[0, 0, 0])


@_row("pillow==13.0.0")
def _pillow_box() -> Numbers:
    noise = np.random.default_rng(0).integers(0, 256, (512, 512, 3), dtype=np.uint8)
    mean = noise.reshape(256, 2, 256, 2, 3).mean(axis=(1, 3))
    halved = Image.fromarray(noise).resize((256, 256), Image.Resampling.BOX)
    ours = _by_genpr(noise, prepare="center-crop:256")
    return float((np.asarray(halved) - mean).mean()), float((ours - mean).mean())


@_row("opencv-python-headless==5.0.0.93")
def _opencv_linear() -> Numbers:
    import cv2

    noise = np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8)
    exact = cv2.resize(noise.astype(np.float32), (299, 299), interpolation=cv2.INTER_LINEAR)
    theirs = cv2.resize(noise, (299, 299), interpolation=cv2.INTER_LINEAR)
    ours = find_rule("torch-bilinear").resize(torch.from_numpy(noise).permute(2, 0, 1), 299)
    return float((theirs - exact).mean()), float((ours.permute(1, 2, 0).numpy() - exact).mean())


@_row("pyvips==3.2.0", "pyvips-binary==8.18.7")
def _libvips_enlarging() -> Numbers:
    import pyvips

    ramp = np.tile(np.arange(0, 256, 8, dtype=np.uint8)[:, None], (32, 1, 3))
    theirs = pyvips.Image.new_from_array(ramp).resize(2, kernel="linear").numpy()
    ours = find_rule("torch-bilinear").resize(torch.from_numpy(ramp).permute(2, 0, 1), 64)
    return float(theirs[20, 20, 0]), float(ours[0, 20, 20])


@_row("pyvips==3.2.0", "pyvips-binary==8.18.7")
def _libvips_avif() -> Numbers:
    import pyvips

    edge = np.full((16, 16, 3), (220, 30, 30), np.uint8)
    edge[:, 8:] = (30, 30, 220)
    data = _file(Image.fromarray(edge), format="AVIF", quality=90, subsampling="4:2:0")
    theirs = pyvips.Image.new_from_buffer(data, "").numpy()
    return float(theirs[8, 7, 0]), float(_by_genpr(data)[8, 7, 0])


@_row("torchcodec==0.17.0")
def _torchcodec_avif() -> Numbers:
    from torchcodec.decoders import decode_avif

    data = _file(Image.new("RGBA", (64, 64), (200, 100, 40, 128)), format="AVIF", quality=100)
    return float(decode_avif(data)[0, 5, 5]), float(_by_genpr(data)[5, 5, 0])


# Files -------------------------------------------------------------------------------------------------------------


@_row("safetensors==0.8.0")
def _safetensors_transposed() -> Numbers:
    from safetensors.numpy import load, save

    features = np.asfortranarray(_rectified(500, 64).numpy())
    loaded = load(save({"features": features}))["features"]
    return genpr.manifold_metrics(features, loaded).coverage, genpr.manifold_metrics(
        features, features
    ).coverage


def _image_and_jpeg() -> tuple[Image.Image, bytes]:
    """A photograph of 256 x 256 pixels from a JPEG file in memory, and the file."""
    data = _file(Image.fromarray(_photo()[:256, :256]), format="JPEG", quality=95)
    return Image.open(io.BytesIO(data)), data


def _through_litdata(image: Image.Image) -> Tensor | Image.Image:
    from litdata import StreamingDataset
    from litdata.streaming.writer import BinaryWriter

    with tempfile.TemporaryDirectory() as folder:
        writer = BinaryWriter(folder, chunk_bytes="64MB")
        writer[0] = {"image": image}
        writer.done()
        writer.merge()
        return StreamingDataset(folder)[0]["image"]


def _through_mds(image: Image.Image, encoding: str) -> Image.Image:
    from streaming import MDSWriter, StreamingDataset

    with tempfile.TemporaryDirectory() as folder:
        with MDSWriter(out=folder, columns={"image": encoding}) as writer:
            writer.write({"image": image})
        read: Image.Image = StreamingDataset(local=folder, batch_size=1, shuffle=False)[0]["image"]
        read.load()
        return read


@_row("litdata==0.2.76", "scikit-learn")
def _litdata_jpeg() -> Numbers:
    image, data = _image_and_jpeg()
    theirs = _through_litdata(image).permute(1, 2, 0)
    return _level_error(theirs, image), _level_error(_by_genpr(data), image)


@_row("litdata==0.2.76", "scikit-learn")
def _litdata_palette() -> Numbers:
    image = _image_and_jpeg()[0].quantize(16)
    theirs = _through_litdata(image).convert("RGB")
    return _level_error(theirs, image.convert("RGB")), _level_error(_by_genpr(image), image.convert("RGB"))


@_row("mosaicml-streaming==0.13.0", "scikit-learn")
def _mds_jpeg() -> Numbers:
    image, data = _image_and_jpeg()
    return _level_error(_through_mds(image, "jpeg"), image), _level_error(_by_genpr(data), image)


@_row("mosaicml-streaming==0.13.0", "scikit-learn")
def _mds_palette() -> Numbers:
    image = _image_and_jpeg()[0].quantize(16)
    theirs = _through_mds(image, "pil").convert("RGB")
    return _level_error(theirs, image.convert("RGB")), _level_error(_by_genpr(image), image.convert("RGB"))


if __name__ == "__main__":
    main()
