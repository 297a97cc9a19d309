"""Extractors of the user's own: a factory in a Python file or an importable package, or an object.

    genpr score REAL FAKE --extractor path/to/file.py:load
    genpr score REAL FAKE --extractor package.module:load

A factory takes no argument, or `device` by keyword, and returns a `torch.nn.Module` or any other callable that
turns uint8 (n, 3, h, w) into float32 (n, dim) and has an integer attribute `dim`. `name` and `resize` (two
strings) and `thread_safe` (see `FeatureExtractor`) are optional, as are `prepare` and `forward`, which let images of
mixed sizes share a batch, and `prepares_on_device` (see `PreparingExtractor`). A file may import modules beside it (see
`genpr.features.user_code`); a network is moved to the device.

Features are cached on disk if the object has an attribute `cache_key`: a text that its owner changes whenever the object
computes other features for other reasons than its weights. The weights of a `torch.nn.Module` are hashed, and are part of
the key.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import FunctionType, MethodType, ModuleType

import numpy as np
import torch
from torch import Tensor, nn

from genpr.errors import FeatureError, UsageError
from genpr.features.extractor import (
    DescribedExtractor,
    ExtractorInfo,
    FeatureExtractor,
    TextEncoderInfo,
    TextProgress,
    prepare_batch,
)
from genpr.features.user_code import load_object, takes_device
from genpr.runtime import state_guard
from genpr.storage import tensors_sha256

_DEEPEST = 3  # a function, the pipeline it captured, the pipeline's attributes
_LARGEST = 100  # entries of a container that may hold networks; longer ones hold data
_CODE = "custom-extractor"


class CustomExtractor:
    """An extractor made from a user's object.

    Attributes:
        name: The object's `name`, or what the user called it.
        dim: Length of a feature vector.
        wrapped: The object itself.
    """

    def __init__(self, wrapped: Callable[..., Tensor], *, name: str, dim: int) -> None:
        self.name = name
        self.dim = dim
        self.wrapped = wrapped
        self.thread_safe = getattr(wrapped, "thread_safe", False) is True
        self.prepares_on_device = getattr(wrapped, "prepares_on_device", False) is True

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
        return self.wrapped(images.to(self.device))


class PreparingCustomExtractor(CustomExtractor):
    """An extractor made from a user's object that resizes each image by itself."""

    def __call__(self, images: Tensor) -> Tensor:
        """Embed uint8 (n, 3, h, w) images as float32 (n, dim)."""
        return self.forward(prepare_batch(self, images).to(self.device))

    def prepare(self, image: Tensor) -> Tensor:
        """Turn one uint8 (3, h, w) image into a float32 (3, s, s) input, where it is."""
        prepared: Tensor = self.wrapped.prepare(image)  # type: ignore[attr-defined]
        return prepared

    def forward(self, batch: Tensor) -> Tensor:
        """Embed prepared inputs, on the extractor's device, as float32 (n, dim)."""
        run = self.wrapped if isinstance(self.wrapped, nn.Module) else self.wrapped.forward  # type: ignore[attr-defined]
        features: Tensor = run(batch)
        return features


def identity_of(wrapped: object) -> tuple[str | None, str | None, str | None]:
    """Hash of the weights of a user's object, the key of its features in the cache, and why there is none.

    Raises:
        UsageError: Its `cache_key` is no text ("custom-extractor").
    """
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
        raise UsageError(
            f"the `cache_key` of a {type(wrapped).__name__} must be a text that is not empty, but is {declared!r}",
            code=_CODE,
        )
    return weights, hashlib.sha256(json.dumps([declared, weights]).encode()).hexdigest(), None


def weights_sha256(network: nn.Module) -> str | None:
    """Hex sha256 of all parameters and buffers, persistent or not; None if there are none.

    Raises:
        ValueError: One of them has no bytes, such as a lazy parameter.
    """
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
    """Load "path/to/file.py:factory" or "package.module:factory".

    Raises:
        UsageError: There is no such file, module or factory, or it does not give an extractor.
    """
    return wrap_extractor(load_user_object(spec, kind="extractor", device=device), name=spec)


def load_user_object(spec: str, *, kind: str, device: torch.device) -> object:
    """What a factory gives, on the device if it is a network; `kind` is for messages.

    Raises:
        UsageError: There is no such file, module or factory, or it fails.
    """
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
    """Make any callable with `dim` an extractor that is fully described; what already is one comes back.

    The object itself is not changed, moved or copied.

    Args:
        extractor: The object.
        name: What to call it if it has no `name`; default: its class.

    Raises:
        UsageError: It is not callable, or has no `dim`.
    """
    # `info` of a custom extractor is not read here: that hashes its weights.
    if isinstance(extractor, CustomExtractor) or isinstance(getattr(extractor, "info", None), ExtractorInfo):
        return extractor  # type: ignore[return-value]
    name = name or type(extractor).__name__
    if not callable(extractor):
        raise UsageError(
            f"extractor {name!r} must be callable, images in and features out, but is a "
            f"{type(extractor).__name__}",
            code=_CODE,
        )
    dim = getattr(extractor, "dim", None)
    if isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
        raise UsageError(
            f"extractor {name!r} needs an integer attribute `dim`, the length of its feature vectors, but it "
            f"{'has none' if dim is None else f'is {dim!r}'}",
            code=_CODE,
        )
    own_name = getattr(extractor, "name", None)
    prepares = all(callable(getattr(extractor, method, None)) for method in ("prepare", "forward"))
    kind = PreparingCustomExtractor if prepares else CustomExtractor
    return kind(extractor, name=own_name if isinstance(own_name, str) else name, dim=dim)


