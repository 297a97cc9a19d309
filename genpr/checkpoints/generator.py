"""Load a generator, truncate its latents, run batches of them through it, and convert its output to uint8 images.

A generator is one of

- a callable `(latents, *, labels=None, **axis)`: latents are float32 (b, d) on the device of the generator, and the axis is
  passed by its name, such as `psi=0.7` or `guidance=3.0`. `labels` is passed only if there are labels;
- an object with `mapping` and `synthesis`, such as StyleGAN's networks: `synthesis(mapping(z))`, where psi is applied to the
  output of the mapping, (b, d) or (b, num_ws, d). Labels are passed to the mapping, as `labels` or `c`.

Both return one tensor or array of images, see `to_uint8`.

References:
    Brock, Donahue, Simonyan: Large Scale GAN Training for High Fidelity Natural Image Synthesis. ICLR 2019.
    Karras, Laine, Aila: A Style-Based Generator Architecture for Generative Adversarial Networks. CVPR 2019.
    Kingma, Dhariwal: Glow: Generative Flow with Invertible 1x1 Convolutions. NeurIPS 2018.
    Marchesi: Megapixel Size Image Creation using Generative Adversarial Networks. arXiv:1706.00082, 2017.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from genpr.checkpoints.options import SamplerOptions
from genpr.errors import DataError, GenprError, ResourceError, UsageError, similar
from genpr.features.custom import evaluation_mode, networks_of, weights_sha256
from genpr.features.user_code import load_object, signature_of, takes_device
from genpr.images.arrays import to_levels, widened
from genpr.runtime import (
    USER_ERRORS,
    expand_user,
    is_out_of_memory,
    resolve_device,
    same_working_folder,
    state_guard,
    user_default_device,
)
from genpr.storage import sha256_of_file
from genpr.validation import check_count, check_unmasked, entry_point, is_plain, kind_of

Setting = float | int | str | bool
"""A value on the swept axis."""

W_RULE = "w-interpolate"
MEAN_LATENTS = 10_000
"""Number of latents for the mean w of each label."""

_CODE = "custom-generator"
_MEAN_SEED = 0x77_2D_6D_65_61_6E  # "w-mean": a seed that no sweep is likely to use
_MEAN_BATCH = 1000


@dataclass(frozen=True)
class LoadedGenerator:
    """A generator with its factory and checkpoint, for `genpr.Sampler.of`.

    `code_sha256` is the hash of the source files that were executed from the folder of the factory; None for a package.
    """

    generator: object
    spec: str
    checkpoint: Path | None
    checkpoint_sha256: str | None
    code_sha256: str | None


@entry_point
def load_generator(
    spec: str, checkpoint: str | os.PathLike[str] | None = None, *, device: str | torch.device = "auto"
) -> LoadedGenerator:
    """Load a generator.

    Args:
        spec: "path/to/file.py:factory" or "package.module:factory". The factory returns a generator (see
            `genpr.checkpoints.generator`). It is called with the path of the checkpoint, as text, or without arguments, and
            with the keyword `device` if it has such a parameter. A file can import modules from its own folder.
        checkpoint: A file or folder, which only the factory reads.
        device: "auto", "cpu", "cuda" or "cuda:N"; a `torch.nn.Module` is moved there.

    Raises:
        UsageError: The factory or checkpoint does not exist, or the factory does not return a generator.
        DataError: The factory fails with this checkpoint ("checkpoint-failed").
        ResourceError: The checkpoint cannot be read, the device is out of memory, or CUDA is not available.

    Example:
        >>> load_generator("genpr.demo:ShapesGenerator").spec
        'genpr.demo:ShapesGenerator'
    """
    resolved = resolve_device(device)
    path = None if checkpoint is None else expand_user(checkpoint)
    digest = None if path is None else _checkpoint_sha256(path)

    def call(factory: Callable[..., object]) -> object:
        given = () if path is None else (str(path),)
        _check_call(factory, spec, n_given=len(given))
        with generator_errors(f"generator {spec!r}", path, code="checkpoint-failed"):
            return factory(*given, device=resolved) if takes_device(factory) else factory(*given)

    generator, run = load_object(spec, kind="generator", code=_CODE, call=call)
    check_generator(generator, f"generator {spec!r}")
    if isinstance(generator, nn.Module):
        generator.to(resolved)
    own = next(iter(run), "")  # the file of the factory, whatever its name is
    contents = sorted(("" if name == own else name, source) for name, source in run.items())
    sources = [f"{name}\0{hashlib.sha256(source).hexdigest()}" for name, source in contents]
    code_sha256 = hashlib.sha256("\n".join(sources).encode()).hexdigest() if sources else None
    return LoadedGenerator(generator, spec, path, digest, code_sha256)


def check_factory(spec: str) -> None:
    """Check that a factory can be called with a checkpoint, before there is one."""
    load_object(spec, kind="generator", code=_CODE, call=lambda found: _check_call(found, spec, n_given=1))


def _checkpoint_sha256(path: Path) -> str:
    """Hex sha256 of a file, or of the names and contents of all files in a folder."""
    if not path.exists():
        raise UsageError(
            f"there is no checkpoint {path}; check the path", code="no-checkpoint", path=str(path)
        )
    try:
        if path.is_file():
            return sha256_of_file(path)
        files = {file.relative_to(path).as_posix(): file for file in path.rglob("*") if file.is_file()}
        content = [f"{name}\0{sha256_of_file(files[name])}" for name in sorted(files)]
    except OSError as error:
        text = f"cannot read the checkpoint {path} ({error.strerror})"
        raise ResourceError(text, code="unreadable", path=str(path)) from error
    return hashlib.sha256("\n".join(content).encode()).hexdigest()


def _check_call(factory: Callable[..., object], spec: str, *, n_given: int) -> None:
    """Check that the signature of a factory accepts its arguments."""
    signature, keywords = signature_of(factory), {"device": None} if takes_device(factory) else {}
    try:
        if signature is not None:
            signature.bind(*[None] * n_given, **keywords)
    except TypeError as error:
        given = "the path of a checkpoint" if n_given else "no checkpoint"
        text = f"generator {spec!r}: the factory is called with {given}, which does not match its parameters ({error})"
        raise UsageError(text, code=_CODE) from error


Draw = Callable[[Tensor, Tensor | None, int], object]
"""From latents, their labels and the index of the first sample to the output of a generator."""
Route = Callable[[Setting], Draw]
"""Starts a pass over all samples at a setting."""


def _begin_callable(generator: Callable[..., object], axis: str | None, setting: Setting) -> Draw:
    """A callable to which the axis is passed by name; `axis` is None if the setting is applied to the latents."""
    keywords: dict[str, object] = {} if axis is None else {axis: setting}
    return lambda latents, labels, _start: generator(
        latents, **keywords, **({} if labels is None else {"labels": labels})
    )


@dataclass
class _StyleRoute:
    """A mapping and a synthesis; if `truncates`, w is interpolated with its mean over normal z, one for each label.

    `labels` are those of all samples, (n,) or (n, c); `label_name` is the mapping's parameter for them.
    """

    generator: Any
    truncates: bool
    latent_dim: int
    labels: Tensor | None
    label_name: str | None
    device: torch.device
    who: str
    _known: tuple[tuple[str | None, ...], Tensor] | None = None

    def __call__(self, setting: Setting) -> Draw:
        psi = float(setting) if self.truncates else 1.0
        distinct, group = [None], None
        if self.labels is not None:
            distinct, group = torch.unique(self.labels, dim=0, return_inverse=True)
        means = None if psi == 1 else self._means(distinct)

        def draw(latents: Tensor, labels: Tensor | None, start: int) -> object:
            w = self._map(latents, labels)
            if means is not None:
                mean = means if group is None else means[group[start : start + len(w)].to(means.device)]
                w = torch.lerp(mean.to(w).expand_as(w), w, psi)
            return self.generator.synthesis(w)

        return draw

    def _means(self, labels: Iterable[Tensor | None]) -> Tensor:
        """Mean w of each label, computed again unless the weights are those of the last pass."""
        weights = network_hashes(self.generator.mapping)
        if self._known is None or not weights or None in weights or self._known[0] != weights:
            self._known = weights, torch.stack([self._mean(label) for label in labels])
        return self._known[1]

    def _mean(self, label: Tensor | None) -> Tensor:
        """Mean w, (d,) or (num_ws, d), over the same latents for each label."""
        latents = draw_latents(MEAN_LATENTS, self.latent_dim, seed=_MEAN_SEED)
        labels = None if label is None else label.expand(_MEAN_BATCH, *label.shape).to(self.device)
        batches = latents.view(-1, _MEAN_BATCH, self.latent_dim)
        total = reduce(torch.add, (self._map(z.to(self.device), labels).double().sum(0) for z in batches))
        if not total.isfinite().all():
            text = f"the mapping of {self.who} returns NaN or infinite values; check that the file is intact and that training did not diverge"
            raise DataError(text, code="generator-non-finite")
        return total / MEAN_LATENTS

    def _map(self, z: Tensor, labels: Tensor | None) -> Tensor:
        w = self.generator.mapping(z, **({} if self.label_name is None else {self.label_name: labels}))
        if not is_plain(w) or w.ndim not in {2, 3} or len(w) != len(z) or not w.is_floating_point():
            text = f"the mapping of {self.who} must return floats (b, d) or (b, num_ws, d) for z {tuple(z.shape)}, but returned {kind_of(w)}"
            raise DataError(text, code="generator-output")
        return w


def _label_parameter(mapping: Callable[..., object], *, needed: bool, who: str) -> str | None:
    """The name of the parameter of the mapping for labels (`c` in StyleGAN); None if it is called without labels."""
    signature = signature_of(mapping)
    parameters = {} if signature is None else signature.parameters
    for name in ("labels", "c"):
        if name in parameters and (needed or parameters[name].default is inspect.Parameter.empty):
            return name
    if needed:
        text = f"labels were given, but the mapping of {who} has no parameter `labels` or `c`"
        raise UsageError(text, code="generator-labels")
    return None


def network_hashes(thing: object) -> tuple[str | None, ...]:
    """Hashes of the weights of the networks of an object; empty if there are none, or one cannot be hashed."""
    try:
        return tuple(weights_sha256(network) for network in networks_of(thing))
    except ValueError:
        return ()


def find_route(
    generator: Any,  # noqa: ANN401 - a user's object
    options: SamplerOptions,
    labels: Tensor | None,
    latent_dim: int,
    device: torch.device,
    who: str,
) -> tuple[Route, str | None]:
    """The calling convention of a generator, and the truncation rule; None if the axis is passed to a callable."""
    axis, rule = options.axis, options.rule
    if not isinstance(axis, str) or not axis.isidentifier() or axis == "labels":
        text = f"axis must be the name of a parameter, such as psi or guidance, not {axis!r}"
        raise UsageError(text, code="bad-axis")
    if rule is not None:
        check_psi(rule, 1.0)
        if axis != "psi":
            raise UsageError(f"the rule {rule} sets psi, so it cannot vary {axis!r}", code="bad-axis")
    if _is_styled(generator) and axis == "psi":
        rule = rule or W_RULE
        label_name = _label_parameter(generator.mapping, needed=labels is not None, who=who)
        return _StyleRoute(generator, rule == W_RULE, latent_dim, labels, label_name, device, who), rule
    if rule == W_RULE or not callable(generator):
        text = f"{who} cannot be varied along {axis!r}: {W_RULE} needs `mapping` and `synthesis`, and other rules need a callable"
        raise UsageError(text, code="bad-axis")
    keywords = dict.fromkeys([axis] * (rule is None) + ["labels"] * (labels is not None))
    signature = signature_of(generator)
    try:
        if signature is not None:
            signature.bind(None, **keywords)
    except TypeError as error:
        given = ", ".join(["latents", *(f"{name}=" for name in keywords)])
        text = f"{who} cannot be called with {given} ({error}); its parameters are {signature}"
        raise UsageError(text, code=_CODE) from error
    return partial(_begin_callable, generator, axis if rule is None else None), rule


def check_generator(generator: object, who: str) -> None:
    """Check that an object can be a generator."""
    if not callable(generator) and not _is_styled(generator):
        raise UsageError(
            f"{who} must be a callable from latents to images, or have `mapping` and `synthesis`, but is a "
            f"{type(generator).__name__}",
            code=_CODE,
        )


def _is_styled(generator: object) -> bool:
    return all(callable(getattr(generator, part, None)) for part in ("mapping", "synthesis"))


def device_of(generator: object, device: str | torch.device, who: str) -> torch.device:
    """The device of the networks of a generator, which are not moved; without networks, `device`, or the CPU for "auto"."""
    tensors = (t for network in networks_of(generator) for t in (*network.parameters(), *network.buffers()))
    found = next(tensors, None)
    if device == "auto":
        return torch.device("cpu") if found is None else found.device
    requested = resolve_device(device)
    if found is None or (
        found.device.type == requested.type and requested.index in {None, found.device.index}
    ):
        return requested if found is None else found.device
    text = f"the networks of {who} are on {found.device}, but device {str(device)!r} was requested; move them first"
    raise UsageError(text, code="generator-device")


@contextmanager
def inference_context(generator: object, device: torch.device) -> Iterator[None]:
    """Run a generator in evaluation mode, in float32 without autocast, and restore all random states."""
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call] # so that its streams are restored too
    with state_guard(), evaluation_mode(generator), user_default_device():
        yield


def seed_noise(seed: int, batch: int) -> None:
    """Seed every random generator for one batch; only inside `inference_context`."""
    digest = hashlib.sha256(f"genpr noise {seed} {batch}".encode()).digest()
    start = int.from_bytes(digest[:8]) >> 1
    random.seed(start)
    np.random.seed(start % 2**32)  # noqa: NPY002
    torch.default_generator.manual_seed(start)  # torch.manual_seed would queue seeds for devices never used
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(start)


@contextmanager
def generator_errors(
    who: str, checkpoint: Path | None = None, *, code: str = "generator-failed"
) -> Iterator[None]:
    """Convert errors of a generator to a DataError if it has a checkpoint, which may be damaged, else to a UsageError.

    Errors of genpr are not converted.
    """
    try:
        with same_working_folder():
            yield
    except GenprError:
        raise
    except USER_ERRORS as error:
        if is_out_of_memory(error):
            text = f"{who} ran out of memory on its device; use a smaller batch_size or another device, or free memory"
            raise ResourceError(text, code="oom") from error
        text = f"{who} failed: {type(error).__name__}: {' '.join(str(error).split())}"
        if checkpoint is None:
            raise UsageError(text, code=code) from error
        text += f"; check that {checkpoint} is intact and belongs to this generator"
        raise DataError(text, code=code, path=str(checkpoint)) from error


def to_uint8(
    output: object, *, expected: int, image_range: Sequence[float] | None, who: str
) -> tuple[Tensor, float]:
    """Images of a generator as uint8 (n, 3, h, w) on the CPU, and the fraction of values outside the declared range.

    The output is (n, c, h, w) or (n, h, w, c) with 1 or 3 channels, uint8 or float. If both layouts fit, the first is assumed for
    tensors and the second for arrays. A single channel is repeated.
    """
    check_unmasked(output, who)
    axes = (3, 1) if isinstance(output, np.ndarray) else (1, 3)
    if isinstance(output, np.ndarray) and output.dtype in (np.uint8, np.float16, np.float32, np.float64):
        output = torch.from_numpy(np.ascontiguousarray(output))
    known = is_plain(output) and (output.dtype == torch.uint8 or output.is_floating_point())
    shape = tuple(output.shape) if is_plain(output) else ()
    axis = next((axis for axis in axes if len(shape) == 4 and shape[axis] in {1, 3}), None)
    if not is_plain(output) or not known or axis is None or 0 in shape[1:] or shape[0] != expected:
        raise DataError(
            f"{who} must return {expected} images, one tensor or array (n, 3, h, w) or (n, h, w, 3), uint8 or float, or "
            f"grayscale with 1 channel, but returned {kind_of(output)}",
            code="generator-output",
        )
    output = widened(output.detach())
    images, clamped = output if axis == 1 else output.permute(0, 3, 1, 2), 0.0
    if images.dtype != torch.uint8:
        if not images.isfinite().all():
            text = f"{who} returned NaN or infinite values; check that the file is intact and that training did not diverge"
            raise DataError(text, code="generator-non-finite")
        if image_range is None:
            low, high = images.amin().item(), images.amax().item()
            raise DataError(
                f"{who} returned floats of values {low:.4g} to {high:.4g}; declare their range, such as "
                "image_range=(-1, 1), or return uint8",
                code="generator-range",
            )
        images, clamped = to_levels(images, image_range)
    # Cloned outside of inference mode, so that callers can use the images like any other tensor.
    with torch.inference_mode(False):
        return images.expand(-1, 3, -1, -1).to("cpu", copy=True).contiguous(), clamped


def draw_latents(n: int, d: int, *, seed: int) -> Tensor:
    """Standard normal latents (n, d), drawn on the CPU, so that they are equal on all devices."""
    check_count(n, "n", minimum=1)
    check_count(d, "latent_dim", minimum=1)
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= int(seed) < 2**63:
        raise UsageError(f"seed must be an integer of at least 0, not {seed!r}", code="seed")
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), device="cpu")


def check_psi(rule: str, psi: object) -> None:
    """Check the name of a rule and that psi is in its range."""
    if rule not in RULES:
        text = f"unknown rule {rule!r}{similar(rule, RULES)}; expected one of {', '.join(RULES)}"
        raise UsageError(text, code="unknown-rule")
    is_number = isinstance(psi, Real) and not isinstance(psi, bool) and math.isfinite(psi)
    if not is_number or (rule != W_RULE and float(psi) < 0):  # type: ignore[arg-type]
        expected = "a finite number" if rule == W_RULE else "a finite number of at least 0"
        raise UsageError(f"psi must be {expected} for the rule {rule}, not {psi!r}", code="bad-psi")


def _resample(z: Tensor, psi: float) -> Tensor:
    """Phi^-1 of Phi(-psi) + u (Phi(psi) - Phi(-psi)) at u = Phi(z), without the cancellation of that formula.

    By symmetry it is the x with erf(|x| / sqrt 2) = erf(|z| / sqrt 2) erf(psi / sqrt 2), with the sign of z. If the product is
    close to one, its complement is more accurate and is inverted instead. The result is exact to a few units in the last place
    of a float64, and equals z in float32 for psi above 10.
    """
    from scipy.special import erf, erfc, erfcinv, erfinv

    magnitude = z.double().abs().numpy() / math.sqrt(2)
    inside, bound = erf(magnitude), erf(psi / math.sqrt(2))
    outside = erfc(magnitude) + erfc(psi / math.sqrt(2)) * inside
    x = torch.from_numpy(math.sqrt(2) * np.where(outside < 0.5, erfcinv(outside), erfinv(inside * bound)))
    return x.clamp(max=psi).copysign(z.double()).float()


RULES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "w-interpolate": lambda z, _psi: z,
    "z-resample": _resample,
    "z-scale": lambda z, psi: z * psi,
    "z-clip": lambda z, psi: z.clamp(-psi, psi),
}
"""By rule: from latents float32 (n, d) and psi to truncated latents; row i is the same sample at every psi.

- `z-scale`: psi z. Sampling at a reduced temperature (Kingma and Dhariwal 2018).
- `z-clip`: z clamped to [-psi, psi].
- `z-resample`: a normal truncated to [-psi, psi] (Marchesi 2017; the truncation trick of Brock et al. 2019). They draw
  a coordinate again until it lies inside; here it is the inverse distribution function at the fixed uniform u = Phi(z), which
  has the same distribution and pairs the samples over all psi.
- `w-interpolate`: z is unchanged; w = f(z) of the mapping network is interpolated with its mean (Karras et al. 2019,
  appendix B): w' = mean + psi (w - mean), with the mean of f(z) over normal z.
"""
