"""Synthetic images with known answers: a real set, four sets of fakes, and the expected effect on the scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from genpr.errors import UsageError
from genpr.storage import report_write_errors

SIZE = 64
KINDS = ("disc", "square", "triangle", "star", "ring")
LATENTS = (
    *KINDS,  # the largest of these five decides which shape is drawn
    *("x", "y", "size", "angle", "stretch", "hue", "saturation", "lightness", "shading"),
    *("stripe_frequency", "stripe_phase", "stripe_contrast", "stripe_angle"),
    *("paper_hue", "paper_lightness", "gradient_angle", "gradient_strength", "shadow", "weave"),
)
"""What each latent coordinate controls, in order."""

# Sharp enough that nearly all images show one clear kind, and smooth enough that images vary continuously.
_KIND_SHARPNESS = 30.0
_DISC_ADVANTAGE = 0.3  # so that truncation ends in a clear disc and not in a mixture of all kinds
_BLOCK = 32  # images drawn at once, so that their pixels stay in the CPU cache


@dataclass(frozen=True)
class ShapesGenerator:
    """Draws images from latents; with fewer kinds, it has dropped modes. Desaturation is the fraction of lost color.

    Example:
        >>> ShapesGenerator()(draw_latents(4, seed=0), psi=0.7).shape
        torch.Size([4, 3, 64, 64])
    """

    kinds: tuple[str, ...] = KINDS
    desaturation: float = 0.0

    def __post_init__(self) -> None:
        if not self.kinds or not set(self.kinds) <= set(KINDS):
            text = f"kinds must be among {', '.join(KINDS)}, not {self.kinds!r}"
            raise UsageError(text, code="unknown-kind")

    @property
    def z_dim(self) -> int:
        """Dimension of a latent, 24."""
        return len(LATENTS)

    def __call__(self, latents: Tensor, *, psi: float = 1.0) -> Tensor:
        """Draw one image per latent (n, 24), uint8 (n, 3, 64, 64), each from its own latent only.

        With psi 1 and normal latents, it is a perfect generator of the real images of the demo. Latents are multiplied by psi.
        """
        if latents.ndim != 2 or latents.shape[1] != len(LATENTS):
            text = f"latents must have shape (n, {len(LATENTS)}), not {tuple(latents.shape)}"
            raise UsageError(text, code="latent-shape")
        # Float64, so that rounding does not depend on the other images of a batch.
        truncated = latents.double() * psi
        shares = self.kind_shares(truncated)
        blocks = zip(torch.split(truncated, _BLOCK), torch.split(shares, _BLOCK), strict=True)
        return torch.cat([self._draw(*block) for block in blocks])

    def kind_shares(self, latents: Tensor) -> Tensor:
        """Weights of `KINDS` in the shapes, (n, 5), rows summing to one."""
        logits = latents[:, : len(KINDS)].double()
        logits = logits + logits.new_tensor([_DISC_ADVANTAGE, 0, 0, 0, 0])
        dropped = torch.tensor([kind not in self.kinds for kind in KINDS], device=logits.device)
        return torch.softmax(_KIND_SHARPNESS * logits.masked_fill(dropped, -torch.inf), dim=1)

    def _draw(self, latents: Tensor, shares: Tensor) -> Tensor:
        z = {name: latents[:, i, None, None] for i, name in enumerate(LATENTS)}
        axis = torch.arange(SIZE, dtype=torch.float64, device=latents.device) + 0.5 - SIZE / 2
        x, y = axis[None, None, :], axis[None, :, None]
        u, v = _shape_coordinates(x, y, z)
        distance = _shape_distance(u, v, shares) * _SHAPE_SIZE * torch.exp(0.06 * z["size"])
        shape = _shape_color(u, v, distance, z)
        paper = _paper_color(x, y, distance, z)
        inside = (0.5 - distance).clamp(0, 1)[:, None]
        picture = ((paper + inside * (shape - paper)) * _weave(x, y, z)).clamp(0, 1)
        picture = picture + self.desaturation * (picture.mean(1, keepdim=True) - picture)
        return picture.mul(255).round().to(torch.uint8)


def draw_latents(n: int, *, seed: int) -> Tensor:
    """Standard normal latents (n, 24), equal for equal seeds; the global random state is not changed."""
    return torch.randn(n, len(LATENTS), generator=torch.Generator().manual_seed(seed), device="cpu")


_SHAPE_SIZE = 18.0  # radius of the average disc, in pixels


def _shape_coordinates(x: Tensor, y: Tensor, z: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Pixel positions in the coordinates of the shape: moved, rotated, stretched, in units of its size."""
    moved_x, moved_y = x - 3 * z["x"], y - 3 * z["y"]
    cos, sin = torch.cos(0.2 * z["angle"]), torch.sin(0.2 * z["angle"])
    stretch = torch.exp(0.03 * z["stretch"])
    size = _SHAPE_SIZE * torch.exp(0.06 * z["size"])
    return (cos * moved_x + sin * moved_y) / size * stretch, (cos * moved_y - sin * moved_x) / size / stretch


