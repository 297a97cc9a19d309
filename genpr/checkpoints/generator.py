"""Generators: load one, draw its images at several settings or of several checkpoints from the same latents.

A generator is a callable `(latents, *, labels=None, **axis)`: latents are float32 (b, d) on the device of the generator, and the
axis is passed by its name, such as `psi=0.7` or `guidance=3.0`. `labels` is passed only if there are labels. An object with
`mapping` and `synthesis`, such as StyleGAN's networks, is one for the axis psi, too. A generator returns one tensor or array of
images, see `to_uint8`.

References:
    Brock, Donahue, Simonyan: Large Scale GAN Training for High Fidelity Natural Image Synthesis. ICLR 2019.
    Karras, Laine, Aila: A Style-Based Generator Architecture for Generative Adversarial Networks. CVPR 2019.
    Kingma, Dhariwal: Glow: Generative Flow with Invertible 1x1 Convolutions. NeurIPS 2018.
    Marchesi: Megapixel Size Image Creation using Generative Adversarial Networks. arXiv:1706.00082, 2017.
"""

from __future__ import annotations

import gc
import hashlib
import math
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from inspect import Parameter
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np
import torch
from torch import Tensor, nn

from genpr.checkpoints.options import SamplerKeywords, SamplerOptions
from genpr.errors import DataError, GenprError, ResourceError, UsageError, similar
from genpr.features.custom import evaluation_mode, networks_of, weights_sha256
from genpr.features.options import takes_options
from genpr.features.user_code import load_object, signature_of, takes_device
from genpr.images.arrays import MAX_OUTSIDE, checked_range, to_levels, widened
from genpr.images.datasets import CountedBatches
from genpr.notices import Notice, notice
from genpr.runtime import (
    USER_ERRORS,
    expand_user,
    is_out_of_memory,
    resolve_device,
    state_guard,
    user_default_device,
)
from genpr.storage import sha256_of_file, tensors_sha256
from genpr.validation import check_count, check_unmasked, entry_point, is_plain, kind_of

Setting = float | int | str | bool
"""A value on the swept axis."""

CHECKPOINT_SUFFIXES = (".pt", ".pth", ".ckpt", ".pkl", ".safetensors", ".bin")

W_RULE = "w-interpolate"
_MEAN_LATENTS, _MEAN_BATCH = 10_000, 1000
_MEAN_SEED = 0x77_2D_6D_65_61_6E  # "w-mean": a seed that no sweep is likely to use

_CODE = "custom-generator"


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
    digest: str | None = None  # of a file, or of the names and contents of all files in a folder
    if path is not None:
        if not path.exists():
            text = f"there is no checkpoint {path}; check the path"
            raise UsageError(text, code="no-checkpoint", path=str(path))
        try:
            if path.is_file():
                digest = sha256_of_file(path)
            else:
                files = (each for each in path.rglob("*") if each.is_file())
                names = sorted(each.relative_to(path).as_posix() for each in files)
                content = [f"{name}\0{sha256_of_file(path / name)}" for name in names]
                digest = hashlib.sha256("\n".join(content).encode()).hexdigest()
        except OSError as error:
            text = f"cannot read the checkpoint {path} ({error.strerror})"
            raise ResourceError(text, code="unreadable", path=str(path)) from error

    def call(factory: Callable[..., object]) -> object:
        given = () if path is None else (str(path),)
        _check_factory(factory, spec, *["checkpoint"] * len(given))
        with generator_errors(f"generator {spec!r}", path, code="checkpoint-failed"):
            return factory(*given, device=resolved) if takes_device(factory) else factory(*given)

    generator, run = load_object(spec, kind="generator", code=_CODE, call=call)
    _check_generator(generator, f"generator {spec!r}")
    if isinstance(generator, nn.Module):
        generator.to(resolved)
    own = next(iter(run), "")  # the file of the factory, whatever its name is
    contents = sorted(("" if name == own else name, source) for name, source in run.items())
    sources = [f"{name}\0{hashlib.sha256(source).hexdigest()}" for name, source in contents]
    code_sha256 = hashlib.sha256("\n".join(sources).encode()).hexdigest() if sources else None
    return LoadedGenerator(generator, spec, path, digest, code_sha256)


