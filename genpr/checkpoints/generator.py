"""Load a generator, run batches of latents through it, and convert its output to uint8 images.

A generator is one of

- a callable `(latents, *, labels=None, **axis)`: latents are float32 (b, d) on the generator's device, and the swept
  axis comes by its name, such as `psi=0.7` or `guidance=3.0`. `labels` is passed only where there are labels;
- an object with `mapping` and `synthesis`, as StyleGAN's networks have: `synthesis(mapping(z))`, where psi is applied
  to what the mapping gives, (b, d) or (b, num_ws, d). Labels go to the mapping, as `labels` or `c`.

Either returns one tensor or array of images, see `to_uint8`.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from genpr.checkpoints.latents import W_RULE, MappingNetwork, check_psi
from genpr.errors import DataError, GenprError, ResourceError, UsageError
from genpr.features.custom import evaluation_mode, networks_of
from genpr.features.user_code import load_object, signature_of, takes_device
from genpr.images.arrays import ImageRange, levels_of
from genpr.runtime import expanded, is_out_of_memory, resolve_device, state_guard
from genpr.storage import sha256_of_file

_CODE = "custom-generator"
Setting = float | int | str | bool
"""A value on the swept axis."""


@dataclass(frozen=True)
class LoadedGenerator:
    """A generator and where it came from; `genpr.Sampler.of` takes it as it is.

    Attributes:
        generator: What the factory returned.
        spec: Where the factory is.
        checkpoint: The file or folder that the factory was given.
        checkpoint_sha256: Hash of its content.
        code_sha256: Hash of the sources that were run from the factory's folder; None for a package.
    """

    generator: object
    spec: str
    checkpoint: Path | None
    checkpoint_sha256: str | None
    code_sha256: str | None


def load_generator(
    spec: str, checkpoint: str | os.PathLike[str] | None = None, *, device: str | torch.device = "auto"
) -> LoadedGenerator:
    """Load a generator.

    Args:
        spec: "path/to/file.py:factory" or "package.module:factory". The factory returns a generator (see
            `genpr.checkpoints.generator`). It is called with the path of the checkpoint, as text, or with nothing, and
            with `device` by keyword if it has such a parameter. A file can import modules from its own folder.
        checkpoint: A file or folder; what is in it is the factory's business.
        device: "auto", "cpu", "cuda" or "cuda:N"; a `torch.nn.Module` is moved there.

    Raises:
        UsageError: There is no such factory or checkpoint, or it does not give a generator.
        DataError: The factory fails with this checkpoint ("checkpoint-failed").
        ResourceError: The checkpoint cannot be read, the device has no memory left, or CUDA is not there.

    Example:
        >>> load_generator("genpr.demo:ShapesGenerator").spec
        'genpr.demo:ShapesGenerator'
    """
    _check_spec(spec)
    resolved = resolve_device(device)
    path = None if checkpoint is None else expanded(checkpoint)
    digest = None if path is None else checkpoint_sha256(path)

    def call(factory: Callable[..., object]) -> object:
        given = () if path is None else (str(path),)
        _check_call(factory, spec, n_given=len(given))
        with _checkpoint_errors(path, spec):
            return factory(*given, device=resolved) if takes_device(factory) else factory(*given)

    generator, run = load_object(spec, kind="generator", code=_CODE, call=call)
    check_generator(generator, f"generator {spec!r}")
    if isinstance(generator, nn.Module):
        generator.to(resolved)
    sources = [f"{name}\0{hashlib.sha256(source).hexdigest()}" for name, source in sorted(run.items())]
    code_sha256 = hashlib.sha256("\n".join(sources).encode()).hexdigest() if sources else None
    return LoadedGenerator(generator, spec, path, digest, code_sha256)


def check_factory(spec: str) -> None:
    """Check that a factory can be called with a checkpoint, before there is one.

    Raises:
        UsageError: There is none, or it takes no checkpoint.
    """
    _check_spec(spec)
    load_object(
        spec, kind="generator", code=_CODE, call=lambda factory: _check_call(factory, spec, n_given=1)
    )


def checkpoint_sha256(path: Path) -> str:
    """Hex sha256 of a file, or of the names and contents of all files in a folder.

    Raises:
        UsageError: There is nothing at that path.
        ResourceError: It cannot be read.
    """
    if not path.exists():
        raise UsageError(f"there is no checkpoint {path}", code="no-checkpoint", path=str(path))
    try:
        if path.is_file():
            return sha256_of_file(path)
        files = {file.relative_to(path).as_posix(): file for file in path.rglob("*") if file.is_file()}
        content = [f"{name}\0{sha256_of_file(files[name])}" for name in sorted(files)]
    except OSError as error:
        raise ResourceError(
            f"cannot read the checkpoint {path} ({error.strerror})", code="unreadable", path=str(path)
        ) from error
    return hashlib.sha256("\n".join(content).encode()).hexdigest()


def _check_spec(spec: str) -> None:
    target, _, factory_name = spec.rpartition(":")
    if not target or not factory_name:
        raise UsageError(
            f"generator {spec!r}: expected path/to/file.py:factory or package.module:factory", code=_CODE
        )


@contextmanager
def _checkpoint_errors(checkpoint: Path | None, spec: str) -> Iterator[None]:
    """Report an error of a factory as one of its checkpoint: a truncated file makes a reader raise anything."""
    try:
        yield
    except GenprError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise ResourceError(
                f"generator {spec!r} has no memory left on its device while it is loaded; free memory, or use another device",
                code="oom",
            ) from error
        if checkpoint is None:
            raise
        text = " ".join(str(error).split())
        raise DataError(
            f"generator {spec!r} could not be loaded from {checkpoint}: {type(error).__name__}: {text}; is the file whole, "
            "and a checkpoint of this generator?",
            code="checkpoint-failed",
            path=str(checkpoint),
        ) from error


def _check_call(factory: Callable[..., object], spec: str, *, n_given: int) -> None:
    """Check that the signature of a factory accepts what it will be given."""
    signature = signature_of(factory)
    if signature is None:
        return
    keywords = {"device": None} if takes_device(factory) else {}
    try:
        signature.bind(*[None] * n_given, **keywords)
    except TypeError as error:
        given = "the path of a checkpoint" if n_given else "no checkpoint"
        raise UsageError(
            f"generator {spec!r}: its factory was given {given}, which does not fit its parameters ({error})",
            code=_CODE,
        ) from error


@dataclass(frozen=True)
class CallableRoute:
    """A callable, given the axis by name; `axis` is None where the latents carry the setting."""

    generator: Callable[..., object]
    axis: str | None

    def prepare(self) -> None:
        """Nothing to prepare."""

    def __call__(self, latents: Tensor, labels: Tensor | None, setting: Setting, _start: int) -> object:
        """What the generator returns for a batch."""
        keywords: dict[str, object] = {} if self.axis is None else {self.axis: setting}
        if labels is not None:
            keywords["labels"] = labels
        return self.generator(latents, **keywords)


@dataclass(frozen=True)
class StyleRoute:
    """A mapping and a synthesis, with truncation in between unless the latents carry the setting."""

    mapping: MappingNetwork
    synthesis: Callable[[Tensor], object]
    truncates: bool

    def prepare(self) -> None:
        """Compute the means of w, before the first batch of a pass."""
        if self.truncates:
            self.mapping.prepare()

    def __call__(self, latents: Tensor, labels: Tensor | None, setting: Setting, start: int) -> object:
        """What the generator returns for the samples from number `start` on."""
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
) -> tuple[CallableRoute | StyleRoute, str | None]:
    """Choose the calling convention of a generator and the truncation rule.

    Returns:
        The route, and the rule: None where the callable is given the axis.

    Raises:
        UsageError: It is neither kind of generator, does not take the axis or labels, or the rule does not go with it.
    """
    if not isinstance(axis, str) or not axis.isidentifier() or axis == "labels":
        raise UsageError(
            f"axis must be the name of a parameter, such as psi or guidance, not {axis!r}", code="bad-axis"
        )
    if rule is not None:
        check_psi(rule, 1.0)
        if axis != "psi":
            raise UsageError(f"the rule {rule} sets psi, so it cannot sweep {axis!r}", code="bad-axis")
    if _is_styled(generator) and axis == "psi":
        rule = rule or W_RULE
        mapping = MappingNetwork(
            generator.mapping, latent_dim=latent_dim, labels=labels, device=device, who=who
        )
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
    route = CallableRoute(generator, axis if rule is None else None)
    _check_signature(generator, route.axis, labels is not None, who)
    return route, rule


def check_generator(generator: object, who: str) -> None:
    """Check that an object can be a generator.

    Raises:
        UsageError: It can neither be called nor has `mapping` and `synthesis`.
    """
    if not callable(generator) and not _is_styled(generator):
        raise UsageError(
            f"{who} must be callable, latents in and images out, or have `mapping` and `synthesis`, but is a "
            f"{type(generator).__name__}",
            code="custom-generator",
        )


def _is_styled(generator: object) -> bool:
    return all(callable(getattr(generator, part, None)) for part in ("mapping", "synthesis"))


def device_of(generator: object, device: str | torch.device, who: str) -> torch.device:
    """The device of the generator's networks, which are never moved; without networks, `device`, or the CPU for "auto".

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
def inference_context(generator: object, device: torch.device) -> Iterator[None]:
    """Run a generator in evaluation mode, in plain float32 without autocast, and restore every random state."""
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
    """Seed every random generator for one batch; only inside `inference_context`."""
    digest = hashlib.sha256(f"genpr noise {seed} {batch}".encode()).digest()
    start = int.from_bytes(digest[:8]) >> 1
    random.seed(start)
    np.random.seed(start % 2**32)  # noqa: NPY002
    torch.default_generator.manual_seed(start)  # torch.manual_seed would queue seeds for devices never used
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(start)


