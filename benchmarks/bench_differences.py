"""How far the differences of docs/differences.md move scores of trained features.

    pip install "genpr[lite]" torcheval==0.0.7 opencv-python-headless==5.0.0.93 pyvips-binary==8.18.7 pyvips==3.2.0
    python benchmarks/bench_differences.py cifar10/train.zip

Two sets of `--n` images are drawn from the archive. The first is the reals. The first two tables compare several
programs on these sets. The third has one program, and changes of the pixels of the fakes.
"""

from __future__ import annotations

import argparse
import io
import warnings
import zipfile
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

import genpr

Pixels = NDArray[np.uint8]
_NETWORK_SIDE = 256  # the shorter side before efficientnet-lite0 crops 224 pixels
_METRICS = ("calibrated_precision", "calibrated_recall", "precision", "recall", "fd")


def main() -> None:
    """Print the three tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path, help="zip of images of one size")
    parser.add_argument("--n", type=int, default=5000, help="images in each set")
    parser.add_argument("--extractor", default="efficientnet-lite0")
    parser.add_argument("--only", action="append", choices=_CHANGES, help="part of the changes")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    network = genpr.load_extractor(options.extractor, device="cpu")
    pixels = _read(options.archive, 2 * options.n)
    halves = pixels[: options.n], pixels[options.n :]
    real, fake = (genpr.embed(half, network) for half in halves)
    base = _scored(real, fake)
    print("| program | fd | fd of the reals with themselves |\n|---|--:|--:|")
    for name, distance in _DISTANCES.items():
        print(f"| {name} | {distance(real, fake):.4f} | {distance(real, real):.4f} |", flush=True)
    print("\n| balls | calibrated precision | calibrated recall |\n|---|--:|--:|")
    nulls = {name: base[name] / base[f"calibrated_{name}"] for name in ("precision", "recall")}
    for name, shares in _BALLS.items():
        precision, recall = shares(real, fake)
        print(
            f"| {name} | {precision / nulls['precision']:.4f} | {recall / nulls['recall']:.4f} |", flush=True
        )
    print("\n| fakes | fd | calibrated precision | calibrated recall |\n|---|--:|--:|--:|")
    _print_row("the other half, unchanged", base)
    for name in options.only or _CHANGES:
        changed = genpr.embed(np.stack([_CHANGES[name](image) for image in halves[1]]), network)
        _print_row(name, _scored(real, changed))


def _read(archive: Path, n: int) -> Pixels:
    """`n` images (n, h, w, 3) of the archive, in random order."""
    with zipfile.ZipFile(archive) as file:
        names = sorted(name for name in file.namelist() if not name.endswith("/"))
        chosen = np.random.default_rng(0).permutation(len(names))[:n]
        return np.stack([np.asarray(Image.open(file.open(names[row])).convert("RGB")) for row in chosen])


def _scored(real: Tensor, fake: Tensor) -> dict[str, float]:
    result = genpr.score(real, fake, metrics=_METRICS, intervals=False)
    return {name: result[name] for name in _METRICS}


def _print_row(name: str, values: dict[str, float]) -> None:
    pair = " | ".join(f"{values[f'calibrated_{each}']:.4f}" for each in ("precision", "recall"))
    print(f"| {name} | {values['fd']:.3f} | {pair} |", flush=True)


def _stored(image: Pixels, kind: str, **options: str | int) -> bytes:
    """The bytes of a file in a format of Pillow."""
    file = io.BytesIO()
    save: Any = Image.fromarray(image).save
    save(file, kind, **options)
    return file.getvalue()


def _opened(data: bytes) -> Pixels:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def _avif(image: Pixels) -> bytes:
    return _stored(image, "AVIF", quality=90, subsampling="4:2:0")


def _avif_by_libvips(image: Pixels) -> Pixels:
    pyvips = import_module("pyvips")
    bands: Pixels = pyvips.Image.new_from_buffer(_avif(image), "").numpy()
    return bands[..., :3]


def _enlarged_by_libvips(image: Pixels) -> Pixels:
    pyvips = import_module("pyvips")
    factor = _NETWORK_SIDE / len(image)
    enlarged: Pixels = pyvips.Image.new_from_array(image).resize(factor, kernel="linear").numpy()
    return enlarged


def _enlarged_by_opencv(image: Pixels) -> Pixels:
    cv2 = import_module("cv2")
    enlarged = cv2.resize(image, (_NETWORK_SIDE, _NETWORK_SIDE), interpolation=cv2.INTER_LINEAR)
    return np.asarray(enlarged)


def _enlarged_by_torch(image: Pixels) -> Pixels:
    planes = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    enlarged = torch.nn.functional.interpolate(planes, (_NETWORK_SIDE, _NETWORK_SIDE), mode="bilinear")
    rounded: Pixels = enlarged[0].permute(1, 2, 0).round().byte().numpy()
    return rounded


def _indices(image: Pixels) -> Pixels:
    """Palette indices as gray levels."""
    indices = np.asarray(Image.fromarray(image).quantize(256))
    return np.repeat(indices[..., None], 3, axis=2)


_CHANGES: dict[str, Callable[[Pixels], Pixels]] = {
    "every level one lower, as gray of torchvision": lambda image: image - (image > 0).astype(np.uint8),
    "JPEG again at quality 75, as LitData and MDS": lambda image: _opened(_stored(image, "JPEG")),
    "AVIF, decoded by Pillow": lambda image: _opened(_avif(image)),
    "AVIF, decoded by libvips": _avif_by_libvips,
    "palette indices as gray, as transformers' DINOv3": _indices,
    "enlarged by torch, bilinear": _enlarged_by_torch,
    "enlarged by OpenCV, INTER_LINEAR": _enlarged_by_opencv,
    "enlarged by libvips, linear": _enlarged_by_libvips,
}


class _Features(torch.nn.Module):
    """An extractor of torchmetrics and torcheval whose images are features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.num_features = width

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, : self.num_features]


