"""Latents that are the same at every setting, and truncation: of z by a rule, or of w towards its mean.

The rules by name, psi being the setting:

- `z-scale`: psi z. Sampling at a reduced temperature (Kingma and Dhariwal 2018).
- `z-clip`: z clamped to [-psi, psi]. What lies outside piles up at the bounds.
- `z-resample`: a normal truncated to [-psi, psi] (Marchesi 2017; the truncation trick of Brock et al. 2019). They draw
  a coordinate anew until it lies inside; here it comes from the inverse distribution function at the fixed uniform
  u = Phi(z), which has the same distribution and keeps every point paired with itself over all psi.
- `w-interpolate`: z as it is; w = f(z) of the mapping network is moved towards its mean (Karras et al. 2019, appendix B):
  w' = mean + psi (w - mean), the mean being that of f(z) over normal z.

References:
    Brock, Donahue, Simonyan: Large Scale GAN Training for High Fidelity Natural Image Synthesis. ICLR 2019.
    Karras, Laine, Aila: A Style-Based Generator Architecture for Generative Adversarial Networks. CVPR 2019.
    Kingma, Dhariwal: Glow: Generative Flow with Invertible 1x1 Convolutions. NeurIPS 2018.
    Marchesi: Megapixel Size Image Creation using Generative Adversarial Networks. arXiv:1706.00082, 2017.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral, Real

import torch
from torch import Tensor

from genpr.errors import DataError, UsageError, some
from genpr.features.custom import networks_of, weights_sha256
from genpr.features.user_code import signature_of

W_RULE = "w-interpolate"
MEAN_LATENTS = 10_000
"""Latents over which the mean w is taken, for each label."""

_MEAN_SEED = 0x77_2D_6D_65_61_6E  # "w-mean": a stream that no sweep is likely to draw its samples from
_MEAN_BATCH = 1000
_LABEL_PARAMETERS = ("labels", "c")  # the second is the name in StyleGAN's networks


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
    def draw(cls, n: int, d: int, *, seed: int) -> Latents:
        """Draw n latents of d coordinates on the CPU, so that they are the same whatever device uses them.

        They are `torch.randn(n, d, generator=torch.Generator().manual_seed(seed))`.

        Raises:
            UsageError: n or d is below 1, or the seed is no integer from 0 on.

        Example:
            >>> Latents.draw(4, 8, seed=0).truncated("z-scale", 0.5).shape
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

    def truncated(self, rule: str, psi: float) -> Tensor:
        """The latents truncated by a rule, float32 (n, d); row i is the same sample at every psi.

        Args:
            rule: One of `RULES`.
            psi: The factor of z-scale, the bound of z-clip and z-resample; at 0 all of these give zeros. For
                w-interpolate any finite number, and z does not depend on it.

        Raises:
            UsageError: The rule is unknown ("unknown-rule"), or psi is out of its range ("bad-psi").
        """
        check_psi(rule, psi)
        return RULES[rule](self.z, float(psi))


