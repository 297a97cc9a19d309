"""Which code an object runs: its modules and all that they import, by content or by installed version.

Imports are read from the source itself, those inside functions included. Modules of the standard library and
of installed distributions are identified by version, all others by the sha256 of their file.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import inspect
import platform
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from genpr.features.run_file import LoadedCode, is_installed, module_origin


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
