"""A small GAN of 32 x 32 images, with a mapping of z to w and a synthesis that w steers at every size.

After StyleGAN (Karras et al. 2019), at a thousandth of its size. `train_gan.py` trains it; `load` is what genpr is given:

genpr sweep real/ --generator scripts/small_gan.py:load --checkpoint gan/step-004000.pt --image-range=-1,1 --psi 0.2:1:0.1
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import LinearLR

SIZE, Z_DIM, W_DIM = 32, 64, 128
R1_WEIGHT, R1_EVERY = 0.01, 16  # now and then is enough (Karras et al. 2020)


class Block(nn.Module):
    """Twice the size; each channel is normalized, then scaled and shifted as w says."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels, out, 4, stride=2, padding=1)
        self.style = nn.Linear(W_DIM, 2 * out)

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        """(b, channels, s, s) to (b, out, 2 s, 2 s)."""
        scale, shift = self.style(w)[:, :, None, None].chunk(2, dim=1)
        return F.leaky_relu(F.instance_norm(self.conv(x)) * (1 + scale) + shift, 0.2)


class Synthesis(nn.Module):
    """w (b, 128) to images (b, 3, 32, 32) of -1 to 1."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(W_DIM, 128 * 4 * 4)
        self.blocks = nn.ModuleList([Block(128, 96), Block(96, 48), Block(48, 24)])
        self.last = nn.Conv2d(24, 3, 3, padding=1)

    def forward(self, w: Tensor) -> Tensor:
        """From 4 x 4 to 32 x 32."""
        x = F.leaky_relu(self.first(w).view(-1, 128, 4, 4), 0.2)
        for block in self.blocks:
            x = block(x, w)
        return self.last(x).tanh()


class Generator(nn.Module):
    """genpr finds `z_dim`, `mapping` and `synthesis`, and truncates between the two."""

    z_dim = Z_DIM

    def __init__(self) -> None:
        super().__init__()
        hidden = [nn.Linear(Z_DIM, W_DIM), nn.LeakyReLU(0.2), nn.Linear(W_DIM, W_DIM), nn.LeakyReLU(0.2)]
        self.mapping = nn.Sequential(*hidden, nn.Linear(W_DIM, W_DIM))
        self.synthesis = Synthesis()
        self.apply(initialize)

    def forward(self, z: Tensor) -> Tensor:
        """From z (b, 64) to images (b, 3, 32, 32)."""
        return self.synthesis(self.mapping(z))


def discriminator() -> nn.Sequential:
    """Images (b, 3, 32, 32) to (b, 1): more is more real."""
    layers: list[nn.Module] = []
    for channels, out in [(3, 32), (32, 64), (64, 128)]:
        layers += [nn.Conv2d(channels, out, 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4 * 4, 1)).apply(initialize)


def initialize(module: nn.Module) -> None:
    """He et al. 2015. torch's own start makes w so small that all images are one."""
    if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
        mode = "fan_out" if isinstance(module, nn.ConvTranspose2d) else "fan_in"
        nn.init.kaiming_normal_(module.weight, a=0.2, mode=mode)
        nn.init.zeros_(module.bias)


class Training:
    """Both networks with their optimizers, and the average of the generator, which is what is scored and kept.

    Attributes:
        steps: Over which the learning rate falls to a twentieth.
        device: Where the networks are.
        average: An exponential moving average over about 200 steps.
    """

    def __init__(self, steps: int, device: torch.device) -> None:
        self.steps, self.device = steps, device
        self._generator, self._discriminator = Generator().to(device), discriminator().to(device)
        self.average = copy.deepcopy(self._generator).requires_grad_(False)
        self._optimizers = [
            torch.optim.Adam(network.parameters(), lr=1e-3, betas=(0.0, 0.99))
            for network in (self._discriminator, self._generator)
        ]
        self._schedules = [LinearLR(each, 1.0, 0.05, steps) for each in self._optimizers]
        self._done = 0

    @property
    def rate(self) -> float:
        """The learning rate."""
        return self._schedules[0].get_last_lr()[0]

    def step(self, real: Tensor) -> dict[str, float]:
        """One step of both networks with the non-saturating loss (Goodfellow et al. 2014).

        Args:
            real: (b, 3, 32, 32), -1 to 1.

        Returns:
            Losses, and norms of the gradients before they are clipped.
        """
        judge, real = self._discriminator, real.to(self.device)
        fake = self._generator(torch.randn(len(real), Z_DIM, device=self.device))
        loss_d = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
        penalty = R1_EVERY * r1_penalty(judge, real) if self._done % R1_EVERY == 0 else 0.0
        grad_d = descend(judge, loss_d + penalty, self._optimizers[0])
        loss_g = F.softplus(-judge(fake)).mean()
        grad_g = descend(self._generator, loss_g, self._optimizers[1])
        for schedule in self._schedules:
            schedule.step()
        with torch.no_grad():
            for mean, latest in zip(self.average.parameters(), self._generator.parameters(), strict=True):
                mean.lerp_(latest, 0.005)
        self._done += 1
        return {"loss_g": loss_g.item(), "loss_d": loss_d.item(), "grad_g": grad_g, "grad_d": grad_d}


def r1_penalty(judge: nn.Module, real: Tensor) -> Tensor:
    """Keeps the discriminator flat around the reals (Mescheder et al. 2018)."""
    real = real.detach().requires_grad_()
    (slope,) = torch.autograd.grad(judge(real).sum(), real, create_graph=True)
    return R1_WEIGHT / 2 * slope.square().sum(dim=(1, 2, 3)).mean()


def descend(network: nn.Module, loss: Tensor, optimizer: torch.optim.Optimizer) -> float:
    """One step down; the norm of the gradient before it is clipped to 20."""
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(network.parameters(), max_norm=20.0)
    optimizer.step()
    return norm.item()


def load(checkpoint: str) -> Generator:
    """The factory that genpr calls."""
    generator = Generator()
    generator.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=True))
    return generator
