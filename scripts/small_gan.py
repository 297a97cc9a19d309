"""A small GAN for 32 x 32 images in the style of StyleGAN (Karras et al. 2019): a mapping of z to w, and a synthesis network.

`train_gan.py` trains it. genpr loads its checkpoints with the factory `load`:

genpr sweep real/ --generator scripts/small_gan.py:load --checkpoint gan/step-004000.pt --image-range=-1,1 --psi 0.2:1:0.1
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import LinearLR

SIZE, Z_DIM, W_DIM = 32, 64, 128
R1_WEIGHT, R1_EVERY = 0.01, 16  # lazy regularization (Karras et al. 2020)


class Block(nn.Module):
    """Upsample by two; normalize each channel, then scale and shift it by a linear function of w."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels, out, 4, stride=2, padding=1)
        self.style = nn.Linear(W_DIM, 2 * out)

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        """Map (b, channels, s, s) to (b, out, 2 s, 2 s)."""
        scale, shift = self.style(w)[:, :, None, None].chunk(2, dim=1)
        return F.leaky_relu(F.instance_norm(self.conv(x)) * (1 + scale) + shift, 0.2)


class Synthesis(nn.Module):
    """Map w (b, 128) to images (b, 3, 32, 32) in -1..1."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(W_DIM, 128 * 4 * 4)
        self.blocks = nn.ModuleList([Block(128, 96), Block(96, 48), Block(48, 24)])
        self.last = nn.Conv2d(24, 3, 3, padding=1)

    def forward(self, w: Tensor) -> Tensor:
        """Generate images from w."""
        x = F.leaky_relu(self.first(w).view(-1, 128, 4, 4), 0.2)
        for block in self.blocks:
            x = block(x, w)
        return self.last(x).tanh()


class Generator(nn.Module):
    """Mapping and synthesis. genpr uses `z_dim`, `mapping` and `synthesis` for truncation in w."""

    z_dim = Z_DIM

    def __init__(self) -> None:
        super().__init__()
        hidden = [nn.Linear(Z_DIM, W_DIM), nn.LeakyReLU(0.2), nn.Linear(W_DIM, W_DIM), nn.LeakyReLU(0.2)]
        self.mapping = nn.Sequential(*hidden, nn.Linear(W_DIM, W_DIM))
        self.synthesis = Synthesis()
        self.apply(initialize)

    def forward(self, z: Tensor) -> Tensor:
        """Map z (b, 64) to images (b, 3, 32, 32)."""
        return self.synthesis(self.mapping(z))


def discriminator() -> nn.Sequential:
    """Build a network that maps images (b, 3, 32, 32) to logits (b, 1), higher for real images."""
    layers: list[nn.Module] = []
    for channels, out in [(3, 32), (32, 64), (64, 128)]:
        layers += [nn.Conv2d(channels, out, 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4 * 4, 1)).apply(initialize)


def initialize(module: nn.Module) -> None:
    """Initialize as in He et al. 2015: with the default of torch, w is so small that all images are equal."""
    if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
        mode = "fan_out" if isinstance(module, nn.ConvTranspose2d) else "fan_in"
        nn.init.kaiming_normal_(module.weight, a=0.2, mode=mode)
        nn.init.zeros_(module.bias)


class Training:
    """Both networks with their optimizers, and the average of the generator, which is scored and saved.

    Attributes:
        steps: Number of steps over which the learning rate falls to a twentieth.
        device: Device of the networks.
        average: Exponential moving average of the generator over about 200 steps.
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
        """The current learning rate."""
        return self._schedules[0].get_last_lr()[0]

    def step(self, real: Tensor) -> dict[str, float]:
        """Train both networks for one step with the non-saturating loss (Goodfellow et al. 2014).

        Args:
            real: Images (b, 3, 32, 32) in -1..1.

        Returns:
            Losses, and gradient norms before clipping.
        """
        discriminator, real = self._discriminator, real.to(self.device)
        fake = self._generator(torch.randn(len(real), Z_DIM, device=self.device))
        loss_d = F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake.detach())).mean()
        penalty = R1_EVERY * r1_penalty(discriminator, real) if self._done % R1_EVERY == 0 else 0.0
        grad_d = descend(discriminator, loss_d + penalty, self._optimizers[0])
        loss_g = F.softplus(-discriminator(fake)).mean()
        grad_g = descend(self._generator, loss_g, self._optimizers[1])
        for schedule in self._schedules:
            schedule.step()
        with torch.no_grad():
            for mean, latest in zip(self.average.parameters(), self._generator.parameters(), strict=True):
                mean.lerp_(latest, 0.005)
        self._done += 1
        return {"loss_g": loss_g.item(), "loss_d": loss_d.item(), "grad_g": grad_g, "grad_d": grad_d}


def r1_penalty(network: nn.Module, real: Tensor) -> Tensor:
    """Return the R1 gradient penalty of the discriminator at the reals (Mescheder et al. 2018)."""
    real = real.detach().requires_grad_()
    (slope,) = torch.autograd.grad(network(real).sum(), real, create_graph=True)
    return R1_WEIGHT / 2 * slope.square().sum(dim=(1, 2, 3)).mean()


def descend(network: nn.Module, loss: Tensor, optimizer: torch.optim.Optimizer) -> float:
    """Take one optimizer step; return the gradient norm before clipping to 20."""
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(network.parameters(), max_norm=20.0)
    optimizer.step()
    return norm.item()


def load(checkpoint: str) -> Generator:
    """Load a generator from a checkpoint; genpr calls this factory."""
    generator = Generator()
    generator.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=True))
    return generator
