"""Latents that are the same at every setting, and the rules that truncate them.

The rules by name, psi being the setting:

- `z-scale`: psi z. Sampling at a reduced temperature (Kingma and Dhariwal 2018).
- `z-clip`: z clamped to [-psi, psi]. What lies outside piles up at the bounds.
- `z-resample`: a normal truncated to [-psi, psi] (Marchesi 2017; the truncation trick of Brock et al. 2019). They draw
  a coordinate anew until it lies inside; here it comes from the inverse distribution function at the fixed uniform
  u = Phi(z), which has the same distribution and keeps every point paired with itself over all psi.
- `w-interpolate`: z as it is; what the mapping network makes of it is moved towards its mean (Karras et al. 2019),
  see `genpr.checkpoints.generation.truncation`.

References:
    Brock, Donahue, Simonyan: Large Scale GAN Training for High Fidelity Natural Image Synthesis. ICLR 2019.
    Karras, Laine, Aila: A Style-Based Generator Architecture for Generative Adversarial Networks. CVPR 2019.
    Kingma, Dhariwal: Glow: Generative Flow with Invertible 1x1 Convolutions. NeurIPS 2018.
    Marchesi: Megapixel Size Image Creation using Generative Adversarial Networks. arXiv:1706.00082, 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral, Real

import torch
from torch import Tensor

from genpr.errors import UsageError

W_RULE = "w-interpolate"


@dataclass(frozen=True)
class Latents:
    """Standard normal latents.

    Attributes:
        z: float32 (n, d), on the CPU.
        seed: Of the generator that drew them.
    """

    z: Tensor = field(repr=False)
    seed: int

    @classmethod
    def drawn(cls, n: int, d: int, *, seed: int) -> Latents:
        """Draw n latents of d coordinates on the CPU, so that they are the same whatever device uses them.

        They are `torch.randn(n, d, generator=torch.Generator().manual_seed(seed))`.

        Raises:
            UsageError: n or d is below 1, or the seed is no integer from 0 on.

        Example:
            >>> Latents.drawn(4, 8, seed=0).at("z-scale", 0.5).shape
            torch.Size([4, 8])
        """
        check_count("n", n)
        check_count("latent_dim", d)
        check_seed(seed)
        return cls(torch.randn(n, d, generator=torch.Generator().manual_seed(seed)), seed)

    def __len__(self) -> int:
        return len(self.z)

    def rows(self, start: int, stop: int) -> Latents:
        """The latents from `start` up to `stop`."""
        return Latents(self.z[start:stop], self.seed)

    def at(self, rule: str, psi: float) -> Tensor:
        """The latents under a rule, float32 (n, d).

        Row i is the same sample at every psi: it moves, and is never exchanged for another.

        Args:
            rule: One of `RULES`.
            psi: The factor of z-scale, the bound of z-clip and z-resample; at 0 all of these give zeros. For
                w-interpolate any finite number, and z does not depend on it.

        Raises:
            UsageError: There is no such rule, or psi makes no sense for it.
        """
        check_psi(rule, psi)
        return RULES[rule](self.z, float(psi))


def check_psi(rule: str, psi: object) -> None:
    """Refuse an unknown rule, and a psi that makes no sense for a known one.

    Raises:
        UsageError: With code "unknown-rule" or "bad-psi".
    """
    if rule not in RULES:
        raise UsageError(f"there is no rule {rule!r}; use one of {', '.join(RULES)}", code="unknown-rule")
    is_number = isinstance(psi, Real) and not isinstance(psi, bool) and math.isfinite(psi)
    if not is_number or (rule != W_RULE and float(psi) < 0):  # type: ignore[arg-type]
        needed = "a finite number" if rule == W_RULE else "a finite number of at least 0"
        raise UsageError(f"psi must be {needed} for the rule {rule}, but is {psi!r}", code="bad-psi")


def check_count(name: str, value: object) -> None:
    """Refuse what is no integer of at least 1.

    Raises:
        UsageError: With code "bad-option".
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise UsageError(f"{name} must be an integer of at least 1, not {value!r}", code="bad-option")


def check_seed(seed: object) -> None:
    """Refuse what is no integer from 0 up to what torch takes.

    Raises:
        UsageError: With code "seed".
    """
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= int(seed) < 2**63:
        raise UsageError(f"seed must be an integer from 0 on, got {seed!r}", code="seed")


def _resampled(z: Tensor, psi: float) -> Tensor:
    """Phi^-1 of Phi(-psi) + u (Phi(psi) - Phi(-psi)) at u = Phi(z), without the cancellation of that formula.

    By symmetry it is the x for which erf(|x| / sqrt 2) = erf(|z| / sqrt 2) erf(psi / sqrt 2), with the sign of z.
    Where the product is near one its distance from one is what is known well, so that is inverted there instead. The
    result is right to a few units in the last place of a float64, and is z itself in float32 once psi is past 10.
    """
    from scipy.special import erf, erfc, erfcinv, erfinv

    magnitude = z.double().abs().numpy() / math.sqrt(2)
    inside, bound = erf(magnitude), erf(psi / math.sqrt(2))
    outside = erfc(magnitude) + erfc(psi / math.sqrt(2)) * inside
    product = inside * bound
    x = torch.from_numpy(math.sqrt(2) * erfinv(product))
    tail = torch.from_numpy(outside < 0.5)
    x[tail] = torch.from_numpy(math.sqrt(2) * erfcinv(outside[outside < 0.5]))
    return x.clamp(max=psi).copysign(z.double()).float()


RULES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "w-interpolate": lambda z, _psi: z,
    "z-resample": _resampled,
    "z-scale": lambda z, psi: z * psi,
    "z-clip": lambda z, psi: z.clamp(-psi, psi),
}
"""What each rule makes of latents float32 (n, d) at a psi."""
