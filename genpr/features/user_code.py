"""Load objects from user code: the return value of a factory in a file or package.

A file can import modules from its folder while it runs and while its factory is called, but not later. Afterwards they are
removed from `sys.modules`, so that helpers of the same name in different folders do not conflict, and edits take effect.
"""

from __future__ import annotations

import importlib
import inspect
import operator
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType

from genpr.errors import UsageError, some
from genpr.runtime import expand_user, user_default_device, user_errors


@contextmanager
def running_file(path: Path) -> Iterator[tuple[ModuleType, dict[str, bytes]]]:
    """Run a file as a module; yield it and the executed sources by module name, with helpers added at the end."""
    folder, name = path.parent.resolve(), f"_genpr_custom_{path.stem.replace('.', '_')}"
    sources = {name: path.read_bytes()}
    module = ModuleType(name)
    module.__file__ = str(path)
    before = set(sys.modules)
    sys.modules[name] = module
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        exec(compile(sources[name], str(path), "exec"), vars(module))
        yield module, sources
    finally:
        sys.path.remove(str(folder))
        for own in sys.modules.keys() - before:
            file = _file_in(folder, sys.modules[own])
            if file is not None:
                del sys.modules[own]
                if own != name and file.is_file():
                    sources[own] = file.read_bytes()


def _file_in(folder: Path, module: ModuleType) -> Path | None:
    """The file of a module, or the folder of a namespace package, if it is in `folder` and not an installed library."""
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    if not isinstance(file, str) or {"site-packages", "dist-packages"} & set(Path(file).parts):
        return None
    path = Path(file).resolve()
    return path if path.is_relative_to(folder) else None


def load_object(
    spec: str, *, kind: str, code: str, call: Callable[[Callable[..., object]], object]
) -> tuple[object, dict[str, bytes]]:
    """The object that `call` gets from a factory, and the executed sources; errors have `code`, and `kind` in their message."""
    target, _, factory_name = spec.rpartition(":")
    path = expand_user(target) if target.endswith(".py") or "/" in target or os.sep in target else None
    if path is not None and not path.is_file():
        raise UsageError(f"{kind} {spec!r}: there is no file {path}", code=code, path=str(path))
    sources: dict[str, bytes] = {}
    hint = "" if ".py:" in spec else " (expected path/to/file.py:factory for a file)"
    with user_errors(f"{kind} {spec!r}{hint}: loading", code), ExitStack() as stack:
        if str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))  # last, so that a file `torch.py` does not shadow torch
        importlib.invalidate_caches()
        if path is not None:
            module, sources = stack.enter_context(running_file(path))
        else:
            module = importlib.import_module(target)
        stack.enter_context(user_default_device())
        loaded = call(_find_factory(module, factory_name, f"{kind} {spec!r}", code))
    return loaded, sources


def takes_device(factory: Callable[..., object]) -> bool:
    """Whether a factory has a parameter `device`."""
    signature = signature_of(factory)
    return signature is not None and "device" in signature.parameters


def signature_of(function: Callable[..., object]) -> inspect.Signature | None:
    """The signature of a callable, or of the `forward` of a network; None for built-in functions without one."""
    from torch import nn

    try:
        return inspect.signature(function.forward if isinstance(function, nn.Module) else function)
    except (TypeError, ValueError):
        return None


def _find_factory(module: ModuleType, name: str, who: str, code: str) -> Callable[..., object]:
    try:
        factory: object = operator.attrgetter(name)(module)
    except AttributeError as error:
        functions = sorted(key for key, value in vars(module).items() if callable(value))
        known = some(functions, 10) or "no callables"
        raise UsageError(f"{who}: the module has no {name!r}; it has {known}", code=code) from error
    if not callable(factory):
        kind = type(factory).__name__
        raise UsageError(f"{who}: {name!r} is a {kind}, but a factory must be callable", code=code)
    return factory
