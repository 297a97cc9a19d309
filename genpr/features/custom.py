"""Extractors of the user's own: a factory in a Python file or an importable package, or an object.

A factory, `path/to/file.py:load` or `package.module:load`, takes no argument, or `device` by keyword, and returns a
`torch.nn.Module`, which is moved to the device, or any other callable that turns uint8 (n, 3, h, w) into float32 (n, dim) and
has an integer attribute `dim`. Optional attributes are `name`, `resize`, `thread_safe` (see `FeatureExtractor`), `prepare` and
`forward`, which let images of mixed sizes share a batch, `prepares_on_device` and `prepares_stacks` (see `PreparingExtractor`).

Features are cached on disk if the object has an attribute `cache_key`: a text that its owner changes whenever the object
computes other features for other reasons than its weights. The weights of a `torch.nn.Module` are part of the key.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from genpr.errors import UsageError
from genpr.features.extractor import (
    DescribedExtractor,
    ExtractorInfo,
    FeatureExtractor,
    PreparingExtractor,
    prepare_batch,
)
from genpr.features.user_code import load_object, takes_device
from genpr.runtime import user_default_device
from genpr.storage import tensors_sha256

_DEEPEST = 3  # a function, the pipeline it captured, the pipeline's attributes
_LARGEST = 100  # entries of a container that may hold networks; longer ones hold data
_CODE = "custom-extractor"


class CustomExtractor:
    """An extractor made from a user's object, `wrapped`."""

    def __init__(self, wrapped: Callable[..., Tensor], *, name: str, dim: int) -> None:
        self.name = name
        self.dim = dim
        self.wrapped = wrapped
        self.thread_safe = getattr(wrapped, "thread_safe", False) is True
        self.prepares_on_device = getattr(wrapped, "prepares_on_device", False) is True
        self.prepares_stacks = self.prepares_on_device and getattr(wrapped, "prepares_stacks", False) is True
        own: Any = wrapped
        if callable(getattr(own, "prepare", None)) and callable(getattr(own, "forward", None)):
            self.prepare: Callable[[Tensor], Tensor] = own.prepare
            self.forward: Callable[[Tensor], Tensor] = user_default_device()(
                own if isinstance(own, nn.Module) else own.forward
            )

    @property
    def device(self) -> torch.device:
        """Where the object wants its input."""
        return extractor_device(self.wrapped)

    @property
    def info(self) -> ExtractorInfo:
        """What the object is now; a network is hashed at each look, since its owner may train it."""
        resize = getattr(self.wrapped, "resize", None)
        weights, key, reason = identity_of(self.wrapped)
        return ExtractorInfo(
            name=self.name,
            dim=self.dim,
            resize=resize if isinstance(resize, str) else "unknown",
            weights_sha256=weights,
            comparable=False,
            cache_key=key,
            uncached_reason=reason,
        )

    def __call__(self, images: Tensor) -> Tensor:
        """Embed uint8 (n, 3, h, w) images as float32 (n, dim)."""
        if isinstance(self, PreparingExtractor):
            return self.forward(prepare_batch(self, images).to(self.device))
        return user_default_device()(self.wrapped)(images.to(self.device))


def identity_of(wrapped: object) -> tuple[str | None, str | None, str | None]:
    """Hash of the weights of a user's object, the key of its features in the cache, and why there is none."""
    weights = None
    try:
        if isinstance(wrapped, nn.Module):
            weights = weights_sha256(wrapped)
    except ValueError as error:
        return None, None, str(error)
    declared = getattr(wrapped, "cache_key", None)
    if declared is None:
        return weights, None, "it has no attribute `cache_key`, a text that says what it computes"
    if not isinstance(declared, str) or not declared:
        text = f"the `cache_key` of a {type(wrapped).__name__} must be a text that is not empty, but is {declared!r}"
        raise UsageError(text, code=_CODE)
    return weights, hashlib.sha256(json.dumps([declared, weights]).encode()).hexdigest(), None


def weights_sha256(network: nn.Module) -> str | None:
    """Hex sha256 of all parameters and buffers, persistent or not; None if there are none; ValueError of lazy ones."""
    tensors = {
        f"{name}.{attribute}": tensor
        for name, module in network.named_modules(remove_duplicate=False)
        for attribute, tensor in (*module._parameters.items(), *module._buffers.items())
        if tensor is not None
    }
    try:
        return tensors_sha256(tensors) if tensors else None
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"a parameter or buffer is a tensor without plain bytes ({error})") from error


