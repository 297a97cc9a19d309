"""Features of augmented and of blurred images, embedded once and mapped by every process of bench_coverage.py."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor
from torch.nn.functional import conv2d, pad

from genpr import embed, load_extractor
from genpr.runtime import state_guard, usable_cores

VIEWS = 6  # augmentations of each image; half as many are blurred, too
_CROP = 4  # pixels that an image is moved by, at most
_SIGMA, _RADIUS = 0.8, 2  # pixels, of the blur
_BATCH = 2000
_SEED = 3


@dataclass(frozen=True, slots=True)
class Population:
    """Features of several augmentations of each image.

    Attributes:
        clean: (augmentations, images, d).
        blurred: The same of blurred images.
        labels: (images,) int64, the folders that they lie in, as numbers.
    """

    clean: Tensor
    blurred: Tensor
    labels: Tensor

    @property
    def images(self) -> int:
        """Number of images."""
        return self.clean.shape[1]

    @classmethod
    def load(cls, path: Path, device: torch.device) -> Population:
        """Read what `embed_population` wrote: on the CPU it stays in the file, which all processes share."""
        stored = load_file(path, device=str(device))
        return cls(stored["clean"], stored["blurred"], stored["labels"])

    def rows(self, rng: Generator, images: Tensor, *, blurred: float = 0.0) -> Tensor:
        """Features (n, d) float32 of a random augmentation of each image (n,); a share is blurred."""
        clean, soft = (
            torch.randint(len(views), (len(images),), generator=rng, device=rng.device)
            for views in (self.clean, self.blurred)
        )
        is_blurred = torch.rand(len(images), generator=rng, device=rng.device) < blurred
        found = self.clean[clean, images].float()
        found[is_blurred] = self.blurred[soft[is_blurred], images[is_blurred]].float()
        return found


def embed_population(
    images: Path,
    extractor: str,
    out: Path,
    *,
    device: torch.device,
    most: int | None = None,
    views: int = VIEWS,
) -> None:
    """Embed all augmentations of the images in a ZIP file, which lie in one folder per class.

    Args:
        images: The file.
        extractor: As of `genpr.load_extractor`.
        out: The `.safetensors` file to write: features in float16.
        device: Where to embed.
        most: Images to use; None uses all.
        views: Augmentations of each image.
    """
    pixels, labels = _read(images, most)
    network = load_extractor(extractor, device=device)
    rng = torch.Generator(device).manual_seed(_SEED)
    stored: dict[str, Tensor] = {"labels": labels}
    with state_guard(), torch.inference_mode():
        for name, count in (("clean", views), ("blurred", views // 2)):
            found = torch.empty(count, len(pixels), network.dim, dtype=torch.float16)
            for view in range(count):
                for rows, batch in _batches(pixels, device):
                    augmented = _augmented(batch, rng)
                    seen = _blurred(augmented) if name == "blurred" else augmented
                    found[view, rows] = embed(seen, network).to(torch.float16)
            stored[name] = found
    save_file(stored, out)


def _read(path: Path, most: int | None) -> tuple[Tensor, Tensor]:
    """Pixels (n, 3, h, w) uint8 and labels (n,); a part of the images is spread evenly over the file."""
    with ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if not name.endswith("/"))
        if most is not None and most < len(names):
            names = [names[at] for at in np.linspace(0, len(names) - 1, most).astype(int)]
        files = [archive.read(name) for name in names]

    def decode(file: bytes) -> NDArray[np.uint8]:
        return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))

    with ThreadPoolExecutor(usable_cores()) as pool:
        pixels = np.stack(list(pool.map(decode, files, chunksize=500)))
    folders = [str(Path(name).parent) for name in names]
    numbers = {folder: number for number, folder in enumerate(sorted(set(folders)))}
    labels = torch.tensor([numbers[folder] for folder in folders])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), labels


def _batches(pixels: Tensor, device: torch.device) -> Iterator[tuple[slice, Tensor]]:
    for start in range(0, len(pixels), _BATCH):
        rows = slice(start, min(start + _BATCH, len(pixels)))
        yield rows, pixels[rows].to(device)


def _augmented(images: Tensor, rng: Generator) -> Tensor:
    """Each image flipped or not, and moved by up to `_CROP` pixels with reflected borders."""
    n, _, height, width = images.shape
    device = images.device
    across, down = torch.randint(2 * _CROP + 1, (2, n, 1), generator=rng, device=device)
    is_flipped = torch.rand(n, 1, generator=rng, device=device) < 0.5
    rows, columns = (torch.arange(length, device=device) for length in (height, width))
    columns = torch.where(is_flipped, columns.flip(0), columns) + across
    padded = pad(images.float(), (_CROP,) * 4, mode="reflect").byte()
    at = torch.arange(n, device=device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[at, (rows + down)[:, :, None], columns[:, None]].permute(0, 3, 1, 2)


def _blurred(images: Tensor) -> Tensor:
    """Gaussian blur of each channel."""
    steps = torch.arange(-_RADIUS, _RADIUS + 1, device=images.device).float()
    kernel = (-steps.square() / (2 * _SIGMA**2)).exp()
    kernel /= kernel.sum()
    n, channels, height, width = images.shape
    planes = pad(images.float().reshape(n * channels, 1, height, width), (_RADIUS,) * 4, mode="reflect")
    found = conv2d(conv2d(planes, kernel.view(1, 1, 1, -1)), kernel.view(1, 1, -1, 1))
    return found.reshape(n, channels, height, width).round_().clamp_(0, 255).byte()
