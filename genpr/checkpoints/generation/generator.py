"""What a generator is, and how one batch of latents goes through it.

A generator is one of

- a callable `(latents, *, labels=None, **axis)`: latents are float32 (b, d) on the generator's device, and the swept
  axis comes by its name, such as `psi=0.7` or `guidance=3.0`. `labels` is passed only where there are labels;
- an object with `mapping` and `synthesis`, as StyleGAN's networks have: `synthesis(mapping(z))`, where psi is applied
  to what the mapping gives, (b, d) or (b, num_ws, d). Labels go to the mapping, as `labels` or `c`.

Either returns images as `genpr.checkpoints.generation.pixels` takes them.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from genpr.checkpoints.generation.latents import W_RULE, check_psi
from genpr.checkpoints.generation.truncation import Mapping
from genpr.errors import GenprError, ResourceError, UsageError
from genpr.features.user_objects import evaluation_mode, networks_of, signature_of
from genpr.runtime import is_out_of_memory, resolve_device, state_guard

Setting = float | int | str | bool
"""A value on the swept axis."""


class Route(Protocol):
    """How latents become whatever the generator returns."""

    def prepare(self) -> None:
        """Find what is needed before the first batch of a pass."""
        ...

    def __call__(self, latents: Tensor, labels: Tensor | None, setting: Setting, start: int) -> object:
        """What the generator returns for the samples from number `start` on."""
        ...


@dataclass(frozen=True)
class CallRoute:
    """A callable, given the axis by name, or not at all where the latents carry the setting."""

    generator: Callable[..., object]
    axis: str | None

    def prepare(self) -> None:
        """Nothing."""

    def __call__(self, latents: Tensor, labels: Tensor | None, setting: Setting, start: int) -> object:
        """Call the generator."""
        keywords: dict[str, object] = {} if self.axis is None else {self.axis: setting}
        if labels is not None:
            keywords["labels"] = labels
        return self.generator(latents, **keywords)


@dataclass(frozen=True)
class StyleRoute:
    """A mapping and a synthesis, with truncation in between unless the latents carry the setting."""

    mapping: Mapping
    synthesis: Callable[[Tensor], object]
    truncates: bool

    def prepare(self) -> None:
        """Find the means of w."""
        if self.truncates:
            self.mapping.prepare()

    def __call__(self, latents: Tensor, labels: Tensor | None, setting: Setting, start: int) -> object:
        """Map, truncate, synthesise."""
        psi = float(setting) if self.truncates else 1.0
        return self.synthesis(self.mapping(latents, labels, psi, start))


def find_route(
    generator: Any,  # noqa: ANN401 - a user's object
    *,
    axis: str,
    rule: str | None,
    labels: Tensor | None,
    latent_dim: int,
    device: torch.device,
    who: str,
) -> tuple[Route, str | None]:
    """Find how to use a generator, and by which rule.

    Returns:
        The way, and the rule: None where the callable is given the axis.

    Raises:
        UsageError: It is neither kind of generator, does not take the axis or labels, or the rule does not go with it.
    """
    _check_axis(axis)
    if rule is not None:
        check_psi(rule, 1.0)
        if axis != "psi":
            raise UsageError(f"the rule {rule} sets psi, so it cannot sweep {axis!r}", code="bad-axis")
    is_styled = all(callable(getattr(generator, part, None)) for part in ("mapping", "synthesis"))
    if is_styled and axis == "psi":
        rule = rule or W_RULE
        mapping = Mapping(generator.mapping, latent_dim=latent_dim, labels=labels, device=device, who=who)
        return StyleRoute(mapping, generator.synthesis, truncates=rule == W_RULE), rule
    if rule == W_RULE:
        raise UsageError(
            f"the rule {rule} needs a generator with `mapping` and `synthesis`, and {who} has not both",
            code="custom-generator",
        )
    check_generator(generator, who)
    if not callable(generator):
        raise UsageError(
            f"{who} has `mapping` and `synthesis` and cannot be called itself, so only psi can be swept, not {axis!r}",
            code="bad-axis",
        )
    route = CallRoute(generator, axis if rule is None else None)
    _check_takes(generator, route.axis, labels is not None, who)
    return route, rule


def check_generator(generator: object, who: str) -> None:
    """Refuse what cannot be a generator.

    Raises:
        UsageError: It can neither be called nor has `mapping` and `synthesis`.
    """
    is_styled = all(callable(getattr(generator, part, None)) for part in ("mapping", "synthesis"))
    if not callable(generator) and not is_styled:
        raise UsageError(
            f"{who} must be callable, latents in and images out, or have `mapping` and `synthesis`, but is a "
            f"{type(generator).__name__}",
            code="custom-generator",
        )


def device_of(generator: object, device: str | torch.device, who: str) -> torch.device:
    """Where latents go: to the generator's networks, which are never moved; without any, to `device`, or the CPU.

    Raises:
        UsageError: There is no such device, or the networks are on another one than was asked for.
        ResourceError: CUDA was asked for and is not there.
    """
    tensors = (t for network in networks_of(generator) for t in (*network.parameters(), *network.buffers()))
    found = next(tensors, None)
    if device == "auto":
        return torch.device("cpu") if found is None else found.device
    wanted = resolve_device(device)
    if found is None or (found.device.type == wanted.type and wanted.index in {None, found.device.index}):
        return wanted if found is None else found.device
    raise UsageError(
        f"the networks of {who} are on {found.device}, but device {str(device)!r} was asked for; move them there first",
        code="generator-device",
    )


@contextmanager
def at_work(generator: object, device: torch.device) -> Iterator[None]:
    """Evaluation and inference mode, plain float32 and no autocast, and every random stream left as it was found."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the one that users draw from
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call] # so that its streams are among those that are kept
    try:
        with state_guard(), evaluation_mode(generator), torch.autocast(device.type, enabled=False):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def seed_noise(seed: int, batch: int) -> None:
    """Start every random stream anew for one batch, whatever was drawn before: inside of `at_work` only."""
    digest = hashlib.sha256(f"genpr noise {seed} {batch}".encode()).digest()
    start = int.from_bytes(digest[:8]) >> 1
    random.seed(start)
    np.random.seed(start % 2**32)  # noqa: NPY002
    torch.default_generator.manual_seed(start)  # torch.manual_seed would queue seeds for devices never used
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(start)