def extractor_info(extractor: FeatureExtractor) -> ExtractorInfo:
    """What is known about an extractor: its own `info`, or what inspecting a custom one shows.

    A custom extractor is hashed again at each call, since its owner may have trained it in between.

    Raises:
        UsageError: It does not follow the `FeatureExtractor` protocol.
    """
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
    """Put the networks of an object into evaluation mode, and torch into inference mode; undo both afterwards.

    The training flag of every submodule is restored, since a callback may run in the middle of training.
    """
    networks = networks_of(owner)
    flags: list[tuple[nn.Module, bool]] = []
    for network in networks:
        flags += [(module, module.training) for module in network.modules()]
    try:
        for network in networks:
            network.eval()
        with torch.inference_mode():
            yield
    finally:
        for module, training in flags:
            module.training = training


def networks_of(owner: object) -> list[nn.Module]:
    """The networks that an object runs, as far as can be seen, nearest first.

    An object that is no network is searched in its attributes, a function in what it captured and in the globals
    that it names, a bound method in its object, and all of these in turn, a few levels deep.
    """
    found: list[nn.Module] = []
    seen: set[int] = set()
    pending: deque[tuple[object, int]] = deque([(owner, 0)])
    while pending:
        thing, depth = pending.popleft()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        parts: Iterable[object] = ()
        if isinstance(thing, nn.Module):
            found.append(thing)
        elif depth == _DEEPEST or isinstance(thing, type | ModuleType):
            continue
        elif isinstance(thing, MethodType):
            parts = [thing.__self__]
        elif isinstance(thing, partial):
            parts = [thing.func, *thing.args, *thing.keywords.values()]
        elif isinstance(thing, FunctionType):
            parts = (*_captured(thing), *(thing.__defaults__ or ()))
        elif isinstance(thing, list | tuple | dict):
            if len(thing) <= _LARGEST:
                parts = thing.values() if isinstance(thing, dict) else thing
        else:
            parts = getattr(thing, "__dict__", {}).values()
        for part in tuple(parts):
            pending.append((part, depth + 1))
    return found


def _captured(function: FunctionType) -> list[object]:
    """What a function carries along from the one it was defined in, and the globals that it names."""
    names, variables = function.__code__.co_names, function.__globals__
    found = [variables[name] for name in names if name in variables]
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # a variable that has no value yet
            found.append(cell.cell_contents)
    return found


_TEXT_BATCH = 64  # texts in one call: a user's own need not split them


class CustomTextEncoder:
    """The `encode_text` of a user's object.

    Args:
        extractor: The object as an extractor.
        owner: The object itself.
    """

    def __init__(self, extractor: FeatureExtractor, owner: object) -> None:
        self.name = extractor.name
        self.dim = extractor.dim
        self._extractor = extractor
        self._owner = owner

    @property
    def info(self) -> TextEncoderInfo:
        """What the object says of itself; a network is hashed at each look."""
        images = extractor_info(self._extractor)
        own = {key: getattr(self._owner, key, None) for key in ("tokenizer", "context", "logit_scale")}
        return TextEncoderInfo(
            name=self.name,
            dim=self.dim,
            tokenizer=own["tokenizer"] if isinstance(own["tokenizer"], str) else "unknown",
            context=own["context"] if isinstance(own["context"], int) else None,
            weights_sha256=images.weights_sha256,
            comparable=False,
            logit_scale=float(own["logit_scale"]) if isinstance(own["logit_scale"], int | float) else None,
        )

    def encode_text(self, texts: Sequence[str], /, *, progress: TextProgress | None = None) -> Tensor:
        """Embed n texts as float32 (n, dim) on the CPU.

        Raises:
            FeatureError: The object gives something else ("feature-shape", "non-finite").
        """
        rows = [torch.empty(0, self.dim)]
        with evaluation_mode(self._owner), state_guard():
            for start in range(0, len(texts), _TEXT_BATCH):
                rows.append(self._checked(list(texts[start : start + _TEXT_BATCH])))
                if progress is not None:
                    progress(min(start + _TEXT_BATCH, len(texts)), len(texts))
        return torch.cat(rows)

    def truncated(self, texts: Sequence[str], /) -> list[bool] | None:
        """What the object's own `truncated` says; None if it has none."""
        function = getattr(self._owner, "truncated", None)
        if not callable(function):
            return None
        is_cut = [bool(each) for each in function(list(texts))]
        if len(is_cut) != len(texts):
            raise FeatureError(
                f"truncated of {self.name} must say yes or no for each of {len(texts)} texts, but said {len(is_cut)} times",
                code="feature-shape",
            )
        return is_cut

    def _checked(self, texts: list[str]) -> Tensor:
        try:
            given = self._owner.encode_text(texts)  # type: ignore[attr-defined]
        except Exception as error:
            error.add_note(f"encode_text of {self.name} failed")
            raise
        vectors = torch.as_tensor(given) if isinstance(given, Tensor | np.ndarray) else None
        expected = (len(texts), self.dim)
        if vectors is None or vectors.shape != expected or not vectors.is_floating_point():
            came = type(given).__name__ if vectors is None else f"{vectors.dtype} {tuple(vectors.shape)}"
            raise FeatureError(
                f"encode_text of {self.name} must return one row of {self.dim} floats per text, {expected} for these "
                f"texts, but returned {came}",
                code="feature-shape",
            )
        if not vectors.isfinite().all():
            row = int((~vectors.isfinite().all(dim=1)).nonzero()[0])
            raise FeatureError(
                f"encode_text of {self.name} gives NaN or infinity for {texts[row][:60]!r}", code="non-finite"
            )
        return vectors.detach().float().cpu()
