"""Generators of the user's own: a factory in a Python file or an importable package, called with a checkpoint."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from genpr.checkpoints.generation.generator import check_generator
from genpr.errors import DataError, GenprError, ResourceError, UsageError
from genpr.features.run_file import LoadedCode
from genpr.features.user_objects import load_object, signature_of, takes_device
from genpr.runtime import expanded, is_out_of_memory, resolve_device
from genpr.storage import sha256_of_file

_CODE = "custom-generator"


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
            `genpr.checkpoints.generation.generator`). It is called with the path of the checkpoint, as text, or with nothing, and
            with `device` by keyword if it has such a parameter. A file may import modules beside it.
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
        with _blamed_on(path, spec):
            return factory(*given, device=resolved) if takes_device(factory) else factory(*given)

    generator, code = load_object(spec, kind="generator", code=_CODE, call=call)
    check_generator(generator, f"generator {spec!r}")
    if isinstance(generator, nn.Module):
        generator.to(resolved)
    return LoadedGenerator(generator, spec, path, digest, _code_sha256(code))


def check_factory(spec: str) -> None:
    """Refuse a factory that cannot be called with a checkpoint, before there is one.

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
def _blamed_on(checkpoint: Path | None, spec: str) -> Iterator[None]:
    """Blame a checkpoint for whatever a factory raises with it: half a file makes any reader raise anything."""
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
    """Refuse a factory that wants a checkpoint and gets none, or the other way round."""
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


def _code_sha256(code: LoadedCode) -> str | None:
    if not code.sources:
        return None
    parts = [f"{name}\0{hashlib.sha256(source).hexdigest()}" for name, source in sorted(code.sources.items())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
