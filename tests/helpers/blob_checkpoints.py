"""A generator in a file, and checkpoints of it that are best for a spread of 1."""

import textwrap

import torch

GENERATOR = """
import torch
from torch import nn


class Blobs(nn.Module):
    z_dim = 3

    def __init__(self, spread):
        super().__init__()
        self.spread = nn.Parameter(torch.tensor(float(spread)))
        self.itself = [self]  # so that only the garbage collector lets it go

    def forward(self, latents, *, psi=1.0):
        z = torch.special.ndtr(psi * self.spread * latents)
        rows, columns = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
        y, x, size = (z[:, at, None, None] for at in range(3))
        inside = (rows - 16 * y) ** 2 + (columns - 16 * x) ** 2 < (2 + 5 * size) ** 2
        return (2.0 * inside - 1)[:, None]


def load(path):
    return Blobs(torch.load(path)["spread"])


again = load
"""


def write_generator(folder, source=GENERATOR, name="gan.py"):
    (folder / name).write_text(textwrap.dedent(source))
    return f"{folder / name}:load"


def write_checkpoint(path, spread):
    torch.save({"spread": spread}, path)
    return path


def real_blobs(n=80):
    """uint8 (n, 16, 16, 3) of spread 1."""
    scope = {}
    exec(GENERATOR, scope)
    z = torch.randn(n, 3, generator=torch.Generator().manual_seed(77))
    with torch.no_grad():
        drawn = scope["Blobs"](1.0)(z)
    return ((drawn + 1) * 127.5).to(torch.uint8).repeat(1, 3, 1, 1).permute(0, 2, 3, 1).numpy()