@contextmanager
def generator_errors(who: str) -> Iterator[None]:
    """Turn an error that a generator raises into one line that names the generator.

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


def _check_signature(generator: Callable[..., object], axis: str | None, has_labels: bool, who: str) -> None:
    """Check that the signature of a callable accepts the axis and the labels."""
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


def to_uint8(
    output: object, *, expected: int, image_range: ImageRange | None, who: str
) -> tuple[Tensor, float]:
    """Convert what a generator returned to uint8 images.

    Args:
        output: A tensor or array (n, c, h, w) or (n, h, w, c) with 1 or 3 channels, uint8 or float. Where both layouts
            fit, a tensor is taken as the first and an array as the second. One channel is repeated.
        expected: Images that there should be.
        image_range: What black and white are in float images; uint8 images need none.
        who: Names the generator and its setting in messages.

    Returns:
        uint8 (n, 3, h, w) on the CPU, and the share of values that were more than one level of 255 outside of the range.

    Raises:
        DataError: It is something else, or holds NaN or infinite values.
    """
    images = _channels_first(output, expected, who)
    clamped = 0.0
    if images.dtype != torch.uint8:
        images, clamped = _float_to_uint8(images, image_range, who)
    # Cloned outside of inference mode, so that callers can use the images like any other tensor.
    with torch.inference_mode(False):
        return images.expand(-1, 3, -1, -1).to("cpu", copy=True).contiguous(), clamped


def _channels_first(output: object, expected: int, who: str) -> Tensor:
    if isinstance(output, np.ndarray) and output.dtype in (np.uint8, np.float16, np.float32, np.float64):
        images, axes = torch.from_numpy(np.ascontiguousarray(output)), (3, 1)
    elif isinstance(output, Tensor):
        images, axes = output.detach(), (1, 3)
    else:
        raise _wrong_type(output, who)
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise _wrong_type(output, who)
    axis = next((axis for axis in axes if images.ndim == 4 and images.shape[axis] in {1, 3}), None)
    if axis is None or 0 in images.shape[1:]:
        raise DataError(
            f"{who} must return images (n, 3, h, w) or (n, h, w, 3), or gray ones with 1 channel, but returned shape "
            f"{tuple(images.shape)}",
            code="generator-shape",
        )
    if len(images) != expected:
        raise DataError(
            f"{who} was given {expected} latents and must return as many images, but returned {len(images)}",
            code="generator-count",
        )
    return images if axis == 1 else images.permute(0, 3, 1, 2)


def _wrong_type(output: object, who: str) -> DataError:
    came = type(output).__name__
    if isinstance(output, np.ndarray | Tensor):
        came = f"one of {output.dtype}"
        hint = "uint8 takes 0..255, and floats need a declared image_range"
    elif isinstance(output, tuple | list):
        hint = "return the images alone, as one batch"
    else:
        hint = "return its images alone"
    return DataError(
        f"{who} must return one tensor or array of uint8 or float images, but returned {came}; {hint}",
        code="generator-type",
    )


def _float_to_uint8(images: Tensor, image_range: ImageRange | None, who: str) -> tuple[Tensor, float]:
    """Convert float images, and return the share of values that were clamped."""
    if image_range is None:
        low, high = images.amin().item(), images.amax().item()
        raise DataError(
            f"{who} returned {str(images.dtype).removeprefix('torch.')} images with values {low:.4g} to {high:.4g}; "
            "declare their range, such as image_range=(-1, 1), or return uint8",
            code="generator-range",
        )
    if not images.isfinite().all():
        raise DataError(
            f"{who} returned NaN or infinite values; its weights may be damaged, training has diverged, or it "
            "overflows in low precision",
            code="generator-non-finite",
        )
    return levels_of(images, image_range)