_LEAST_SHARE = 1e-15  # weight of a kind that can change a pixel


def _shape_distance(u: Tensor, v: Tensor, shares: Tensor) -> Tensor:
    """Signed distance (n, h, w) to a blend of all kinds, which have about equal areas."""
    distances: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
        lambda u, v: torch.hypot(u, v) - 1,
        lambda u, v: torch.maximum(u.abs(), v.abs()) - 0.88,
        partial(_star_distance, points=3, outer=1.45, inner=0.725),
        partial(_star_distance, points=5, outer=1.5, inner=0.63),
        lambda u, v: (torch.hypot(u, v) - 0.85).abs() - 0.3,
    )
    blend = torch.zeros_like(u)
    for share, distance in zip(shares.unbind(1), distances, strict=True):
        drawn = share > _LEAST_SHARE
        blend[drawn] += share[drawn, None, None] * distance(u[drawn], v[drawn])
    return blend


def _star_distance(u: Tensor, v: Tensor, *, points: int, outer: float, inner: float) -> Tensor:
    """Distance to the edges of a star with a tip at the top; a triangle is a star with straight edges."""
    half = math.pi / points
    # Fold the plane onto the half sector between a tip and the next notch, where the edge is one straight line.
    angle = torch.remainder(torch.atan2(u, -v) + half, 2 * half) - half
    radius = torch.hypot(u, v)
    across, along = radius * angle.sin().abs(), radius * angle.cos()
    notch_across, notch_along = inner * math.sin(half), inner * math.cos(half)
    normal_across, normal_along = outer - notch_along, notch_across
    length = math.hypot(normal_across, normal_along)
    return (across * normal_across + (along - outer) * normal_along) / length


def _shape_color(u: Tensor, v: Tensor, distance: Tensor, z: dict[str, Tensor]) -> Tensor:
    """Striped color (n, 3, h, w), darker towards the rim."""
    color = 0.05 + 0.75 * _rainbow(4.2 + 0.9 * z["hue"]) + 0.03 * z["lightness"][:, None]
    gray = color.mean(1, keepdim=True)
    color = gray + torch.exp(0.05 * z["saturation"])[:, None] * (color - gray)
    angle = 0.6 + 0.15 * z["stripe_angle"]
    stripes_per_size = 2.25 * torch.exp(0.08 * z["stripe_frequency"])
    along = torch.cos(angle) * u + torch.sin(angle) * v
    stripes = torch.sin(2 * math.pi * stripes_per_size * along + z["stripe_phase"])
    contrast = 0.54 * torch.sigmoid(z["stripe_contrast"] - 0.2)
    shading = 0.15 * torch.exp(0.2 * z["shading"])
    rim = 1 - shading * torch.sigmoid((distance + 2) / 1.5)
    return color * ((1 + contrast * stripes) * rim)[:, None]


def _paper_color(x: Tensor, y: Tensor, distance: Tensor, z: dict[str, Tensor]) -> Tensor:
    """Light color (n, 3, h, w) with a gradient, shaded around the shape; its hue follows the shape's."""
    hue = 6.8 + 0.9 * z["hue"] + 0.4 * z["paper_hue"]
    color = 0.52 + 0.4 * _rainbow(hue) + 0.03 * z["paper_lightness"][:, None]
    angle = 0.8 + 0.3 * z["gradient_angle"]
    gradient = (torch.cos(angle) * x + torch.sin(angle) * y) / 45 * (0.2 + 0.05 * z["gradient_strength"])
    depth = 0.35 * torch.exp(0.1 * z["shadow"])
    shadow = depth * torch.sigmoid((1.5 - distance) / 2)
    return (color + gradient[:, None]) * (1 - shadow)[:, None]