@contextmanager
def blamed_on(who: str) -> Iterator[None]:
    """Turn whatever a generator raises into one line that names it.

    Raises:
        ResourceError: The device has no memory left.
        UsageError: Anything else that it raised; errors of genpr stay what they are.
    """
    try:
        yield
    except GenprError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise ResourceError(
                f"{who} has no memory left on its device; use a smaller batch_size, or free memory",
                code="oom",
            ) from error
        text = " ".join(str(error).split())
        raise UsageError(f"{who} failed: {type(error).__name__}: {text}", code="generator-failed") from error


def _check_axis(axis: str) -> None:
    if not isinstance(axis, str) or not axis.isidentifier() or axis == "labels":
        raise UsageError(
            f"axis must be the name of a parameter, such as psi or guidance, not {axis!r}", code="bad-axis"
        )


def _check_takes(generator: Callable[..., object], axis: str | None, has_labels: bool, who: str) -> None:
    """Refuse a callable whose signature says that it cannot be called as it will be."""
    signature = signature_of(generator)
    if signature is None:
        return
    parameters = signature.parameters.values()
    taken = ", ".join(str(parameter).partition(":")[0].partition("=")[0] for parameter in parameters)
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    named = {p.name for p in parameters if p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY}}
    for name, what in ((axis, "bad-axis"), ("labels" if has_labels else None, "generator-labels")):
        if name is not None and name not in named and not anything:
            raise UsageError(f"{who} has no parameter {name!r}; it takes {taken or 'nothing'}", code=what)
    keywords = dict.fromkeys([name for name in (axis, "labels" if has_labels else None) if name is not None])
    try:
        signature.bind(None, **keywords)
    except TypeError as error:
        given = ", ".join(["latents", *(f"{name}=" for name in keywords)])
        raise UsageError(
            f"{who} cannot be called with {given} ({error}); it takes {taken or 'nothing'}",
            code="custom-generator",
        ) from error
