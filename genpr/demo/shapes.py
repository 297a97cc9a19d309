"""A generator whose truth is known: latents in, drawings of one striped shape on woven paper out.

Everything in a picture is a smooth function of standard normal latents, so scaling them towards zero (psi) moves
every picture towards one average picture: a blue disc on sand. Shapes are signed distances, negative inside,
which makes edges smooth and lets one kind of shape turn into another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from genpr.errors import UsageError

SIZE = 64
KINDS = ("disc", "square", "triangle", "star", "ring")
LATENTS = (
    *KINDS,  # the largest of these five decides which shape is drawn
    "x",
    "y",
    "size",
    "angle",
    "stretch",
    "hue",
    "saturation",
    "lightness",
    "shading",
    "stripe_frequency",
    "stripe_phase",
    "stripe_contrast",
    "stripe_angle",
    "paper_hue",
    "paper_lightness",
    "gradient_angle",
    "gradient_strength",
    "shadow",
    "weave",
)
"""What each latent coordinate controls, in order."""

# Sharp enough that nearly all pictures show one clear kind, and smooth enough that every latent has a picture.
_KIND_SHARPNESS = 30.0
_DISC_ADVANTAGE = 0.3  # so that truncation ends in a clear disc and not in a mixture of all kinds
_BLOCK = 32  # pictures drawn at once: their pixels stay in the processor's cache


@dataclass(frozen=True)
class ShapesGenerator:
    """Draws pictures from latents.

    Args:
        kinds: The shapes it can draw; leaving some out makes a generator that dropped modes.
        desaturation: Share of colour that is lost, 0..1; a slight imperfection.

    Example:
        >>> ShapesGenerator()(draw_latents(4, seed=0), psi=0.7).shape
        torch.Size([4, 3, 64, 64])
    """

    kinds: tuple[str, ...] = KINDS
    desaturation: float = 0.0

    def __post_init__(self) -> None:
        if not self.kinds or not set(self.kinds) <= set(KINDS):
            raise UsageError(
                f"kinds must be some of {', '.join(KINDS)}, but got {self.kinds!r}", code="unknown-kind"
            )

    @property
    def z_dim(self) -> int:
        """Coordinates of a latent, 24."""
        return len(LATENTS)

    def __call__(self, latents: Tensor, *, psi: float = 1.0, labels: Tensor | None = None) -> Tensor:
        """Draw one picture per latent.

        At psi 1, normal latents and no labels it is a perfect generator of the demo's real images.

        Args:
            latents: (n, 24), standard normal; see `LATENTS` for what each coordinate controls.
            psi: Truncation: the latents are multiplied by it. 0 gives the average picture every time.
            labels: (n,) integers, the kind of each picture as its place in `KINDS`; None leaves it to the latents.

        Returns:
            uint8 (n, 3, 64, 64). A picture depends on its own latent only.

        Raises:
            UsageError: The latents have another shape, or a label is no kind that is drawn.
        """
        if latents.ndim != 2 or latents.shape[1] != len(LATENTS):
            raise UsageError(
                f"latents must have shape (n, {len(LATENTS)}), but got {tuple(latents.shape)}",
                code="latent-shape",
            )
        # Float64 throughout, so that no rounding shows in a picture when it is drawn in other company.
        truncated = latents.double() * psi
        shares = self.kind_shares(truncated) if labels is None else self._shares_of(labels, len(latents))
        starts = range(0, max(1, len(truncated)), _BLOCK)
        return torch.cat(
            [self._draw(truncated[s : s + _BLOCK], shares[s : s + _BLOCK].to(truncated)) for s in starts]
        )

    def kind_shares(self, latents: Tensor) -> Tensor:
        """How much each of `KINDS` takes part in the shapes, (n, 5), rows summing to one."""
        logits = latents[:, : len(KINDS)].double()
        logits = logits + torch.tensor([_DISC_ADVANTAGE, 0, 0, 0, 0]).to(logits)
        dropped = torch.tensor([kind not in self.kinds for kind in KINDS], device=logits.device)
        return torch.softmax(_KIND_SHARPNESS * logits.masked_fill(dropped, -torch.inf), dim=1)

    def _shares_of(self, labels: Tensor, n: int) -> Tensor:
        """One kind alone for each of n labels, (n, 5)."""
        drawn = [index for index, kind in enumerate(KINDS) if kind in self.kinds]
        is_whole = not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
        if (
            labels.shape != (n,)
            or not is_whole
            or not torch.isin(labels, torch.tensor(drawn).to(labels)).all()
        ):
            raise UsageError(
                f"labels must be {n} integers, one per latent, out of {', '.join(map(str, drawn))}, but are "
                f"{labels.dtype} {tuple(labels.shape)}",
                code="unknown-kind",
            )
        return torch.nn.functional.one_hot(labels.long(), len(KINDS))

    def _draw(self, latents: Tensor, shares: Tensor) -> Tensor:
        z = {name: latents[:, i, None, None] for i, name in enumerate(LATENTS)}
        axis = torch.arange(SIZE, dtype=torch.float64, device=latents.device) + 0.5 - SIZE / 2
        x, y = axis[None, None, :], axis[None, :, None]
        u, v = _shape_coordinates(x, y, z)
        distance = _shape_distance(u, v, shares) * _SHAPE_SIZE * torch.exp(0.06 * z["size"])
        shape = _shape_colour(u, v, distance, z)
        paper = _paper_colour(x, y, distance, z)
        inside = (0.5 - distance).clamp(0, 1)[:, None]
        picture = ((paper + inside * (shape - paper)) * _weave(x, y, z)).clamp(0, 1)
        picture = picture + self.desaturation * (picture.mean(1, keepdim=True) - picture)
        return picture.mul(255).round().to(torch.uint8)


def draw_latents(n: int, *, seed: int) -> Tensor:
    """Standard normal latents (n, 24), the same for the same seed; the global random state is not touched."""
    return torch.randn(n, len(LATENTS), generator=torch.Generator().manual_seed(seed))


_SHAPE_SIZE = 18.0  # radius of the average disc, in pixels


def _shape_coordinates(x: Tensor, y: Tensor, z: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Pixel positions as the shape sees them: moved, turned, stretched, in units of its size."""
    moved_x, moved_y = x - 3 * z["x"], y - 3 * z["y"]
    cos, sin = torch.cos(0.2 * z["angle"]), torch.sin(0.2 * z["angle"])
    stretch = torch.exp(0.03 * z["stretch"])
    size = _SHAPE_SIZE * torch.exp(0.06 * z["size"])
    return (cos * moved_x + sin * moved_y) / size * stretch, (cos * moved_y - sin * moved_x) / size / stretch


