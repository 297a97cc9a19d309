"""A hash over everything that decides what a custom network computes, so that its features can be cached.

It covers the source of all code involved (`genpr.features.code_closure`), every parameter and buffer, and the
values of all other attributes of every submodule. What cannot be hashed (a lambda, an arbitrary object) makes
the whole uncovered: then nothing is cached, and the reason is said.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType

import numpy as np
import torch
from torch import Tensor, nn

from genpr.features.code_closure import (
    UncoveredError,
    describe_code,
    find_module,
    functions_of,
    installed_version,
)
from genpr.features.run_file import LoadedCode
from genpr.features.user_objects import captured
from genpr.storage import tensors_sha256

_PLAIN = {type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.layout, torch.memory_format}
_NOT_ATTRIBUTES = {"training", "_parameters", "_buffers", "_modules"}  # evaluation mode is enforced


class UncoveredNetworkError(UncoveredError):
    """A network that is not among the submodules, so that its weights are not covered."""


def fingerprint(model: nn.Module, weights: str | None, loaded: LoadedCode) -> str:
    """Hex sha256 of the function that `model` computes in evaluation mode.

    Args:
        model: The network.
        weights: Its `weights_sha256`.
        loaded: The code its factory ran, as far as it is no longer in `sys.modules`.

    Raises:
        UncoveredError: Something that may decide the output cannot be hashed.
    """
    values = _Values(loaded)
    submodules = list(model.named_modules(remove_duplicate=False))
    classes = {cls for _, module in submodules for cls in type(module).__mro__ if cls is not object}
    state = [_describe_submodule(values, name, module) for name, module in submodules]
    closures = [values.of_closures(cls, known=classes) for cls in sorted(classes, key=_class_name)]
    own = {cls.__module__ for cls in classes} | loaded.sources.keys()
    description = {
        "model": repr(model),
        "state": state,
        "weights": weights,
        "closures": closures,
        "globals": {name: values.of_globals(name) for name in sorted(own)},
        "code": describe_code(own | values.modules, loaded),
    }
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def weights_sha256(model: nn.Module) -> str | None:
    """Hex sha256 of all parameters and buffers, persistent or not; None if there are none.

    Raises:
        UncoveredError: One of them has no bytes, such as a lazy parameter.
    """
    tensors = {
        f"{name}.{attribute}": tensor
        for name, module in model.named_modules(remove_duplicate=False)
        for attribute, tensor in (*module._parameters.items(), *module._buffers.items())
        if tensor is not None
    }
    return _tensors_sha256(tensors, "a parameter or buffer") if tensors else None


def _describe_submodule(values: _Values, name: str, module: nn.Module) -> object:
    attributes = {
        attribute: values.of(value, f"{name}.{attribute}".lstrip("."))
        for attribute, value in vars(module).items()
        if attribute not in _NOT_ATTRIBUTES
    }
    return [name, _class_name(type(module)), attributes]


class _Values:
    """Turns values into JSON that is equal exactly when they are, and notes the modules they refer to."""

    def __init__(self, loaded: LoadedCode) -> None:
        self.modules: set[str] = set()
        self._loaded = loaded

    def of(self, value: object, where: str) -> object:
        """Describe `value`; `where` names it for people.

        Raises:
            UncoveredError: It is of a kind whose content cannot be known.
        """
        kind = type(value)
        if kind in _PLAIN:
            return f"{kind.__name__} {value!r}"
        if isinstance(value, torch.device):
            return "device"  # where, not what; features of CPU and GPU are kept apart elsewhere
        if isinstance(value, Tensor):
            return ["tensor", _tensors_sha256({"": value}, where)]
        if isinstance(value, np.ndarray | np.generic):
            return ["array", _array_sha256(np.asarray(value), where)]
        if isinstance(value, FunctionType | BuiltinFunctionType | type):
            return ["named", *self._by_name(value, where)]
        if isinstance(value, enum.Enum):
            return ["enum", *self._by_name(kind, where), value.name]
        if isinstance(value, PurePath):
            return ["path", str(value)]
        parts = _parts(value)
        if _is_network(value) or any(map(_is_network, getattr(value, "__dict__", {}).values())):
            raise UncoveredNetworkError(f"{where} holds a network that is not a submodule of the extractor")
        if parts is None:
            raise UncoveredError(f"{where} is a {kind.__name__}, whose content cannot be hashed")
        described = [self.of(part, where) for part in parts]
        if isinstance(value, set | frozenset):
            described.sort(key=json.dumps)
        return [self._by_name(kind, where), described]

    def of_globals(self, module_name: str) -> dict[str, object]:
        """The global values of a user's module, as far as they can be described: a file may have set them.

        Raises:
            UncoveredNetworkError: A network lies among them, which the extractor may call.
        """
        module = find_module(module_name, self._loaded)
        if module is None or installed_version(module_name, self._loaded) is not None:
            return {}
        described = {}
        for name, value in list(vars(module).items()):
            if name.startswith("__") or isinstance(value, FunctionType | BuiltinFunctionType | type):
                continue
            try:
                described[name] = self.of(value, f"{module_name}.{name}")
            except UncoveredNetworkError:
                raise
            except UncoveredError:  # loggers, caches and the like; every module has some
                continue
        return described

    def of_closures(self, cls: type, known: set[type]) -> list[object]:
        """What the methods of a user's class carry along from the function it was defined in."""
        if installed_version(cls.__module__, self._loaded) is not None:
            return []
        described: list[object] = [_class_name(cls)]
        for function in functions_of(cls):
            self.modules.add(function.__module__)
            for name, value in captured(function):
                if not isinstance(value, type) or value not in known:
                    described.append([name, self.of(value, f"{name} in {function.__qualname__}")])
        return described

    def _by_name(self, value: FunctionType | BuiltinFunctionType | type, where: str) -> tuple[str, str]:
        """Module and name of a function or class, which its module's source then identifies."""
        # torch.relu and its like say neither module nor a usable qualified name.
        module_name, name = (
            value.__module__ or "torch",
            value.__qualname__.removeprefix("_VariableFunctionsClass."),
        )
        found: object = find_module(module_name, self._loaded)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not value:
            raise UncoveredError(f"{where} is {value.__qualname__}, which cannot be found by its name")
        self.modules.add(module_name)
        return module_name, name


def _parts(value: object) -> list[object] | None:
    """The values a container is made of; None if it is not one."""
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, dict):
        return [part for item in value.items() for part in item]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if dataclasses.is_dataclass(value):
        return [part for item in vars(value).items() for part in item] if hasattr(value, "__dict__") else None
    return None


def _is_network(value: object) -> bool:
    return isinstance(value, nn.Module)


def _class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _tensors_sha256(tensors: dict[str, Tensor], where: str) -> str:
    try:
        return tensors_sha256(tensors)
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
        raise UncoveredError(f"{where} is a tensor without plain bytes ({error})") from error


def _array_sha256(array: np.ndarray, where: str) -> str:
    if array.dtype.hasobject:
        raise UncoveredError(f"{where} is an array of Python objects")
    header = f"{array.dtype.str} {array.shape}".encode()
    return hashlib.sha256(header + np.ascontiguousarray(array).tobytes()).hexdigest()
