"""Images of colored stripes, and two classifiers of them whose scores are known: a pair of encoders, and a detector."""

import csv

import numpy as np
import torch
from torch import nn

COLORS = {"red": 0, "green": 1, "blue": 2}
"""Channel of each."""


def painted(*names, strength=255) -> np.ndarray:
    """An image uint8 (12, 12, 3) with a stripe of each color."""
    image = np.zeros((12, 12, 3), np.uint8)
    for name in names:
        channel = COLORS[name]
        image[:, 4 * channel : 4 * channel + 4, channel] = strength
    return image


def write_expected(path, expected, names=None, prompts=False):
    """Write a .csv of the expected entities of each image."""
    names = names or [f"{row:05d}.png" for row in range(len(expected))]
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["image", "prompt" if prompts else "expected"])
        for name, each in zip(names, expected, strict=True):
            rows.writerow([name, f"a picture of {' and '.join(each)}" if prompts else ";".join(each)])
    return path


class Pair:
    """Embeds an image as its amount of each color and a constant, and a text as the colors that it names."""

    dim = 4
    name = "toy-colors"

    def __call__(self, images):
        shares = images.float().mean((2, 3)) / 85
        return torch.cat([shares, torch.ones(len(images), 1)], dim=1)

    def encode_text(self, texts):
        rows = [[float(name in text) for name in COLORS] + [0.0] for text in texts]
        return torch.tensor(rows) + torch.tensor([0, 0, 0, 1e-3])


class Detector:
    """Detects each color with a score equal to the strength of its stripe."""

    names = ("red", "green", "blue")

    def __init__(self, blind=()):
        self.blind = blind

    def __call__(self, images):
        seen = torch.stack([image.float().amax((1, 2)) / 255 for image in images])
        for name in self.blind:
            seen[:, COLORS[name]] = 0
        return seen


class Network(nn.Module):
    """The detector as a network, so that its scores can be cached."""

    names, cache_key = ("red", "green", "blue"), "1"

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1 / 255))

    def forward(self, images):
        assert len(images) == 1, "a batch would pad images to one size"
        return torch.stack([image.float().amax((1, 2)) * self.scale for image in images])


class Misshapen(Detector):
    """Returns too few scores."""

    def __call__(self, images):
        return super().__call__(images)[:, :2]


def pair():
    """For --classifier tests/helpers/toy_colors.py:pair."""
    print("a user's factory may print")
    return Pair()


def detector():
    """For --classifier tests/helpers/toy_colors.py:detector."""
    return Detector()


def blind():
    """A detector that never detects blue."""
    return Detector(("blue",))


def neither():
    """An object that is not a classifier."""
    return object()
