"""Five sets of drawings: the truth, and four fakes that fail in four different ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from genpr.demo.shapes import SIZE, ShapesGenerator, draw_latents
from genpr.errors import ResourceError, UsageError

if TYPE_CHECKING:
    from PIL.Image import Image

_KEPT_KINDS = ("disc", "square")
_DESATURATION = 0.1
_BLUR_SIGMA = 1.5  # pixels
_TILE = 16  # side of the tiles that junk is shuffled from, in pixels


@dataclass(frozen=True)
class DemoSet:
    """One set of images and what to know about it.

    Attributes:
        name: Short name, also that of its folder.
        story: How it was made, in one sentence.
        lesson: What its scores show, in a few words; empty for the real set.
        images: uint8 (n, 3, 64, 64).
    """

    name: str
    story: str
    lesson: str
    images: Tensor


@dataclass(frozen=True)
class Demo:
    """The real set and its four fakes.

    Attributes:
        real: What the true procedure draws.
        fakes: faithful, mode-dropped, half-junk and blurred, in this order.
    """

    real: DemoSet
    fakes: tuple[DemoSet, ...]

    @property
    def sets(self) -> tuple[DemoSet, ...]:
        """The real set, then the fakes."""
        return (self.real, *self.fakes)


def build_demo(*, n: int = 800, seed: int = 0) -> Demo:
    """Draw all five sets; the same for the same seed.

    All fakes start from the same latents, so that picture i shows what each failure does to it. None of these
    latents is among those of the real set.

    Args:
        n: Images per set.
        seed: Of latents and shuffles. The global random state is not touched.
    """
    real_latents, fake_latents = draw_latents(2 * n, seed=seed).chunk(2)
    faithful = ShapesGenerator(desaturation=_DESATURATION)(fake_latents)
    dropped = ShapesGenerator(kinds=_KEPT_KINDS, desaturation=_DESATURATION)(fake_latents)
    half_junk = faithful.clone()
    half_junk[1::2] = _shuffle_tiles(faithful[1::2], seed=seed)
    return Demo(
        real=DemoSet(
            "real", "discs, squares, triangles, stars and rings", "", ShapesGenerator()(real_latents)
        ),
        fakes=(
            DemoSet(
                "faithful",
                "new drawings, colours a tenth too pale",
                "good and varied: all high",
                faithful,
            ),
            DemoSet(
                "mode-dropped",
                "only discs and squares are ever drawn",
                "recall falls: kinds lost",
                dropped,
            ),
            DemoSet(
                "half-junk",
                "every second drawing is cut up and shuffled",
                "precision falls: half bad",
                half_junk,
            ),
            DemoSet(
                "blurred",
                "every drawing is out of focus",
                "all fall: nothing is sharp",
                _blur(faithful),
            ),
        ),
    )


def _shuffle_tiles(images: Tensor, *, seed: int) -> Tensor:
    """Cut each of (n, 3, h, w) images into tiles and put them back in random places."""
    n, channels, size, _ = images.shape
    across = size // _TILE
    tiles = images.reshape(n, channels, across, _TILE, across, _TILE).permute(0, 2, 4, 1, 3, 5)
    tiles = tiles.reshape(n, across * across, channels, _TILE, _TILE)
    order = torch.rand(n, across * across, generator=torch.Generator().manual_seed(seed)).argsort(1)
    tiles = tiles[torch.arange(n)[:, None], order].reshape(n, across, across, channels, _TILE, _TILE)
    return tiles.permute(0, 3, 1, 4, 2, 5).reshape(images.shape)


def _blur(images: Tensor) -> Tensor:
    """Gaussian blur of (n, 3, h, w) images, mirrored at the border."""
    radius = round(4 * _BLUR_SIGMA)
    offsets = torch.arange(-radius, radius + 1, dtype=torch.float64)
    kernel = torch.exp(-offsets.square() / (2 * _BLUR_SIGMA**2))
    rows = (kernel / kernel.sum()).float()[None, None, None]
    planes = images.reshape(-1, 1, SIZE, SIZE).float()
    padded = F.pad(planes, (radius,) * 4, mode="reflect")
    blurred = F.conv2d(F.conv2d(padded, rows), rows.mT)
    return blurred.round().to(torch.uint8).reshape(images.shape)


def contact_sheet(sets: Sequence[DemoSet], *, columns: int = 12) -> Image:
    """One row of pictures per set, its name and story on the left.

    Args:
        sets: Usually `Demo.sets`.
        columns: Pictures per row; fewer are shown of smaller sets.

    Returns:
        An RGB image of Pillow's.
    """
    from PIL import Image, ImageDraw, ImageFont

    margin, gap, label_width = 12, 4, 262
    row_height = SIZE + gap
    width = label_width + columns * (SIZE + gap) + 2 * margin
    sheet = Image.new("RGB", (width, len(sets) * row_height + 2 * margin), "white")
    draw = ImageDraw.Draw(sheet)
    for row, shown in enumerate(sets):
        top = margin + row * row_height
        draw.text((margin, top + 12), shown.name, fill="black", font=ImageFont.load_default(20))
        draw.text((margin, top + 38), shown.story, fill="#555555", font=ImageFont.load_default(12))
        for column, pixels in enumerate(shown.images[:columns]):
            left = margin + label_width + column * (SIZE + gap)
            sheet.paste(_to_pillow(pixels), (left, top))
    return sheet


def save_sets(sets: Sequence[DemoSet], folder: str | Path) -> None:
    """Write each set as PNG files into `folder`/NAME, to try the command line on.

    Saving again over an earlier save is fine; a folder that holds anything else is refused, since other files
    would be scored along with these.

    Raises:
        UsageError: A set's folder holds files that are not part of the set.
        ResourceError: The files cannot be written.
    """
    names = {shown.name: [f"{i:04d}.png" for i in range(len(shown.images))] for shown in sets}
    try:
        for shown in sets:
            _refuse_strangers(Path(folder, shown.name), set(names[shown.name]))
        for shown in sets:
            path = Path(folder, shown.name)
            path.mkdir(parents=True, exist_ok=True)
            for name, pixels in zip(names[shown.name], shown.images, strict=True):
                _to_pillow(pixels).save(path / name, compress_level=1)  # thousands of files: time over size
    except OSError as error:
        raise ResourceError(
            f"cannot write the demo images to {folder} ({error.strerror}); choose another folder",
            code="not-writable",
            path=str(folder),
        ) from error


def _refuse_strangers(path: Path, expected: set[str]) -> None:
    strangers = sorted({entry.name for entry in path.iterdir()} - expected) if path.is_dir() else []
    if strangers:
        raise UsageError(
            f"{path} holds files that are not part of the demo, such as {strangers[0]}; "
            "choose an empty folder for it",
            code="folder-not-empty",
            path=str(path),
        )


def _to_pillow(pixels: Tensor) -> Image:
    from PIL import Image

    return Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