def _shape_distance(u: Tensor, v: Tensor, shares: Tensor) -> Tensor:
    """Signed distance (n, h, w) to a blend of all kinds, made about equal in area."""
    radius = torch.hypot(u, v)
    distances = (
        radius - 1,
        torch.maximum(u.abs(), v.abs()) - 0.88,
        _star_distance(u, v, points=3, outer=1.45, inner=0.725),
        _star_distance(u, v, points=5, outer=1.5, inner=0.63),
        (radius - 0.85).abs() - 0.3,
    )
    blend = torch.zeros_like(radius)
    for share, distance in zip(shares.unbind(1), distances, strict=True):
        blend += share[:, None, None] * distance
    return blend


def _star_distance(u: Tensor, v: Tensor, *, points: int, outer: float, inner: float) -> Tensor:
    """Distance to the lines of a star with a tip upwards; a triangle is a star whose edges are straight."""
    half = math.pi / points
    # Fold the plane onto the half sector between a tip and the notch beside it: one straight line is left.
    angle = torch.remainder(torch.atan2(u, -v) + half, 2 * half) - half
    radius = torch.hypot(u, v)
    across, along = radius * angle.sin().abs(), radius * angle.cos()
    notch_across, notch_along = inner * math.sin(half), inner * math.cos(half)
    normal_across, normal_along = outer - notch_along, notch_across
    length = math.hypot(normal_across, normal_along)
    return (across * normal_across + (along - outer) * normal_along) / length


def _shape_colour(u: Tensor, v: Tensor, distance: Tensor, z: dict[str, Tensor]) -> Tensor:
    """Striped colour (n, 3, h, w), darker towards the rim."""
    colour = 0.05 + 0.75 * _rainbow(4.2 + 0.9 * z["hue"]) + 0.03 * z["lightness"][:, None]
    grey = colour.mean(1, keepdim=True)
    colour = grey + torch.exp(0.05 * z["saturation"])[:, None] * (colour - grey)
    angle = 0.6 + 0.15 * z["stripe_angle"]
    stripes_per_size = 2.25 * torch.exp(0.08 * z["stripe_frequency"])
    along = torch.cos(angle) * u + torch.sin(angle) * v
    stripes = torch.sin(2 * math.pi * stripes_per_size * along + z["stripe_phase"])
    contrast = 0.54 * torch.sigmoid(z["stripe_contrast"] - 0.2)
    shading = 0.15 * torch.exp(0.2 * z["shading"])
    rim = 1 - shading * torch.sigmoid((distance + 2) / 1.5)
    return colour * ((1 + contrast * stripes) * rim)[:, None]


def _paper_colour(x: Tensor, y: Tensor, distance: Tensor, z: dict[str, Tensor]) -> Tensor:
    """Light colour (n, 3, h, w) with a gradient, shaded around the shape; its hue follows the shape's."""
    hue = 6.8 + 0.9 * z["hue"] + 0.4 * z["paper_hue"]
    colour = 0.52 + 0.4 * _rainbow(hue) + 0.03 * z["paper_lightness"][:, None]
    angle = 0.8 + 0.3 * z["gradient_angle"]
    gradient = (torch.cos(angle) * x + torch.sin(angle) * y) / 45 * (0.2 + 0.05 * z["gradient_strength"])
    depth = 0.35 * torch.exp(0.1 * z["shadow"])
    shadow = depth * torch.sigmoid((1.5 - distance) / 2)
    return (colour + gradient[:, None]) * (1 - shadow)[:, None]


def _weave(x: Tensor, y: Tensor, z: dict[str, Tensor]) -> Tensor:
    """Brightness of the paper's fine weave, (n, 1, h, w): detail that every picture has and blurring removes."""
    wavelength = 4.5
    threads = torch.sin(2 * math.pi / wavelength * x) + torch.sin(2 * math.pi / wavelength * y)
    return (1 + 0.05 * torch.exp(0.1 * z["weave"]) * threads)[:, None]


def _rainbow(hue: Tensor) -> Tensor:
    """Colour (n, 3, 1, 1) in 0..1 of a hue (n, 1, 1) in radians: three cosines, a third of a turn apart."""
    offsets = torch.tensor([0.0, 2.1, 4.2]).to(hue)[None, :, None, None]
    return 0.5 + 0.5 * torch.cos(hue[:, None] - offsets)