def check_factory(spec: str) -> None:
    """Check that a factory can be called with a checkpoint, before there is one."""
    load_object(
        spec, kind="generator", code=_CODE, call=lambda found: _check_factory(found, spec, "checkpoint")
    )


def _check_factory(factory: Callable[..., object], spec: str, *given: str) -> None:
    _check_call(factory, f"generator {spec!r}: the factory", given, ["device"] * takes_device(factory))


def _check_call(
    function: Callable[..., object], who: str, given: Sequence[str], keywords: Sequence[str]
) -> None:
    """Check that a function can be called with some arguments."""
    signature = signature_of(function)
    try:
        if signature is not None:
            signature.bind(*given, **dict.fromkeys(keywords))
    except TypeError as error:
        words = ", ".join([*given, *(f"{name}=" for name in keywords)]) or "no checkpoint"
        text = f"{who} is called with {words}, which does not match its parameters {signature} ({error})"
        raise UsageError(text, code=_CODE) from error


@dataclass(frozen=True, eq=False)
class Sampler:
    """A generator with its latents and the axis along which it is varied; `Sampler.of` creates it.

    Attributes:
        generator: The generator of the user.
        name: Its name in messages.
        latents: float32 (n, d), standard normal, on the CPU; equal at all settings.
        labels: (n,) or (n, c) class labels of the samples, if there are any.
        rule: Truncation rule of psi; None if the axis is passed to the generator by name.
        device: Device of the latents.
        options: Seed, axis, range of float images, batch size.
    """

    generator: object = field(repr=False)
    name: str
    latents: Tensor = field(repr=False)
    labels: Tensor | None = field(repr=False)
    rule: str | None
    device: torch.device
    options: SamplerOptions = field(repr=False)
    _loaded: LoadedGenerator | None = field(repr=False)

    @classmethod
    @takes_options(SamplerOptions)
    @entry_point
    def of(
        cls, generator: object, *, n: int, name: str | None = None, **options: Unpack[SamplerKeywords]
    ) -> Sampler:
        """Prepare to draw n images at any setting of a generator.

        Args:
            generator: A callable `(latents, *, labels=None, **axis)`, or a `LoadedGenerator`.
            n: Images per setting.
            name: Its name in messages.
            **options: The fields of `SamplerOptions`.

        Raises:
            UsageError: An option is impossible, or does not fit the generator.
            ResourceError: CUDA was requested but is not available.

        Example:
            >>> from genpr.demo import ShapesGenerator
            >>> sampler = Sampler.of(ShapesGenerator(), n=10, batch_size=8)
            >>> [tuple(batch.shape) for batch in sampler.images(0.7)]
            [(8, 3, 64, 64), (2, 3, 64, 64)]
        """
        loaded = generator if isinstance(generator, LoadedGenerator) else None
        target: Any = generator if loaded is None else loaded.generator
        own = getattr(target, "__name__", type(target).__name__) if loaded is None else loaded.spec
        name, chosen = name or str(own), _checked(SamplerOptions(**options), n)
        who = f"generator {name!r}"
        _check_generator(target, who)
        rule, styled = chosen.rule, _is_styled(target) and chosen.axis == "psi"
        if not styled and (rule == W_RULE or not callable(target)):
            text = f"{who} cannot be varied along {chosen.axis!r}: {W_RULE} needs `mapping` and `synthesis`, and other axes a callable"
            raise UsageError(text, code="bad-axis")
        dims = (chosen.latent_dim, getattr(target, "z_dim", None), getattr(target, "latent_dim", None))
        dim = next((each for each in dims if isinstance(each, int) and not isinstance(each, bool)), None)
        if dim is None:
            text = f"latent_dim is needed: {who} has no attribute `z_dim` or `latent_dim`"
            raise UsageError(text, code="latent-dim")
        check_count(dim, "latent_dim", minimum=1)
        # On the CPU, so that latents are equal on all devices.
        latents = torch.randn(n, dim, generator=torch.Generator().manual_seed(chosen.seed), device="cpu")
        labels, device = chosen.labels, device_of(target, chosen.device, who)
        rows: Tensor | None = None  # a copy of the labels
        if labels is not None:
            check_unmasked(labels, "labels")
            try:
                rows = torch.as_tensor(labels if isinstance(labels, Tensor) else np.asarray(labels))
            except (TypeError, ValueError, RuntimeError):
                rows = torch.empty(())
            if not is_plain(rows) or rows.ndim not in {1, 2} or len(rows) != n:
                text = f"labels must be numbers (n,) or (n, c) with one row for each of {n} images, not {type(labels).__name__}"
                raise UsageError(text, code="generator-labels")
            rows = rows.detach().cpu().clone()
        if styled:
            rule = rule or W_RULE
            _label_keyword(target.mapping, who, rows)
        else:
            keywords = [chosen.axis] * (rule is None) + ["labels"] * (rows is not None)
            _check_call(target, who, ["latents"], keywords)
        return cls(target, name, latents, rows, rule, device, chosen, loaded)

    def images(self, setting: Setting) -> GeneratedImages:
        """The images at a setting, drawn again in every iteration.

        Raises:
            UsageError: The setting is not a plain value, or is out of the range of the rule.
        """
        if isinstance(setting, np.generic):
            setting = setting.item()
        is_number = isinstance(setting, bool | int | float) and math.isfinite(setting)
        if not is_number and not isinstance(setting, str):
            text = f"{self.options.axis} must be a finite number or a string, not {setting!r}"
            raise UsageError(text, code="bad-setting")
        if self.rule is not None:
            check_psi(self.rule, setting)
        return GeneratedImages(self, setting)

    @property
    def identity(self) -> dict[str, object]:
        """Everything that determines the images, as plain JSON: if it is equal, images at equal settings are equal.

        The networks are hashed in their current state. For a generator without networks, `weights` is None, and only `name`
        (and `checkpoint` and `code` of a loaded generator) identify it.

        Example:
            >>> from genpr.demo import ShapesGenerator
            >>> Sampler.of(ShapesGenerator(), n=10, rule="z-clip").identity["rule"]
            'z-clip'
        """
        chosen, loaded = self.options, self._loaded
        try:
            hashes = [weights_sha256(network) for network in networks_of(self.generator)]
        except ValueError:
            hashes = []
        known = [each for each in hashes if each is not None]
        return {
            "name": self.name,
            "n": len(self.latents),
            "latent_dim": self.latents.shape[1],
            "seed": chosen.seed,
            "axis": chosen.axis,
            "rule": self.rule,
            "labels": None if self.labels is None else tensors_sha256({"labels": self.labels}),
            "image_range": None if chosen.image_range is None else list(chosen.image_range),
            "batch_size": chosen.batch_size,
            "device": self.device.type,  # random streams and rounding differ between types of devices
            "weights": hashlib.sha256(" ".join(known).encode()).hexdigest() if known else None,
            "checkpoint": None if loaded is None else loaded.checkpoint_sha256,
            "code": None if loaded is None else loaded.code_sha256,
        }


