"""Custom extractors: a factory in a Python file or an importable package, or an object.

A factory, `path/to/file.py:load` or `package.module:load`, takes no argument, or `device` by keyword. It returns a
`torch.nn.Module`, which is moved to the device, or any other callable that turns uint8 (n, 3, h, w) into float32 (n, dim) and
has an integer attribute `dim`. Optional attributes are `name`, `resize`, `thread_safe` (see `FeatureExtractor`), `prepare` and
`forward`, which let a batch have images of different sizes, `prepares_on_device` and `prepares_stacks` (see
`PreparingExtractor`).

Features are cached on disk if the object has an attribute `cache_key`: a text that must change whenever the features change
for another reason than the weights. The weights of a `torch.nn.Module` are part of the key.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from genpr.errors import FeatureError, UsageError
from genpr.features.extractor import (
    DescribedExtractor,
    ExtractorInfo,
    FeatureExtractor,
    PreparingExtractor,
    prepare_batch,
)
from genpr.features.user_code import load_object, takes_device
from genpr.runtime import plain_settings, resolve_device, user_default_device, user_errors
from genpr.storage import tensors_sha256
from genpr.validation import check_integers, entry_point, is_plain, kind_of

_MAX_DEPTH = 3  # a function, the pipeline it captured, the pipeline's attributes
_MAX_ENTRIES = 100  # entries; longer containers are assumed to be data without networks
_CODE = "custom-extractor"
_OWN_ATTRIBUTES = frozenset(vars(nn.Module()))


class CustomExtractor:
    """A user's object, `wrapped`, as an extractor."""

    def __init__(self, wrapped: Callable[..., Tensor], *, name: str, dim: int) -> None:
        self.name = name
        self.dim = dim
        self.wrapped = wrapped
        self.thread_safe = getattr(wrapped, "thread_safe", False) is True
        self.prepares_on_device = getattr(wrapped, "prepares_on_device", False) is True
        self.prepares_stacks = self.prepares_on_device and getattr(wrapped, "prepares_stacks", False) is True
        own: Any = wrapped
        self._call = _isolated(wrapped)
        if callable(getattr(own, "prepare", None)) and callable(getattr(own, "forward", None)):
            self._call = _isolated(own if isinstance(own, nn.Module) else own.forward)
            self.prepare: Callable[[Tensor], Tensor] = own.prepare
            self.forward = self._checked

    @property
    def device(self) -> torch.device:
        """The device of the input."""
        return extractor_device(self.wrapped)

    @property
    def info(self) -> ExtractorInfo:
        """The current identity; a network is hashed at each access, since it may be trained."""
        resize = getattr(self.wrapped, "resize", None)
        rule = resize if isinstance(resize, str) else "unknown"
        return _identified(self.wrapped, ExtractorInfo(self.name, self.dim, rule, None, comparable=False))

    def __call__(self, images: Tensor) -> Tensor:
        """Embed uint8 (n, 3, h, w) images as float32 (n, dim)."""
        with user_errors(f"extractor {self.name} on {kind_of(images)}", "extractor-failed"):
            batch = prepare_batch(self, images) if isinstance(self, PreparingExtractor) else images
            return self._checked(batch.to(self.device))

    def _checked(self, batch: Tensor) -> Tensor:
        """The features (n, dim) of a batch, real numbers of any type."""
        output, expected = self._call(batch), (len(batch), self.dim)
        if not is_plain(output) or output.shape != expected or output.is_complex():
            text = f"extractor {self.name} must return a dense torch.Tensor {expected} of real numbers for this batch, but returned {kind_of(output)}"
            raise FeatureError(text, code="feature-shape")
        check_integers(output, f"the output of extractor {self.name}")
        return output