def _by_torchmetrics(real: Tensor, fake: Tensor) -> float:
    from torchmetrics.image.fid import FrechetInceptionDistance

    metric = FrechetInceptionDistance(feature=_Features(real.shape[1]))
    metric.update(real, real=True)
    metric.update(fake, real=False)
    return float(metric.compute())


def _by_torcheval(real: Tensor, fake: Tensor) -> float:
    torcheval = import_module("torcheval.metrics")
    metric = torcheval.FrechetInceptionDistance(model=_Features(real.shape[1]), feature_dim=real.shape[1])
    for rows, is_real in ((real, True), (fake, False)):
        metric.update(rows[:, None, :, None].expand(-1, 3, -1, 1), is_real)  # images of three channels
    return float(metric.compute())


def _by_piq(real: Tensor, fake: Tensor) -> float:
    return float(import_module("piq").FID()(real, fake))


def _by_pytorch_fid(real: Tensor, fake: Tensor) -> float:
    from pytorch_fid.fid_score import calculate_frechet_distance

    moments = [(rows.mean(axis=0), np.cov(rows, rowvar=False)) for rows in (real.numpy(), fake.numpy())]
    return float(calculate_frechet_distance(*moments[0], *moments[1]))


_DISTANCES: dict[str, Callable[[Tensor, Tensor], float]] = {
    "genpr": genpr.frechet_distance,
    "pytorch-fid 0.3": _by_pytorch_fid,
    "torchmetrics 1.9": _by_torchmetrics,
    "torcheval 0.0.7": _by_torcheval,
    "piq 0.8": _by_piq,
}


def _in_closed_balls(real: Tensor, fake: Tensor) -> tuple[float, float]:
    return genpr.precision_recall(real, fake, k=3)


def _in_open_balls(real: Tensor, fake: Tensor) -> tuple[float, float]:
    return genpr.precision_recall(real, fake, k=3, ties="strict")


def _in_balls_of_trees(real: Tensor, fake: Tensor) -> tuple[float, float]:
    """Precision and recall with radii and members from trees of scikit-learn."""
    return _share_in_balls(real, fake), _share_in_balls(fake, real)


def _share_in_balls(centers: Tensor, points: Tensor) -> float:
    tree = import_module("sklearn.neighbors").KDTree
    radii = tree(centers.numpy()).query(centers.numpy(), k=4)[0][:, 3]
    members = tree(points.numpy()).query_radius(centers.numpy(), radii)
    return len(np.unique(np.concatenate(members))) / len(points)


def _by_prdc(real: Tensor, fake: Tensor) -> tuple[float, float]:
    with redirect_stdout(io.StringIO()):  # it prints the numbers of rows
        found = import_module("prdc").compute_prdc(real.numpy(), fake.numpy(), nearest_k=3)
    return found["precision"], found["recall"]


def _by_torch_fidelity(real: Tensor, fake: Tensor) -> tuple[float, float]:
    from torch_fidelity.metric_prc import prc_features_to_metric

    options = {"prc_neighborhood": 3, "prc_batch_size": 1000, "verbose": False}
    found = prc_features_to_metric(fake, real, **options)
    return found["precision"], found["recall"]


_BALLS: dict[str, Callable[[Tensor, Tensor], tuple[float, float]]] = {
    "genpr": _in_closed_balls,
    "genpr, --ties strict": _in_open_balls,
    "prdc 0.2 (open)": _by_prdc,
    "torch-fidelity 0.4": _by_torch_fidelity,
    "trees of scikit-learn": _in_balls_of_trees,
}

if __name__ == "__main__":
    main()