@dataclass(eq=False)
class GeneratedImages(CountedBatches):
    """The images of a generator at one setting, as batches uint8 (b, 3, h, w) on the CPU, equal in every pass.

    `clamped` is the fraction of values outside the declared range in the last complete pass; None before the first.
    """

    sampler: Sampler
    setting: Setting
    clamped: float | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self.sampler.latents)

    @property
    def name(self) -> str:
        """The generator and the setting."""
        return f"{self.sampler.name} at {self.sampler.options.axis}={self.setting}"

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Notices of the last complete pass."""
        if self.clamped is None or self.clamped <= MAX_OUTSIDE:
            return ()
        low, high = self.sampler.options.image_range or (0, 255)
        return (notice("clamped", share=f"{self.clamped:.0%}", low=f"{low:g}", high=f"{high:g}"),)

    @property
    def drawn_by(self) -> dict[str, object]:
        """The identity of the sampler, and the setting."""
        return {**self.sampler.identity, "setting": self.setting}

    def __iter__(self) -> Iterator[Tensor]:
        sampler, chosen, step = self.sampler, self.sampler.options, self.sampler.options.batch_size
        checkpoint = None if sampler._loaded is None else sampler._loaded.checkpoint
        generator: Any = sampler.generator
        keywords: dict[str, object] = {} if sampler.rule is not None else {chosen.axis: self.setting}
        if _is_styled(generator) and chosen.axis == "psi":
            generator = _Styled(sampler, float(self.setting) if sampler.rule == W_RULE else 1.0)
        clamped = 0.0
        for batch, start in enumerate(range(0, len(self), step)):
            who = f"generator {self.name!r}, batch {batch},"
            part = slice(start, start + step)
            z = sampler.latents[part]
            if sampler.rule is not None:
                z = RULES[sampler.rule](z, float(self.setting))
            if sampler.labels is not None:
                keywords["labels"] = sampler.labels[part].to(sampler.device)
            # Modes and random states are restored after every batch, for the code that iterates.
            with inference_context(sampler.generator, sampler.device):
                with generator_errors(who, checkpoint):
                    seed_noise(chosen.seed, batch)
                    # A copy, since a generator may work in place.
                    output = generator(z.to(sampler.device, copy=True), **keywords)
                images, share = to_uint8(output, expected=len(z), image_range=chosen.image_range, who=who)
            clamped += share * len(images)
            yield images
        self.clamped = clamped / len(self)


@takes_options(SamplerOptions)
class CheckpointImages(CountedBatches):
    """Images of the generator of a checkpoint: batches uint8 (b, 3, h, w), equal in every pass.

    The generator is loaded when iteration begins and released when it ends, so that only one of many checkpoints is in memory.
    Checkpoints with the same options use the same latents and the same noise. Networks are moved to the device.
    `Evaluator.score` accepts it.

    Args:
        spec: "path/to/file.py:factory" or "package.module:factory"; the factory is called with the checkpoint.
        checkpoint: A file or folder.
        n: Number of images.
        setting: Setting on the axis; None draws without truncation, and passes no axis.
        **options: The fields of `SamplerOptions`.

    Raises:
        UsageError: A number is out of range, or a rule or axis is given without a setting. Iteration also raises the errors of
            `load_generator` and `Sampler.of`, and DataError if the generator fails or changes between passes.

    Example:
        >>> images = CheckpointImages("gan.py:load", "step-1000.pt", n=5000, image_range=(-1, 1))
        >>> len(images), images.name
        (5000, 'step-1000.pt')
    """

    notices: tuple[Notice, ...] = ()
    """Notices of the last pass."""
    drawn_by: Mapping[str, object] | None = None
    """`Sampler.identity` and the setting, once iteration began; None before."""

    def __init__(
        self,
        spec: str,
        checkpoint: str | os.PathLike[str],
        *,
        n: int,
        setting: Setting | None = None,
        **options: Unpack[SamplerKeywords],
    ) -> None:
        chosen = _checked(SamplerOptions(**options), n)
        if setting is None and (chosen.rule is not None or chosen.axis != SamplerOptions.axis):
            text = f"{chosen.rule or chosen.axis} needs a setting, such as psi = 0.7, but found none"
            raise UsageError(text, code="bad-setting")
        if setting is not None and chosen.rule is not None:
            check_psi(chosen.rule, setting)
        self.spec, self.checkpoint, self.n, self.setting = spec, checkpoint, n, setting
        self._options = chosen

    def __len__(self) -> int:
        return self.n

    @property
    def name(self) -> str:
        """The name of the checkpoint."""
        return Path(self.checkpoint).name

    def __iter__(self) -> Iterator[Tensor]:
        options, setting = self._options, self.setting
        if setting is None:  # z-scale at 1 does not change the latents, and passes no axis
            options, setting = replace(options, rule="z-scale"), 1.0
        loaded = load_generator(self.spec, self.checkpoint, device=options.device)
        images = Sampler.of(loaded, n=self.n, **vars(options)).images(setting)
        del loaded
        drawn_by = images.drawn_by
        before = self.drawn_by or drawn_by  # of the last pass, if there was one
        if differing := [key for key in drawn_by if drawn_by[key] != before[key]]:
            raise DataError(
                f"{self.name} has different {' and '.join(differing)} than in the last pass over its images; do not write "
                "to it during a run, and make sure that its factory sets all weights",
                code="checkpoint-changed",
                path=os.fspath(self.checkpoint),
            )
        self.drawn_by = drawn_by
        try:
            yield from images
        finally:
            self.notices = images.notices
            del images
            gc.collect()  # networks with reference cycles stay until the garbage collector runs


def checkpoints_at(
    images_of: Callable[[Path], CheckpointImages], *, pattern: str | None = None
) -> Callable[[Path], CheckpointImages | None]:
    """A `source_of` for `Watcher`: the images of files whose names match `pattern`, or have a common suffix."""

    def source_of(path: Path) -> CheckpointImages | None:
        is_common = path.suffix.lower() in CHECKPOINT_SUFFIXES
        is_named = is_common if pattern is None else fnmatchcase(path.name, pattern)
        return images_of(path) if is_named and path.is_file() else None

    return source_of


def _checked(options: SamplerOptions, n: int) -> SamplerOptions:
    """Options whose numbers, axis and rule are valid."""
    check_count(n, "n", minimum=1)
    check_count(options.batch_size, "batch_size", minimum=1)
    seed, axis = options.seed, options.axis
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= int(seed) < 2**63:
        raise UsageError(f"seed must be an integer of at least 0, not {seed!r}", code="seed")
    if not isinstance(axis, str) or not axis.isidentifier() or axis == "labels":
        text = f"axis must be the name of a parameter, such as psi or guidance, not {axis!r}"
        raise UsageError(text, code="bad-axis")
    if options.rule is not None:
        check_psi(options.rule, 1.0)
        if axis != "psi":
            raise UsageError(f"the rule {options.rule} sets psi, so it cannot vary {axis!r}", code="bad-axis")
    return replace(options, image_range=checked_range(options.image_range))


def _check_generator(generator: object, who: str) -> None:
    if not callable(generator) and not _is_styled(generator):
        needed = "a callable from latents to images, or have `mapping` and `synthesis`"
        raise UsageError(f"{who} must be {needed}, but is a {type(generator).__name__}", code=_CODE)


def _is_styled(generator: object) -> bool:
    return all(callable(getattr(generator, part, None)) for part in ("mapping", "synthesis"))


def _label_keyword(mapping: Callable[..., object], who: str, labels: object) -> str | None:
    """The parameter of a mapping for labels (`c` in StyleGAN); None if it is called without labels."""
    signature = signature_of(mapping)
    parameters = {} if signature is None else signature.parameters
    for name in ("labels", "c"):
        if name in parameters and (labels is not None or parameters[name].default is Parameter.empty):
            return name
    if labels is not None:
        text = f"labels were given, but the mapping of {who} has no parameter `labels` or `c`"
        raise UsageError(text, code="generator-labels")
    return None


class _Styled:
    """One pass over an object with `mapping` and `synthesis`: w' = mean + psi (w - mean), w the output of the mapping.

    The mean is over 10,000 normal latents, the same for each label.
    """

    def __init__(self, sampler: Sampler, psi: float) -> None:
        self._sampler, self._psi, self._means = sampler, psi, dict[tuple[float, ...] | None, Tensor]()
        self._generator = cast("Any", sampler.generator)
        self._who = f"generator {sampler.name!r}"
        self._keyword = _label_keyword(self._generator.mapping, self._who, sampler.labels)

    def __call__(self, latents: Tensor, labels: Tensor | None = None) -> object:
        w = self._mapped(latents, labels)
        if self._psi != 1:
            rows = [None] * len(w) if labels is None else list(labels)
            w = torch.lerp(torch.stack([self._mean(row) for row in rows]).to(w), w, self._psi)
        return self._generator.synthesis(w)

    def _mean(self, label: Tensor | None) -> Tensor:
        key = None if label is None else tuple(label.flatten().tolist())
        if key not in self._means:
            seeded = torch.Generator().manual_seed(_MEAN_SEED)
            latents = torch.randn(_MEAN_LATENTS, self._sampler.latents.shape[1], generator=seeded)
            total: Any = 0
            for z in torch.split(latents, _MEAN_BATCH):
                labels = None if label is None else label.expand(len(z), *label.shape)
                total = total + self._mapped(z.to(self._sampler.device), labels).double().sum(dim=0)
            if not total.isfinite().all():
                text = f"the mapping of {self._who} returns NaN or infinite values; check that training did not diverge"
                raise DataError(text, code="generator-non-finite")
            self._means[key] = total / _MEAN_LATENTS
        return self._means[key]

    def _mapped(self, z: Tensor, labels: Tensor | None) -> Tensor:
        w = self._generator.mapping(z, **({} if self._keyword is None else {self._keyword: labels}))
        if not is_plain(w) or w.ndim not in {2, 3} or len(w) != len(z) or not w.is_floating_point():
            text = f"the mapping of {self._who} must return floats (b, d) or (b, num_ws, d), but returned {kind_of(w)}"
            raise DataError(text, code="generator-output")
        return w


def device_of(generator: object, device: str | torch.device, who: str) -> torch.device:
    """The device of the networks of a generator, which are not moved; without networks, `device`, or the CPU for "auto"."""
    tensors = (t for network in networks_of(generator) for t in (*network.parameters(), *network.buffers()))
    found = next((tensor.device for tensor in tensors), None)
    if device == "auto":
        return found or torch.device("cpu")
    requested = resolve_device(device)
    if found is None or (found.type == requested.type and requested.index in {None, found.index}):
        return found or requested
    text = f"the networks of {who} are on {found}, but device {str(device)!r} was requested; move them first"
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
        with chdir("."):
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


def check_psi(rule: str, psi: object) -> None:
    """Check the name of a rule and that psi is in its range."""
    if rule not in RULES:
        text = f"unknown rule {rule!r}{similar(rule, RULES)}; expected one of {', '.join(RULES)}"
        raise UsageError(text, code="unknown-rule")
    is_number = isinstance(psi, Real) and not isinstance(psi, bool) and math.isfinite(psi)
    if not is_number or (rule != W_RULE and float(psi) < 0):  # type: ignore[arg-type]
        least = "" if rule == W_RULE else " of at least 0"
        text = f"psi must be a finite number{least} for the rule {rule}, not {psi!r}"
        raise UsageError(text, code="bad-psi")


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
    "z-resample": _resample,
    "z-scale": lambda z, psi: z * psi,
    "z-clip": lambda z, psi: z.clamp(-psi, psi),
    W_RULE: lambda z, _psi: z,
}
"""By rule: from latents float32 (n, d) and psi to truncated latents; row i is the same sample at every psi.

- `z-scale`: psi z. Sampling at a reduced temperature (Kingma and Dhariwal 2018).
- `z-clip`: z clamped to [-psi, psi].
- `z-resample`: a normal truncated to [-psi, psi] (Marchesi 2017; the truncation trick of Brock et al. 2019). They draw
  a coordinate again until it lies inside; here it is the inverse distribution function at the fixed uniform u = Phi(z), which
  has the same distribution and pairs the samples over all psi.
- `w-interpolate`: z is unchanged; the output w of a mapping network is interpolated with its mean over normal z (Karras et al.
  2019, appendix B).
"""
