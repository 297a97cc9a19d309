"""Fixtures for all tests: a private cache, no downloads, and small real images."""

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock, patch

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when numpy is imported; threads that wait take cores

import light_torchmetrics  # noqa: F401 - before anything imports the whole
import numpy as np
import pytest
from PIL import Image

if TYPE_CHECKING:
    from practice_cuda import PracticeDevice


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr == "gpu":
        config.option.doctestmodules = False  # no doctest is marked


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`pytest -m gpu` imports the files with such tests only: packages that others need may be missing."""
    if config.option.markexpr == "gpu" and collection_path.suffix == ".py":
        return b"pytest.mark.gpu" not in collection_path.read_bytes() or None
    return None


@pytest.fixture(scope="session")
def _caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An endless sequence of new folders; `mktemp` lists all existing ones, which is slow after thousands of tests."""
    root = tmp_path_factory.mktemp("caches")
    return (root / str(number) for number in count())


@pytest.fixture(autouse=True)
def _private_cache(_caches: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = next(_caches)
    folder.mkdir(mode=0o700)  # others could write to it under some umasks
    monkeypatch.setenv("GENPR_CACHE", str(folder))
    monkeypatch.setenv("GENPR_OFFLINE", "1")
    monkeypatch.delenv("GENPR_DEBUG", raising=False)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small inputs: one thread is faster than two that wait for each other, above all on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def _has_gpu() -> bool:
    """Whether this machine has a GPU; checked once, since the driver reads CUDA_VISIBLE_DEVICES at its first use."""
    import torch

    return torch.cuda.is_available()


@pytest.fixture(autouse=True)
def gpu(request: pytest.FixtureRequest, _has_gpu: bool) -> "Iterator[PracticeDevice | None]":
    """A test marked gpu gets the GPU of this machine, else the practice GPU, whose counts are returned; others get none."""
    if request.node.get_closest_marker("gpu") is None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # `patch.dict` would write all variables again, in every test
        with patch.multiple("torch.cuda", is_available=lambda: False, device_count=lambda: 0):
            yield None
        if visible is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = visible
    elif _has_gpu:
        yield None
    else:
        from practice_cuda import IS_POSSIBLE, practice_device

        if not IS_POSSIBLE:
            pytest.skip("this torch is too old for a practice GPU")
        with practice_device() as device:
            yield device
        assert not device.refusals
        assert not [line for name, line in device.synchronizations if "CPU indices" in name]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def decode(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Counts what is decoded."""
    from genpr.images import loading

    counted = Mock(wraps=loading.decode)
    monkeypatch.setattr(loading, "decode", counted)
    return counted


@pytest.fixture
def write_images(tmp_path: Path) -> Callable[..., Path]:
    """Write uint8 (n, h, w, 3) or (n, h, w) pixels as files of a folder, PNG if `form` has no other suffix."""

    def write(
        name: str, pixels: Sequence[np.ndarray] | Mapping[int, np.ndarray], form: str = "{:05d}.png"
    ) -> Path:
        for index, image in pixels.items() if isinstance(pixels, Mapping) else enumerate(pixels):
            path = tmp_path / name / form.format(index)
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path, lossless=True)
        return tmp_path / name

    return write


@pytest.fixture
def change_protocol(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Change fields of a protocol."""
    from genpr.evaluation import protocols

    def change(name: str, **fields: object) -> None:
        changed = {**protocols.PROTOCOLS, name: replace(protocols.find_protocol(name), **fields)}
        monkeypatch.setattr(protocols, "PROTOCOLS", changed)

    return change


@pytest.fixture
def sides(write_images: Callable[..., Path], rng: np.random.Generator) -> list[Path]:
    """Two folders of thirty images of noise."""
    pixels = rng.integers(0, 256, (2, 30, 8, 8, 3), dtype=np.uint8)
    return [write_images(name, side) for name, side in zip(("real", "fake"), pixels, strict=True)]


@pytest.fixture(scope="session")
def digits() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's handwritten digits: uint8 (1797, 32, 32) pixels and their labels 0 to 9."""
    from sklearn.datasets import load_digits

    data = load_digits()
    pixels = np.round(data.images * (255 / 16)).astype(np.uint8)
    return pixels.repeat(4, axis=1).repeat(4, axis=2), data.target


def pytest_collection_finish() -> None:
    """Exclude imported objects from `gc.collect()`, which genpr calls."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Iterator[None]:
    """Collect no doctests from tests; searching for them would import the packages of `Peer`."""
    return [collector for collector in (yield) if type(collector) is pytest.Module]
