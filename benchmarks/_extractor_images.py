"""The folder of images that all tools embed: crops of two photographs, or images of a given folder."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

_SUFFIXES = {".png", ".jpg", ".jpeg"}  # suffixes that torch-fidelity reads
_NARROWEST, _WIDEST = 128, 400  # of a crop, in pixels of the photographs, which are 427 high
_GAIN = (0.7, 1.2)
_NOISE = 4.0  # standard deviation in gray levels: a camera's, so that the files do not compress better than photographs


def make_images(folder: Path, *, count: int, size: int) -> None:
    """Write `count` PNG files of `size` x `size` pixels: random crops of scikit-learn's two photographs.

    The crops are flipped, brightened and noisy, so that no two are equal. Every run makes the same crops.
    """
    load_sample_images = importlib.import_module("sklearn.datasets").load_sample_images
    photographs = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    generator = np.random.default_rng(0)
    for number in range(count):
        photograph = photographs[number % len(photographs)]
        side = int(generator.integers(_NARROWEST, _WIDEST))
        left, top = (int(generator.integers(0, length - side + 1)) for length in photograph.size)
        crop = photograph.resize((size, size), Image.Resampling.BICUBIC, (left, top, left + side, top + side))
        if generator.random() < 0.5:
            crop = ImageOps.mirror(crop)
        pixels = np.asarray(crop) * generator.uniform(*_GAIN) + generator.normal(0, _NOISE, (size, size, 3))
        Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8)).save(folder / f"{number:06d}.png")


def copy_images(source: Path, folder: Path, *, count: int) -> int:
    """Copy the first `count` PNG and JPEG files of `source` and number them, so that all tools agree on the order.

    Returns:
        How many there were.

    Raises:
        ValueError: There are none.
    """
    paths = sorted(path for path in source.iterdir() if path.suffix.lower() in _SUFFIXES)[:count]
    if not paths:
        raise ValueError(f"--folder {source.name} holds no PNG or JPEG files")
    for number, path in enumerate(paths):
        shutil.copyfile(path, folder / f"{number:06d}{path.suffix.lower()}")
    return len(paths)