def _isolated(call: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Code of the user, which sees their default device, and whose changes of torch's settings end with it."""
    return plain_settings()(user_default_device()(call))


@user_errors("the extractor", _CODE)
def _identified(wrapped: object, info: ExtractorInfo) -> ExtractorInfo:
    """`info` with the hash of the weights of a user's object, and its cache key or the reason if there is no key."""
    weights = None
    try:
        if isinstance(wrapped, nn.Module):
            weights = weights_sha256(wrapped)
    except ValueError as error:
        return replace(info, uncached_reason=str(error))
    declared = getattr(wrapped, "cache_key", None)
    if declared is None:
        reason = "it has no attribute `cache_key`, a text that identifies its features"
        return replace(info, weights_sha256=weights, uncached_reason=reason)
    if not isinstance(declared, str) or not declared:
        text = f"the `cache_key` of a {type(wrapped).__name__} must be a non-empty text, found {declared!r}"
        raise UsageError(text, code=_CODE)
    key = hashlib.sha256(json.dumps([declared, weights]).encode()).hexdigest()
    return replace(info, weights_sha256=weights, cache_key=key)


def weights_sha256(network: nn.Module) -> str | None:
    """Hex sha256 of all parameters and buffers, persistent or not; None if there are none; ValueError for lazy or packed ones."""
    tensors: dict[str, Tensor] = {}
    for place, root in _roots(network):
        for name, module in root.named_modules(prefix=place, remove_duplicate=False):
            # Not that of TorchScript.
            if any(type(value) is torch.ScriptObject for value in vars(module).values()):
                raise ValueError("a module has packed weights, as after quantization")
            if isinstance(module, torch.jit.ScriptModule) and not module._c.hasattr("training"):
                raise ValueError("a frozen TorchScript module has its weights in its code")
            own = (*module._parameters.items(), *module._buffers.items())
            tensors |= {f"{name}.{attribute}": tensor for attribute, tensor in own if tensor is not None}
    try:
        return tensors_sha256(tensors) if tensors else None
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"a parameter or buffer is a tensor without plain bytes ({error})") from error


def _roots(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """A network, and those in lists and dictionaries of its modules, which torch does not register, with their places."""
    seen, waiting = set[int](), [("", network)]
    while waiting:
        place, root = waiting.pop()
        yield place, root
        for name, module in root.named_modules(prefix=place):
            if id(module) not in seen:
                seen.add(id(module))
                own = {key: value for key, value in vars(module).items() if key not in _OWN_ATTRIBUTES}
                waiting += [(at, each) for at, each in _networks_in(own, name) if id(each) not in seen]


def _networks_in(container: object, place: str, depth: int = _MAX_DEPTH) -> Iterator[tuple[str, nn.Module]]:
    if isinstance(container, nn.Module):
        yield place, container
    elif isinstance(container, list | tuple | dict) and len(container) <= _MAX_ENTRIES and depth:
        for key, value in container.items() if isinstance(container, dict) else enumerate(container):
            yield from _networks_in(value, f"{place}.{key}", depth - 1)


@entry_point
def load_custom(spec: str, *, device: torch.device) -> DescribedExtractor:
    """Load "path/to/file.py:factory" or "package.module:factory"."""
    return wrap_extractor(load_user_object(spec, kind="extractor", device=device), name=spec)


def load_user_object(spec: str, *, kind: str, device: torch.device) -> object:
    """The object of a factory, moved to the device if it is a network; `kind` is for messages."""
    wrapped, _ = load_object(
        spec,
        kind=kind,
        code=f"custom-{kind}",
        call=lambda factory: factory(device=device) if takes_device(factory) else factory(),
    )
    if isinstance(wrapped, nn.Module):
        wrapped.to(device)
    return wrapped


@user_errors("the extractor", _CODE)
def wrap_extractor(extractor: object, *, name: str | None = None) -> DescribedExtractor:
    """Wrap a callable with `dim` as an extractor; its name is its attribute `name`, or `name`, or that of its class."""
    # `info` of a custom extractor is not read here: that hashes its weights.
    if isinstance(extractor, CustomExtractor) or isinstance(getattr(extractor, "info", None), ExtractorInfo):
        return extractor  # type: ignore[return-value]
    name = name or type(extractor).__name__
    if not callable(extractor):
        kind = type(extractor).__name__
        advice = f"; use genpr.load_extractor({extractor!r:.60})" if isinstance(extractor, str) else ""
        text = f"extractor {name!r} must be a callable from images to features, found {kind}{advice}"
        raise UsageError(text, code=_CODE)
    dim = getattr(extractor, "dim", None)
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer) or dim < 1:
        what = "none" if dim is None else repr(dim)
        text = f"extractor {name!r} needs an integer attribute `dim`, the number of features per image, found {what}"
        raise UsageError(text, code=_CODE)
    own_name = getattr(extractor, "name", None)
    return CustomExtractor(extractor, name=own_name if isinstance(own_name, str) else name, dim=int(dim))


def extractor_info(extractor: FeatureExtractor) -> ExtractorInfo:
    """The identity of an extractor; a custom one is hashed at each call, since it may have been trained."""
    return wrap_extractor(extractor).info


@user_errors("the extractor", _CODE)
def extractor_device(extractor: object) -> torch.device:
    """The device of the input of an extractor: its `device`, else that of its parameters, else the CPU."""
    device = getattr(extractor, "device", None)
    if isinstance(device, str) or (isinstance(device, torch.device) and device.type == "cuda"):
        return resolve_device(device)
    if isinstance(device, torch.device):
        return device
    if isinstance(extractor, nn.Module):
        for tensor in (*extractor.parameters(), *extractor.buffers()):
            return tensor.device
    return torch.device("cpu")


