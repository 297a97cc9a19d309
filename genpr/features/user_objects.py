"""Objects of the user's own: what a factory in a file or package gives, and the networks that an object runs.

A factory is named `path/to/file.py:factory` or `package.module:factory`. A file may import modules beside it (see
`genpr.features.run_file`).
"""

from __future__ import annotations

import importlib
import inspect
import operator
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType, ModuleType

import torch
from torch import nn

from genpr.errors import GenprError, UsageError, some
from genpr.features.run_file import LoadedCode, running_file
from genpr.runtime import expanded

_DEEPEST = 3  # a function, the pipeline it captured, the pipeline's attributes
_LARGEST = 100  # entries of a container that may hold networks; longer ones hold data


def load_object(
    spec: str, *, kind: str, code: str, call: Callable[[Callable[..., object]], object]
) -> tuple[object, LoadedCode]:
    """What the factory "path/to/file.py:factory" or "package.module:factory" gives.

    Args:
        spec: Where the factory is.
        kind: What it should give, for messages: "extractor", "generator".
        code: Of the errors.
        call: Calls the factory; anything that it raises is told as an error of the factory.

    Returns:
        The object, and the code that was run for it from a folder.

    Raises:
        UsageError: There is no such file, module or factory, or it fails.
    """
    target, _, factory_name = spec.rpartition(":")
    is_path = target.endswith(".py") or "/" in target or os.sep in target
    loaded = LoadedCode()
    with ExitStack() as stack, _blamed_on(spec, kind, code):
        _add_working_directory()
        if is_path:
            path = expanded(target)
            if not path.is_file():
                raise UsageError(f"{kind} {spec!r}: there is no file {path}", code=code, path=str(path))
            module, loaded = stack.enter_context(running_file(path))
        else:
            module = importlib.import_module(target)
        return call(_find_factory(module, factory_name, f"{kind} {spec!r}", code)), loaded


def _add_working_directory() -> None:
    """Find modules in the working directory, too, after all others: a file that happens to be called `torch.py` is not torch.

    It stays there, since the user's code may import modules when it is called.
    """
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    importlib.invalidate_caches()


def takes_device(factory: Callable[..., object]) -> bool:
    """Whether a factory has a parameter `device`."""
    signature = signature_of(factory)
    return signature is not None and "device" in signature.parameters


def signature_of(function: Callable[..., object]) -> inspect.Signature | None:
    """What a callable, or the `forward` of a network, takes; None for built-in ones that do not say."""
    try:
        return inspect.signature(function.forward if isinstance(function, nn.Module) else function)
    except (TypeError, ValueError):
        return None


@contextmanager
def evaluation_mode(owner: object) -> Iterator[None]:
    """Put the networks of an object into evaluation mode, and torch into inference mode; undo both afterwards.

    The training flag of every submodule is restored, since a callback may run in the middle of training.
    """
    networks = networks_of(owner)
    flags = [(module, module.training) for network in networks for module in network.modules()]
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
        if isinstance(thing, nn.Module):
            found.append(thing)
        elif depth < _DEEPEST:
            pending.extend((part, depth + 1) for part in _parts(thing))
    return found


def captured(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Name and value of what a function carries along from the one it was defined in."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _parts(thing: object) -> Iterable[object]:
    if isinstance(thing, MethodType):
        return [thing.__self__]
    if isinstance(thing, partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, FunctionType):
        named = [thing.__globals__[name] for name in thing.__code__.co_names if name in thing.__globals__]
        return [*(value for _, value in captured(thing)), *(thing.__defaults__ or ()), *named]
    if isinstance(thing, list | tuple | dict):
        values = thing.values() if isinstance(thing, dict) else thing
        return values if len(thing) <= _LARGEST else ()
    if isinstance(thing, type | ModuleType):
        return ()
    return list(getattr(thing, "__dict__", {}).values())


@contextmanager
def _blamed_on(spec: str, kind: str, code: str) -> Iterator[None]:
    """Turn whatever a user's code raises into one line about the object `spec`."""
    try:
        yield
    except GenprError:
        raise
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        raise UsageError(
            f"{kind} {spec!r} could not be loaded: {type(error).__name__}: {text}"
            + ("" if ".py:" in spec else " (a file is given as path/to/file.py:factory)"),
            code=code,
        ) from error


def _find_factory(module: ModuleType, name: str, who: str, code: str) -> Callable[..., object]:
    try:
        factory: object = operator.attrgetter(name)(module)
    except AttributeError as error:
        functions = sorted(
            key
            for key, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", None) == module.__name__
        )
        raise UsageError(
            f"{who}: there is no {name!r} in it; it defines {some(functions, 10) or 'nothing to call'}",
            code=code,
        ) from error
    if not callable(factory):
        raise UsageError(
            f"{who}: {name!r} is a {type(factory).__name__}, but a factory must be callable", code=code
        )
    return factory
