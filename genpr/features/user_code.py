"""Load objects from user code: what a factory in a file or package returns.

A factory is named `path/to/file.py:factory` or `package.module:factory`. A file can import the modules beside it.
`sys.path` is not changed for that: while the file runs, and while its factory is called, an import finder offers the
modules and packages of its folder. Afterwards they are removed from `sys.modules`, so that two files with different
helpers of one name do not mix, and a second run sees what was edited. Helpers must therefore be imported at the top of
the file or in the factory, not later while images are embedded.

Sources are compiled from the very bytes that are recorded; no `.pyc` is read or written.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import operator
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import FileFinder, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from genpr.errors import GenprError, UsageError, some
from genpr.runtime import expanded


@contextmanager
def running_file(path: Path) -> Iterator[tuple[ModuleType, dict[str, bytes]]]:
    """Run the file `path`; inside the block, the modules beside it can be imported.

    Yields:
        The module it became, and the sources of all modules that were run, which grow until the block ends.
    """
    folder, sources = path.parent.resolve(), dict[str, bytes]()
    finder = _FolderFinder(folder, sources)
    hidden = _hide_namesakes(folder)
    sys.meta_path.insert(0, finder)
    try:
        yield finder.run(path), sources
    finally:
        sys.meta_path.remove(finder)
        for name in finder.found:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)


class _FolderFinder(MetaPathFinder):
    """Finds modules in one folder and its packages, ahead of everything that is not imported yet."""

    def __init__(self, folder: Path, sources: dict[str, bytes]) -> None:
        self.found: set[str] = set()
        self._folder, self._sources = folder, sources

    def run(self, path: Path) -> ModuleType:
        name = f"_genpr_custom_{path.stem.replace('.', '_')}"
        loader = _RecordingLoader(name, str(path), sources=self._sources)
        spec = ModuleSpec(name, loader, origin=str(path))
        spec.has_location = True
        module = importlib.util.module_from_spec(spec)
        self.found.add(name)
        sys.modules[name] = module  # dataclasses and others look their module up while it runs
        loader.exec_module(module)
        return module

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        places = [str(self._folder)] if path is None else [p for p in path if self._holds(p)]
        loader = partial(_RecordingLoader, sources=self._sources)
        for place in places:
            spec = FileFinder(place, (loader, [".py"])).find_spec(fullname)  # type: ignore[arg-type]
            # A folder without __init__.py counts only where nothing else has that name, as in Python itself.
            if spec is not None and (spec.loader or PathFinder.find_spec(fullname, path) is None):
                self.found.add(fullname)
                return spec
        return None

    def _holds(self, place: str) -> bool:
        return Path(place).resolve().is_relative_to(self._folder)


class _RecordingLoader(SourceFileLoader):
    """Compiles a source file as it is now, and records what it ran."""

    def __init__(self, fullname: str, path: str, *, sources: dict[str, bytes]) -> None:
        super().__init__(fullname, path)
        self._sources = sources

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = self._sources[fullname] = self.get_data(path)
        code: CodeType = self.source_to_code(source, path)
        return code


def _own_origin(module: ModuleType) -> Path | None:
    """The file of a module, or the folder of a package without one; None for installed ones and code from no file."""
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    if not isinstance(file, str) or not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts):
        return None
    return Path(file).resolve()


def _hide_namesakes(folder: Path) -> dict[str, ModuleType]:
    """Take modules out of `sys.modules` that have the name of one in `folder` but came from elsewhere.

    Libraries stay: a folder called `torch` beside the file does not replace torch.
    """
    names = {entry.stem for entry in folder.iterdir() if entry.suffix == ".py" or entry.is_dir()}
    hidden = {}
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        if top not in names or top in sys.stdlib_module_names or top in {"__main__", "genpr"}:
            continue
        origin = _own_origin(module)
        if origin is not None and not origin.is_relative_to(folder):
            hidden[name] = sys.modules.pop(name)
    return hidden


def load_object(
    spec: str, *, kind: str, code: str, call: Callable[[Callable[..., object]], object]
) -> tuple[object, dict[str, bytes]]:
    """What the factory "path/to/file.py:factory" or "package.module:factory" gives.

    Args:
        spec: Where the factory is.
        kind: What it should give, for messages: "extractor", "generator".
        code: Of the errors.
        call: Calls the factory; anything that it raises becomes an error that names the factory.

    Returns:
        The object, and the sources of the modules that were run for it from a folder.

    Raises:
        UsageError: There is no such file, module or factory, or it fails.
    """
    target, _, factory_name = spec.rpartition(":")
    is_path = target.endswith(".py") or "/" in target or os.sep in target
    sources: dict[str, bytes] = {}
    with ExitStack() as stack, _naming(spec, kind, code):
        _add_working_directory()
        if is_path:
            path = expanded(target)
            if not path.is_file():
                raise UsageError(f"{kind} {spec!r}: there is no file {path}", code=code, path=str(path))
            module, sources = stack.enter_context(running_file(path))
        else:
            module = importlib.import_module(target)
        loaded = call(_find_factory(module, factory_name, f"{kind} {spec!r}", code))
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


@contextmanager
def _naming(spec: str, kind: str, code: str) -> Iterator[None]:
    """Turn whatever user code raises into a one-line error that names `spec`."""
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
