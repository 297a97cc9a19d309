"""Truncation in the intermediate latent space w: towards the mean of many mapped latents.

References:
    Karras, Laine, Aila: A Style-Based Generator Architecture for Generative Adversarial Networks. CVPR 2019,
    appendix B: w' = mean + psi (w - mean), the mean being that of f(z) over normal z.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch import Tensor

from genpr.checkpoints.generation.latents import Latents
from genpr.errors import DataError, UsageError, some
from genpr.features.code_closure import UncoveredError
from genpr.features.fingerprint import weights_sha256
from genpr.features.user_objects import networks_of, signature_of

MEAN_LATENTS = 10_000
"""Latents whose mapped mean is truncated towards, for each label."""

_MEAN_SEED = (
    0x77_2D_6D_65_61_6E  # "w-mean": a stream of its own, that no sweep is likely to draw its samples from
)
_MEAN_BATCH = 1000
_LABEL_PARAMETERS = ("labels", "c")  # the second is what StyleGAN's networks call it


class Mapping:
    """A mapping network, asked for its w at any psi.

    Args:
        mapping: Takes z (b, d), and class labels as `labels` or `c` if it knows classes; gives w, (b, d) or
            (b, num_ws, d).
        latent_dim: Coordinates of z.
        labels: (n,) or (n, c): those of all samples, if there are any. The mean is then one of each distinct label,
            since that of all classes belongs to none of them.
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
        self._means_of: tuple[str | None, ...] | None = None

    def prepare(self) -> None:
        """Find the means, unless they are known and the weights are still what they were found with.

        Networks change while they train. What has no network whose weights could tell is asked again every time.

        Raises:
            DataError: The mapping gives something else than finite (b, d) or (b, num_ws, d).
        """
        weights = self._weights()
        if self._means is None or weights is None or weights != self._means_of:
            labels: list[Tensor | None] = [None] if self._labels is None else list(self._labels)
            self._means = torch.stack([self._mean(label) for label in labels])
            self._means_of = weights

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
        w = self._mapped(z, labels)
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
        latents = Latents.drawn(MEAN_LATENTS, self._latent_dim, seed=_MEAN_SEED).z
        for start in range(0, MEAN_LATENTS, _MEAN_BATCH):
            z = latents[start : start + _MEAN_BATCH]
            labels = None if label is None else label.expand(len(z), *label.shape).to(self._device)
            part = self._mapped(z.to(self._device), labels).double().sum(0)
            total = part if total is None else total + part
        assert total is not None
        if not total.isfinite().all():
            raise DataError(
                f"the mapping of {self._who} gives NaN or infinite values; its weights may be damaged, or training "
                "has diverged",
                code="generator-non-finite",
            )
        return total / MEAN_LATENTS

    def _mapped(self, z: Tensor, labels: Tensor | None) -> Tensor:
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

    def _weights(self) -> tuple[str | None, ...] | None:
        networks = networks_of(self._mapping)
        try:
            return tuple(weights_sha256(network) for network in networks) or None
        except UncoveredError:
            return None


def _label_parameter(mapping: Callable[..., object], *, needed: bool, who: str) -> str | None:
    """What the mapping calls its labels; None if it should be given none."""
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