@contextmanager
def evaluation_mode(owner: object) -> Iterator[None]:
    """Set the networks of an object to evaluation mode and torch to inference mode; restore every flag afterwards."""
    with ExitStack() as restored:
        for network in (root for each in networks_of(owner) for _, root in _roots(each)):
            if any(tensor.is_meta for tensor in (*network.parameters(), *network.buffers())):
                text = (
                    "a network has tensors on the meta device, which have no values; load its weights first"
                )
                raise UsageError(text, code="meta-device")
            # Frozen TorchScript has no training mode.
            modules = [module for module in network.modules() if hasattr(module, "training")]
            for module in modules:
                restored.callback(setattr, module, "training", module.training)
            try:
                network.eval()
            except NotImplementedError:  # a module of torch.export
                for module in modules:
                    module.training = False
        with torch.inference_mode():
            yield


def networks_of(owner: object) -> list[nn.Module]:
    """The networks in the attributes of an object, or in the closure and globals of a function, a few levels deep."""
    networks: dict[int, nn.Module] = {}
    things: dict[int, object] = {id(owner): owner}
    for _ in range(_MAX_DEPTH + 1):
        networks |= {key: thing for key, thing in things.items() if isinstance(thing, nn.Module)}
        others = [thing for key, thing in things.items() if key not in networks]
        things = {id(part): part for thing in others for part in _parts_of(thing)}
    return list(networks.values())


def _parts_of(thing: object) -> Iterable[object]:
    if isinstance(thing, type | ModuleType):
        return ()
    if isinstance(thing, MethodType):
        return (thing.__self__,)
    if isinstance(thing, partial):
        return (thing.func, *thing.args, *thing.keywords.values())
    if isinstance(thing, FunctionType):
        captured: list[object] = [*(thing.__defaults__ or ())]
        with suppress(ValueError):  # a variable without a value
            names = inspect.getclosurevars(thing)
            captured += [*names.nonlocals.values(), *names.globals.values()]
        return captured
    if isinstance(thing, list | tuple | dict):
        entries = thing.values() if isinstance(thing, dict) else thing
        return tuple(entries) if len(thing) <= _MAX_ENTRIES else ()
    return tuple(getattr(thing, "__dict__", {}).values())


class Detector(Protocol):
    """A detector of objects; `names` are its classes."""

    names: tuple[str, ...]

    def __call__(self, images: Sequence[Tensor]) -> Tensor:
        """The highest score of each class in each image, (n, classes) float from 0 to 1, of uint8 (3, h, w) of any sizes."""
        ...


class DetectingExtractor:
    """A detector as an extractor, with a column for each class.

    Use batches of one image: detectors pad the images of a batch to one size, which changes scores.
    """

    @user_errors("the classifier", "custom-detector")
    def __init__(self, detector: Detector, *, name: str) -> None:
        declared: object = getattr(detector, "names", None)
        names = tuple(declared) if isinstance(declared, Sequence) and not isinstance(declared, str) else ()
        is_of_texts = all(isinstance(each, str) and each.strip() for each in names)
        if not callable(detector) or not names or not is_of_texts or len(set(names)) < len(names):
            text = f"{name!r} must be a detector (callable, with distinct `names` of classes) or encoders of images and texts"
            raise UsageError(text, code="custom-detector")
        self.name, self.names, self.dim, self.detector = name, names, len(names), detector

    @property
    def info(self) -> ExtractorInfo:
        """The current identity; there are no comparable published numbers."""
        info = ExtractorInfo(self.name, self.dim, "the detector's own", None, comparable=False)
        info = _identified(self.detector, info)
        key = info.cache_key
        if key is not None:
            key = hashlib.sha256("\n".join(["detector", key, *self.names]).encode()).hexdigest()
        weights = getattr(self.detector, "weights_sha256", info.weights_sha256)
        return replace(info, weights_sha256=weights, cache_key=key)

    def __call__(self, images: Tensor) -> Tensor:
        """Scores of uint8 (n, 3, h, w) images, float32 (n, classes)."""
        scores = torch.as_tensor(self.detector(list(images)))
        if tuple(scores.shape) != (len(images), self.dim) or not scores.is_floating_point():
            came = f"{scores.dtype} {tuple(scores.shape)} for {len(images)} images"
            text = f"detector {self.name} must return {self.dim} floats per image, one for each of its names, not {came}"
            raise FeatureError(text, code="feature-shape")
        return scores.float()