def load_custom(spec: str, *, device: torch.device) -> DescribedExtractor:
    """Load "path/to/file.py:factory" or "package.module:factory"."""
    return wrap_extractor(load_user_object(spec, kind="extractor", device=device), name=spec)


def load_user_object(spec: str, *, kind: str, device: torch.device) -> object:
    """What a factory gives, on the device if it is a network; `kind` is for messages."""
    wrapped, _ = load_object(
        spec,
        kind=kind,
        code=f"custom-{kind}",
        call=lambda factory: factory(device=device) if takes_device(factory) else factory(),
    )
    if isinstance(wrapped, nn.Module):
        wrapped.to(device)
    return wrapped


def wrap_extractor(extractor: object, *, name: str | None = None) -> DescribedExtractor:
    """Make any callable with `dim` a described extractor, called `name` or as its class unless it has a `name`."""
    # `info` of a custom extractor is not read here: that hashes its weights.
    if isinstance(extractor, CustomExtractor) or isinstance(getattr(extractor, "info", None), ExtractorInfo):
        return extractor  # type: ignore[return-value]
    name = name or type(extractor).__name__
    if not callable(extractor):
        kind = type(extractor).__name__
        text = f"extractor {name!r} must be callable, images in and features out, but is a {kind}"
        raise UsageError(text, code=_CODE)
    dim = getattr(extractor, "dim", None)
    if isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
        what = "has none" if dim is None else f"is {dim!r}"
        text = f"extractor {name!r} needs an integer attribute `dim`, its features per image; it {what}"
        raise UsageError(text, code=_CODE)
    own_name = getattr(extractor, "name", None)
    return CustomExtractor(extractor, name=own_name if isinstance(own_name, str) else name, dim=dim)


def extractor_info(extractor: FeatureExtractor) -> ExtractorInfo:
    """What is known about an extractor; a custom one is hashed again at each call, since its owner may have trained it."""
    return wrap_extractor(extractor).info


def extractor_device(extractor: object) -> torch.device:
    """Where an extractor wants its input: its `device`, else where its parameters are, else the CPU."""
    device = getattr(extractor, "device", None)
    if isinstance(device, str | torch.device):
        return torch.device(device)
    if isinstance(extractor, nn.Module):
        for tensor in (*extractor.parameters(), *extractor.buffers()):
            return tensor.device
    return torch.device("cpu")


@contextmanager
def evaluation_mode(owner: object) -> Iterator[None]:
    """Put the networks of an object into evaluation mode, and torch into inference mode; restore both, flag by flag."""
    with ExitStack() as restored:
        for network in networks_of(owner):
            for module in network.modules():
                restored.callback(setattr, module, "training", module.training)
            network.eval()
        with torch.inference_mode():
            yield


def networks_of(owner: object) -> list[nn.Module]:
    """The networks that an object runs: in its attributes, or what a function captured or names, a few levels deep."""
    found: dict[int, nn.Module] = {}
    things: dict[int, object] = {id(owner): owner}
    for _ in range(_DEEPEST + 1):
        parts: dict[int, object] = {}
        for key, thing in things.items():
            if isinstance(thing, nn.Module):
                found[key] = thing
            else:
                for part in _parts_of(thing):
                    parts[id(part)] = part
        things = parts
    return list(found.values())


def _parts_of(thing: object) -> Iterable[object]:
    if isinstance(thing, type | ModuleType):
        return ()
    if isinstance(thing, MethodType):
        return (thing.__self__,)
    if isinstance(thing, partial):
        return (thing.func, *thing.args, *thing.keywords.values())
    if isinstance(thing, FunctionType):
        captured: list[object] = [*(thing.__defaults__ or ())]
        with suppress(ValueError):  # a variable that has no value yet
            names = inspect.getclosurevars(thing)
            captured += [*names.nonlocals.values(), *names.globals.values()]
        return captured
    if isinstance(thing, list | tuple | dict):
        entries = thing.values() if isinstance(thing, dict) else thing
        return tuple(entries) if len(thing) <= _LARGEST else ()
    return tuple(getattr(thing, "__dict__", {}).values())
