"""Load objects from user code: what a factory in a file or package returns.

A file can import the modules beside it, while it runs and while its factory is called, but not later. Then they are removed
from `sys.modules`, so that two files with different helpers of one name do not mix, and a second run sees what was edited.
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

from genpr.errors import GenprError, UsageError, some
from genpr.runtime import expand_user, user_default_device


@contextmanager
def running_file(path: Path) -> Iterator[tuple[ModuleType, dict[str, bytes]]]:
    """The module that a file becomes, and the sources that ran by module name, those of helpers once the block ends."""
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
            place = _place_in(folder, sys.modules[own])
            if place is not None:
                del sys.modules[own]
                if own != name and place.is_file():
                    sources[own] = place.read_bytes()


def _place_in(folder: Path, module: ModuleType) -> Path | None:
    """Where a module, or a package without `__init__.py`, came from, if that is a folder, and no library installed in it."""
    place = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    if not isinstance(place, str) or {"site-packages", "dist-packages"} & set(Path(place).parts):
        return None
    path = Path(place).resolve()
    return path if path.is_relative_to(folder) else None


def load_object(
    spec: str, *, kind: str, code: str, call: Callable[[Callable[..., object]], object]
) -> tuple[object, dict[str, bytes]]:
    """What a factory gives, called by `call`, and the sources that ran; errors are of `code`, with `kind` in their message."""
    target, _, factory_name = spec.rpartition(":")
    path = expand_user(target) if target.endswith(".py") or "/" in target or os.sep in target else None
    if path is not None and not path.is_file():
        raise UsageError(f"{kind} {spec!r}: there is no file {path}", code=code, path=str(path))
    sources: dict[str, bytes] = {}
    try:
        with ExitStack() as stack:
            if str(Path.cwd()) not in sys.path:
                sys.path.append(str(Path.cwd()))  # behind all others: a file called `torch.py` is not torch
            importlib.invalidate_caches()
            if path is not None:
                module, sources = stack.enter_context(running_file(path))
            else:
                module = importlib.import_module(target)
            stack.enter_context(user_default_device())
            loaded = call(_find_factory(module, factory_name, f"{kind} {spec!r}", code))
    except GenprError:
        raise
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        hint = "" if ".py:" in spec else " (a file is given as path/to/file.py:factory)"
        raise UsageError(f"{kind} {spec!r} could not be loaded: {reason}{hint}", code=code) from error
    return loaded, sources


def takes_device(factory: Callable[..., object]) -> bool:
    """Whether a factory has a parameter `device`."""
    signature = signature_of(factory)
    return signature is not None and "device" in signature.parameters


def signature_of(function: Callable[..., object]) -> inspect.Signature | None:
    """What a callable, or the `forward` of a network, takes; None for built-in ones that do not say."""
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
        known = some(functions, 10) or "nothing to call"
        raise UsageError(f"{who}: there is no {name!r} in it; it has {known}", code=code) from error
    if not callable(factory):
        kind = type(factory).__name__
        raise UsageError(f"{who}: {name!r} is a {kind}, but a factory must be callable", code=code)
    return factory
