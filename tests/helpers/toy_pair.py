"""Drawings and prompts that one toy model embeds exactly: two colored squares on a grid of 3 x 3, and the words for them."""

from itertools import combinations, product

import numpy as np
import torch

PLACES = ("top left", "top", "top right", "left", "middle", "right", "bottom left", "bottom", "bottom right")
COLORS = {
    "red": (255, 16, 0),
    "green": (0, 239, 8),
    "blue": (24, 0, 247),
    "yellow": (231, 255, 32),
    "magenta": (255, 40, 223),
    "cyan": (48, 247, 255),
}
GRAYS = tuple(range(8, 80, 8))
"""Gray levels of the empty cells: all are different, so that hardly any two cosines are equal."""
SCENES = [
    tuple(zip(colors, places, strict=True))
    for places in combinations(range(9), 2)
    for colors in product(COLORS, repeat=2)
]
"""1,296 different ones; a scene is two of (color, place)."""


def chosen(n: int, seed: int = 0):
    """n different scenes."""
    return [SCENES[row] for row in np.random.default_rng(seed).permutation(len(SCENES))[:n]]


def words(scene) -> str:
    """The prompt of a scene."""
    return " and ".join(f"a {color} square at {PLACES[place]}" for color, place in scene)


def drawing(scene) -> np.ndarray:
    """The image of a scene: uint8 (24, 24, 3)."""
    image = np.zeros((3, 8, 3, 8, 3), np.uint8)
    painted = dict.fromkeys(range(9)) | {place: COLORS[color] for color, place in scene}
    for place, color in painted.items():
        image[place // 3, :, place % 3] = color or (GRAYS[place],) * 3
    return image.reshape(24, 24, 3)


def drawings(scenes) -> np.ndarray:
    """uint8 (n, 24, 24, 3)."""
    return np.stack([drawing(scene) for scene in scenes])


class ToyPair:
    """Embeds an image as the mean colors of its 9 cells, and a prompt as those that it describes; it reads 91 letters."""

    dim = 27
    context = 91
    tokenizer = "letters"

    def __call__(self, images):
        cells = images.float().unflatten(2, (3, -1)).unflatten(4, (3, -1)).mean((3, 5)) / 255
        return cells.permute(0, 2, 3, 1).reshape(len(images), 27)

    def encode_text(self, texts):
        return torch.stack([self._encoded(text[: self.context]) for text in texts])

    def truncated(self, texts):
        return [len(text) > self.context for text in texts]

    def _encoded(self, text):
        cells = torch.tensor(GRAYS)[:, None].repeat(1, 3) / 255
        for part in text.lower().split(" and "):
            color = next((name for name in COLORS if name in part), None)
            place = next((name for name in PLACES if part.strip().endswith(f"at {name}")), None)
            if color and place:
                cells[PLACES.index(place)] = torch.tensor(COLORS[color]) / 255
        return cells.flatten()


def load():
    """For --extractor tests/helpers/toy_pair.py:load."""
    return ToyPair()
