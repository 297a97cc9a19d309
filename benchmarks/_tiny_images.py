"""Tar shards of tiny images in the layout of WebDataset: any number of distinct images, equal in every run."""

from __future__ import annotations

import io
import itertools
import json
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 8
_CHUNK = 4096
_CODE_BITS = 30  # of the image's number, in the lowest bits of its first pixels


def write_shards(folder: Path, *, images: int, shards: int, spread: float, seed: int) -> None:
    """Write `folder`/00000.tar and so on, each with a PNG and a JSON per image.

    An image is a disc on a gradient, with ten parameters. `spread` scales all of them around the middle, so that sets of other
    spreads are other distributions.
    """
    folder.mkdir(parents=True)
    bounds = np.linspace(0, images, shards + 1).astype(int).tolist()
    for shard, (start, end) in enumerate(itertools.pairwise(bounds)):
        with tarfile.open(folder / f"{shard:05d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for first in range(start, end, _CHUNK):
                numbers = np.arange(first, min(first + _CHUNK, end))
                for number, pixels in zip(numbers.tolist(), _drawn(numbers, spread, seed), strict=True):
                    _add(tar, f"{number:09d}.png", _png(pixels))
                    _add(tar, f"{number:09d}.json", json.dumps({"number": number}).encode())


def _drawn(numbers: NDArray[np.int64], spread: float, seed: int) -> NDArray[np.uint8]:
    """Images (n, 8, 8, 3)."""
    chosen = np.random.default_rng((seed, int(numbers[0]))).random((len(numbers), 10)) - 0.5
    center_x, center_y, radius, slope, *colors = (0.5 + spread * chosen).T[:, :, None, None]
    y, x = np.mgrid[0 : 1 : SIDE * 1j, 0 : 1 : SIDE * 1j][:, None]
    disc = 1 / (1 + np.exp(12 * (np.hypot(x - center_x, y - center_y) - 0.4 * radius - 0.1)))
    ground = slope * x + (1 - slope) * y
    channels = [disc * colors[i] + (1 - disc) * (0.5 * ground + 0.5 * colors[3 + i]) for i in range(3)]
    pixels = (np.stack(channels, axis=-1) * 255).astype(np.uint8)
    flat = pixels.reshape(len(numbers), -1)
    flat[:, :_CODE_BITS] = flat[:, :_CODE_BITS] & 254 | (
        numbers[:, None] >> np.arange(_CODE_BITS) & 1
    ).astype(np.uint8)
    return pixels


def _png(pixels: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png", compress_level=1)
    return file.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))
