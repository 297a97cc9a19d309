"""Load objects from user code: what a factory in a file or package returns.

A factory is named `path/to/file.py:factory` or `package.module:factory`. A file can import the modules beside it, while it
runs and while its factory is called. Afterwards they are removed from `sys.modules`, so that two files with different helpers
of one name do not mix, and a second run sees what was edited. Helpers must therefore be imported at the top of the file or in
the factory, not later while images are embedded.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import operator
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from genpr.errors import GenprError, UsageError, some
from genpr.runtime import expanded


@contextmanager
def running_file(path: Path) -> Iterator[tuple[ModuleType, dict[str, bytes]]]:
    """Run the file `path`; inside the block, the modules beside it can be imported.

    Yields:
        The module it became, and the sources that were run by module name; those of its helpers once the block ends.
    """
    folder, name = path.parent.resolve(), f"_genpr_custom_{path.stem.replace('.', '_')}"
    sources = {name: path.read_bytes()}
    spec = importlib.util.spec_from_file_location(name, path, loader=SourceFileLoader(name, str(path)))
    assert spec is not None
    hidden = _hide_namesakes(folder)
    before, compiles = set(sys.modules), sys.dont_write_bytecode
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True  # a helper that is edited within a second would not be read again
    importlib.invalidate_caches()
    try:
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        exec(compile(sources[name], str(path), "exec"), vars(module))
        yield module, sources
    finally:
        sys.dont_write_bytecode = compiles
        sys.path.remove(str(folder))
        for own in [key for key in sys.modules.keys() - before if _is_own(sys.modules[key], folder)]:
            file = getattr(sys.modules.pop(own), "__file__", None)
            if own != name and file is not None and Path(file).is_file():
                sources[own] = Path(file).read_bytes()
        sys.modules.update(hidden)


def _is_own(module: ModuleType, folder: Path) -> bool:
    """Whether a module, or a package without `__init__.py`, came from a folder, and is no installed library below it."""
    place = _place(module)
    return place is not None and place.is_relative_to(folder)


def _place(module: ModuleType) -> Path | None:
    """Where a module came from; None for installed ones and code from no file."""
    place = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    if not isinstance(place, str) or {"site-packages", "dist-packages"} & set(Path(place).parts):
        return None
    return Path(place).resolve()


def _hide_namesakes(folder: Path) -> dict[str, ModuleType]:
    """Take modules out of `sys.modules` that have the name of one in `folder` but came from elsewhere, libraries aside."""
    names = {entry.stem for entry in folder.iterdir() if entry.suffix == ".py" or entry.is_dir()}
    names -= {*sys.stdlib_module_names, "__main__", "genpr"}
    namesakes = [key for key in sys.modules if key.partition(".")[0] in names and _place(sys.modules[key])]
    return {key: sys.modules.pop(key) for key in namesakes}


def load_object(
    spec: str, *, kind: str, code: str, call: Callable[[Callable[..., object]], object]
) -> tuple[object, dict[str, bytes]]:
    """What the factory "path/to/file.py:factory" or "package.module:factory" gives, called by `call`, and the sources that ran.

    Errors are of `code`, with `kind` in their message.
    """
    target, _, factory_name = spec.rpartition(":")
    path = expanded(target) if target.endswith(".py") or "/" in target or os.sep in target else None
    if path is not None and not path.is_file():
        raise UsageError(f"{kind} {spec!r}: there is no file {path}", code=code, path=str(path))
    sources: dict[str, bytes] = {}
    try:
        with ExitStack() as stack:
            _add_working_directory()
            if path is not None:
                module, sources = stack.enter_context(running_file(path))
            else:
                module = importlib.import_module(target)
            loaded = call(_find_factory(module, factory_name, f"{kind} {spec!r}", code))
    except GenprError:
        raise
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        raise UsageError(
            f"{kind} {spec!r} could not be loaded: {type(error).__name__}: {text}"
            + ("" if ".py:" in spec else " (a file is given as path/to/file.py:factory)"),
            code=code,
        ) from error
    return loaded, sources


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
    from torch import nn

    try:
        return inspect.signature(function.forward if isinstance(function, nn.Module) else function)
    except (TypeError, ValueError):
        return None


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