def _weave(x: Tensor, y: Tensor, z: dict[str, Tensor]) -> Tensor:
    """Brightness of the fine weave of the paper, (n, 1, h, w): detail in every image, which blurring removes."""
    wavelength = 4.5
    threads = torch.sin(2 * math.pi / wavelength * x) + torch.sin(2 * math.pi / wavelength * y)
    return (1 + 0.05 * torch.exp(0.1 * z["weave"]) * threads)[:, None]


def _rainbow(hue: Tensor) -> Tensor:
    """Color (n, 3, 1, 1) in 0..1 of a hue (n, 1, 1) in radians: three cosines, a third of a turn apart."""
    offsets = hue.new_tensor([0.0, 2.1, 4.2])[None, :, None, None]
    return 0.5 + 0.5 * torch.cos(hue[:, None] - offsets)


_KEPT_KINDS = ("disc", "square")
_DESATURATION = 0.1
_BLUR_SIGMA = 1.5  # pixels
_TILE = 16  # side of the tiles that junk is shuffled from, in pixels


@dataclass(frozen=True)
class DemoSet:
    """A set of images, uint8 (n, 3, 64, 64), with its description and the effect on its scores."""

    name: str
    description: str
    effect: str
    images: Tensor


def build_demo(*, n: int = 800, seed: int = 0) -> tuple[DemoSet, ...]:
    """Draw the real set, then the faithful, mode-dropped, half-junk and blurred fakes, n images each; equal for equal seeds.

    All fakes use the same latents, so that image i shows the effect of each failure. The real set uses other latents. The global
    random state is not changed.
    """
    real_latents, fake_latents = draw_latents(2 * n, seed=seed).chunk(2)
    faithful = ShapesGenerator(desaturation=_DESATURATION)(fake_latents)
    dropped = ShapesGenerator(kinds=_KEPT_KINDS, desaturation=_DESATURATION)(fake_latents)
    junk = faithful.clone()
    junk[1::2] = _shuffle_tiles(faithful[1::2], seed=seed)
    sets = (
        ("real", "discs, squares, triangles, stars and rings", "", ShapesGenerator()(real_latents)),
        ("faithful", "new images, colors a tenth too pale", "all high: good and varied", faithful),
        ("mode-dropped", "only discs and squares", "recall falls: modes lost", dropped),
        ("half-junk", "every second image is cut up and shuffled", "precision falls: half bad", junk),
        ("blurred", "every image is blurred", "all fall: nothing is sharp", _blur(faithful)),
    )
    return tuple(DemoSet(*each) for each in sets)


def _shuffle_tiles(images: Tensor, *, seed: int) -> Tensor:
    """Shuffle the tiles of each of (n, 3, h, w) images."""
    tiles = F.unfold(images.float(), _TILE, stride=_TILE)
    order = torch.rand(len(tiles), tiles.shape[2], generator=torch.Generator().manual_seed(seed)).argsort(1)
    shuffled = tiles.gather(2, order[:, None].expand_as(tiles))
    return F.fold(shuffled, images.shape[2:], _TILE, stride=_TILE).to(torch.uint8)


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


def save_sets(sets: Sequence[DemoSet], folder: Path) -> None:
    """Write each set as PNG files to `folder`/NAME; folders with files, which would be scored too, are refused."""
    from torchvision.transforms.functional import to_pil_image

    with report_write_errors(folder):
        for path in (folder / shown.name for shown in sets):
            if path.exists() and any(path.iterdir()):
                text = f"{path} contains files; choose another folder, or remove them"
                raise UsageError(text, code="folder-not-empty", path=str(path))
        for shown in sets:
            (folder / shown.name).mkdir(parents=True, exist_ok=True)
            for number, pixels in enumerate(shown.images):
                # Fast rather than small.
                to_pil_image(pixels).save(folder / shown.name / f"{number:04d}.png", compress_level=1)
