"""Small drawings for the tests of integrations, and options that need no downloads."""

from functools import cache

import torch

import genpr
from genpr.demo import ShapesGenerator, draw_latents

N_REAL, N_FAKE = 70, 61


class Means:
    """A fast extractor: mean colors of 16 parts of an image."""

    name = "means"
    dim = 48

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.adaptive_avg_pool2d(pixels.float(), 4).flatten(1)


GABOR = {"extractor": "gabor", "device": "cpu"}
OPTIONS = {"extractor": Means(), "device": "cpu"}


@cache
def images() -> tuple[torch.Tensor, torch.Tensor]:
    """Reals and fakes, uint8 (n, 3, 32, 32), for which no metric is 0 or 1."""
    latents = draw_latents(N_REAL + N_FAKE, seed=3)
    real = ShapesGenerator()(latents[:N_REAL])
    fake = ShapesGenerator(kinds=("disc", "square", "star"), desaturation=0.1)(latents[N_REAL:], psi=0.9)
    return real[:, :, ::2, ::2].contiguous(), fake[:, :, ::2, ::2].contiguous()


def expected(*, intervals: bool = False, options=OPTIONS) -> dict[str, float]:
    """Values of an evaluator for these images, without the prefix "genpr/"."""
    real, fake = images()
    evaluator = genpr.Evaluator(real, **options, control=False, intervals=intervals)
    flat = evaluator.score(fake).to_flat_dict(intervals=intervals)
    return {name.removeprefix("genpr/"): value for name, value in flat.items()}