class MappingNetwork:
    """A mapping network with truncation of its w towards the mean.

    Args:
        mapping: Takes z (b, d), and class labels as `labels` or `c` if it knows classes; gives w, (b, d) or
            (b, num_ws, d).
        latent_dim: Coordinates of z.
        labels: (n,) or (n, c): those of all samples, if there are any. The mean is then taken for each distinct label.
        device: Where the network is.
        who: The generator, for messages.

    Raises:
        UsageError: It takes no labels but there are some.
    """

    def __init__(
        self,
        mapping: Callable[..., object],
        *,
        latent_dim: int,
        labels: Tensor | None,
        device: torch.device,
        who: str,
    ) -> None:
        self._mapping = mapping
        self._latent_dim = latent_dim
        self._device = device
        self._who = who
        self._label_name = _label_parameter(mapping, needed=labels is not None, who=who)
        self._labels: Tensor | None = None
        self._group: Tensor | None = None
        if labels is not None:
            self._labels, self._group = torch.unique(labels, dim=0, return_inverse=True)
        self._means: Tensor | None = None
        self._means_weights: tuple[str | None, ...] = ()

    def prepare(self) -> None:
        """Compute the means of w, unless the weights are known to be those of the last call.

        Raises:
            DataError: The mapping gives something else than finite (b, d) or (b, num_ws, d).
        """
        weights = network_hashes(self._mapping)
        if self._means is None or not weights or weights != self._means_weights:
            labels: list[Tensor | None] = [None] if self._labels is None else list(self._labels)
            self._means = torch.stack([self._mean(label) for label in labels])
            self._means_weights = weights

    def __call__(self, z: Tensor, labels: Tensor | None, psi: float, start: int) -> Tensor:
        """The w of latents (b, d), truncated: mean + psi (w - mean). `prepare` comes first.

        Args:
            z: (b, d), on the device.
            labels: Of these latents, on the device.
            psi: 1 leaves w alone, 0 gives the mean, a negative one the opposite of each w.
            start: Which of all samples the first one is.

        Raises:
            DataError: The mapping gives something else than (b, d) or (b, num_ws, d).
        """
        w = self._map(z, labels)
        if psi == 1:
            return w
        assert self._means is not None
        if self._group is None:
            mean = self._means[0]
        else:
            mean = self._means[self._group[start : start + len(z)].to(self._means.device)]
        return torch.lerp(mean.to(w).expand_as(w), w, psi)

    def _mean(self, label: Tensor | None) -> Tensor:
        """Mean w, (d,) or (num_ws, d), over the same latents for each label."""
        total: Tensor | None = None
        latents = Latents.draw(MEAN_LATENTS, self._latent_dim, seed=_MEAN_SEED).z
        for start in range(0, MEAN_LATENTS, _MEAN_BATCH):
            z = latents[start : start + _MEAN_BATCH]
            labels = None if label is None else label.expand(len(z), *label.shape).to(self._device)
            part = self._map(z.to(self._device), labels).double().sum(0)
            total = part if total is None else total + part
        assert total is not None
        if not total.isfinite().all():
            raise DataError(
                f"the mapping of {self._who} gives NaN or infinite values; its weights may be damaged, or training "
                "has diverged",
                code="generator-non-finite",
            )
        return total / MEAN_LATENTS

    def _map(self, z: Tensor, labels: Tensor | None) -> Tensor:
        keywords = {} if self._label_name is None else {self._label_name: labels}
        w = self._mapping(z, **keywords)
        if not isinstance(w, Tensor) or w.ndim not in {2, 3} or len(w) != len(z) or not w.is_floating_point():
            came = f"{w.dtype} {tuple(w.shape)}" if isinstance(w, Tensor) else type(w).__name__
            raise DataError(
                f"the mapping of {self._who} must give floats (b, d) or (b, num_ws, d) for latents {tuple(z.shape)}, "
                f"but gave {came}",
                code="generator-shape",
            )
        return w


def network_hashes(thing: object) -> tuple[str | None, ...]:
    """Hashes of the weights of the networks of an object; empty where there are none, or where one cannot be hashed."""
    try:
        return tuple(weights_sha256(network) for network in networks_of(thing))
    except ValueError:
        return ()


def _label_parameter(mapping: Callable[..., object], *, needed: bool, who: str) -> str | None:
    """The name of the mapping's parameter for labels; None if it is called without labels."""
    signature = signature_of(mapping)
    parameters = {} if signature is None else signature.parameters
    for name in _LABEL_PARAMETERS:
        if name in parameters and (needed or parameters[name].default is inspect.Parameter.empty):
            return name
    if not needed:
        return None
    raise UsageError(
        f"labels were given, but the mapping of {who} has no parameter `labels` or `c`; it takes "
        f"{some(parameters, 10) or 'nothing that it says'}",
        code="generator-labels",
    )


def check_psi(rule: str, psi: object) -> None:
    """Check the name of a rule and that psi is in its range.

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
    """Check that `value` is an integer of at least 1.

    Raises:
        UsageError: With code "bad-option".
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise UsageError(f"{name} must be an integer of at least 1, not {value!r}", code="bad-option")


def check_seed(seed: object) -> None:
    """Check that `seed` is an integer from 0 to 2**63 - 1.

    Raises:
        UsageError: With code "seed".
    """
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= int(seed) < 2**63:
        raise UsageError(f"seed must be an integer from 0 on, got {seed!r}", code="seed")


def _resample(z: Tensor, psi: float) -> Tensor:
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
    "z-resample": _resample,
    "z-scale": lambda z, psi: z * psi,
    "z-clip": lambda z, psi: z.clamp(-psi, psi),
}
"""By rule: from latents float32 (n, d) and psi to truncated latents."""
