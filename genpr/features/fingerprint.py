"""A hash over everything that decides what a custom network computes, so that its features can be cached.

It covers the source of all code involved, every parameter and buffer, and the values of all other attributes of every
submodule. Imports are read from the source itself, those inside functions included. Modules of the standard library and
of installed distributions are identified by version, all others by the sha256 of their file. If anything cannot be
hashed (a lambda, an arbitrary object), nothing is cached, and the notice says why.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import hashlib
import importlib.metadata
import importlib.util
import inspect
import json
import platform
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

import numpy as np
import torch
from torch import Tensor, nn

from genpr.features.user_code import LoadedCode, captured, is_installed, module_origin
from genpr.storage import tensors_sha256


class UncoveredError(Exception):
    """Something decides the output and cannot be hashed; the message says what."""


def describe_code(names: Iterable[str], loaded: LoadedCode) -> dict[str, str]:
    """Identify the modules `names` and everything they import.

    Args:
        names: Modules to start from.
        loaded: Modules that are no longer in `sys.modules`.

    Returns:
        By module name, a version or the sha256 of its file.

    Raises:
        UncoveredError: A module has no source, or is not what its source says.
    """
    found = {"python": platform.python_version()}
    pending = set(names)
    while pending:
        name = pending.pop()
        version = installed_version(name, loaded)
        if version is not None:
            found[name.partition(".")[0]] = version
            continue
        module = find_module(name, loaded)
        source, package = _unimported(name, loaded) if module is None else _imported(module, loaded)
        found[name] = hashlib.sha256(source).hexdigest()
        parents = {name.rpartition(".")[0]} - {""}  # its __init__ runs first
        pending |= {*_imports(source, package), *parents} - found.keys()
    return found


def find_module(name: str, loaded: LoadedCode) -> ModuleType | None:
    """The imported module called `name`, if there is one."""
    return loaded.modules.get(name) or sys.modules.get(name)


def installed_version(name: str, loaded: LoadedCode) -> str | None:
    """Version of the standard library or distribution a module belongs to; None if it is the user's own."""
    top = name.partition(".")[0]
    if top in loaded.modules:
        return None
    if top in sys.stdlib_module_names:
        return "standard library"
    distributions = _distributions().get(top)
    if not distributions:
        return None
    module = sys.modules.get(top)
    origin = _spec_origin(top) if module is None else module_origin(module)
    if origin is None or not is_installed(origin):
        return None  # an editable install, for one, changes without changing its version
    return ", ".join(f"{one} {_version(one)}" for one in sorted(set(distributions)))


def functions_of(namespace: ModuleType | type) -> Iterator[FunctionType]:
    """The functions defined in a module or class, without their decorators."""
    for value in list(vars(namespace).values()):
        bare = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if isinstance(bare, FunctionType):
            unwrapped = inspect.unwrap(bare)
            if isinstance(unwrapped, FunctionType):
                yield unwrapped


@lru_cache(maxsize=1)
def _distributions() -> dict[str, list[str]]:
    return {name: list(found) for name, found in importlib.metadata.packages_distributions().items()}


@lru_cache
def _version(distribution: str) -> str:
    return importlib.metadata.version(distribution)


def _spec_origin(name: str) -> Path | None:
    spec = _spec(name, LoadedCode())
    places = (spec.origin, *(spec.submodule_search_locations or ())) if spec else ()
    return next((Path(place) for place in places if place), None)


def _imported(module: ModuleType, loaded: LoadedCode) -> tuple[bytes, str]:
    """Source and package of a module in memory; no source for packages without an __init__.py."""
    name, package = module.__name__, module.__package__ or ""
    if name in loaded.sources:
        source = loaded.sources[name]
    else:
        origin = module_origin(module)
        if origin is None:
            raise UncoveredError(f"module {name} came from no file (an interactive session?)")
        if origin.is_dir():
            return b"", package
        source = origin.read_bytes()
        if origin.suffix != ".py":
            return source, package
    _check_current(module, source)
    return source, package


def _unimported(name: str, loaded: LoadedCode) -> tuple[bytes, str]:
    """The same for a module that code would import later; empty if there is none, as for names inside a module."""
    spec = _spec(name, loaded)
    if spec is None or spec.origin is None or not spec.has_location:
        return b"", ""
    return Path(spec.origin).read_bytes(), spec.parent or ""


def _spec(name: str, loaded: LoadedCode) -> ModuleSpec | None:
    """Where `name` would be imported from, without importing its package."""
    parent = name.rpartition(".")[0]
    try:
        if not parent:
            return importlib.util.find_spec(name)
        module = find_module(parent, loaded)
        if module is None:
            above = _spec(parent, loaded)
            path = above.submodule_search_locations if above else None
        else:
            path = getattr(module, "__path__", None)
        return PathFinder.find_spec(name, path) if path else None
    except (ImportError, ValueError, AttributeError):
        return None


def _check_current(module: ModuleType, source: bytes) -> None:
    """Functions in memory must be those of the file, which may have been edited after it was imported."""
    try:
        written = set(_nested(compile(source, module.__name__, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError) as error:
        raise UncoveredError(f"the source of module {module.__name__} does not compile any more") from error
    owners: list[ModuleType | type] = [module]
    owners += [value for value in list(vars(module).values()) if isinstance(value, type)]
    for owner in owners:
        for function in functions_of(owner):
            code = function.__code__
            generated = code.co_filename.startswith("<")  # methods of dataclasses
            if function.__module__ == module.__name__ and not generated and code not in written:
                raise UncoveredError(
                    f"{module.__name__}.{function.__qualname__} is not what its file says; was it edited or "
                    "replaced after the import?"
                )


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _imports(source: bytes, package: str) -> Iterator[str]:
    """Every module that `source` may import; names inside modules come along and turn out to have no file."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # an extension module
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                if package.count(".") + 1 < node.level or not package:
                    continue  # beyond the top package: it fails when it runs
                base = importlib.util.resolve_name("." * node.level + base, package)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


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
