"""Processes that load images: the results of threads, whatever happens to a process, and nothing left behind."""

import os
import select
import signal
import stat
import subprocess
import sys
import tarfile
import zipfile
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from PIL import Image

import genpr
from genpr.errors import ResourceError
from genpr.features.cache import FeatureCache, JoinedCache
from genpr.features.custom import extractor_info, wrap_extractor
from genpr.features.embed import embed_source
from genpr.images import read_ahead
from genpr.images.item import IndexedSource, Item, SubsetSource, concat_sources
from genpr.images.policy import BadImagePolicy, DecodePolicy
from genpr.images.source import open_source

N = 120


def children():
    """The processes of this one that load images; other tests may have started others."""
    found = []
    for path in Path("/proc/self/task").glob("*/children"):
        for child in path.read_text().split():
            with suppress(OSError):  # it has just ended
                if b"read_ahead" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
    return found


def open_files():
    """Kind and identity by file descriptor."""
    found = {}
    for number in range(1024):
        with suppress(OSError):
            found[number] = os.fstat(number)[:3]
    return found


@pytest.fixture
def loaded_in_threads(monkeypatch):
    """The images that threads load, which wait for a process that is starting."""
    found, ready, load, before = [], [], read_ahead.load, open_files()

    def waiting(items, *args, **options):
        for _ in range(0 if ready else 3000):
            new = open_files().items() - before.items()
            connections = [number for number, (mode, *_) in new if stat.S_ISSOCK(mode)]
            if connections and select.select(connections, [], [], 0.02)[0]:
                ready.append(True)
            if ready or not connections:
                break
        found.extend(item.name for _, item in items)
        return load(items, *args, **options)

    monkeypatch.setattr(read_ahead, "load", waiting)
    return found


@pytest.fixture
def folder(tmp_path, rng):
    """Images of several kinds and sizes in subfolders, of which two are unusable."""
    path = tmp_path / "images"
    for index in range(N):
        suffix = ("png", "jpg", "webp")[index % 3]
        pixels = rng.integers(0, 256, (9 + index % 4, 11, 4 if index % 30 == 0 else 3), dtype=np.uint8)
        file = path / f"{index % 2}" / f"{index:03d}.{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    for name in ("1/119.webp", "1/061.jpg"):
        (path / name).write_bytes((path / name).read_bytes()[:90])
    return path


class InPlace:
    """Prepares images on the host by code of the user, in place."""

    name, dim = "in-place", 3

    def prepare(self, image):
        return image.fill_(int(image[0, 0, 0])).float()

    def forward(self, batch):
        return batch.mean((2, 3))

    __call__ = forward


class Means:
    """Needs decoded pixels only, so that a process imports no torch."""

    name, dim, prepares_on_device = "means", 3, True

    def prepare(self, image):
        return image.float().mean((1, 2))

    def forward(self, batch):
        return batch

    __call__ = forward


MEANS = wrap_extractor(Means())


def embedded(source, *extractors, workers, caches=(), **how):
    pairs = list(zip(extractors, caches or [None] * len(extractors), strict=True))
    how |= {
        "bad_images": BadImagePolicy("skip", max_share=0.5),
        "decode_policy": DecodePolicy(prepare="resize:8"),
    }
    return embed_source(source, pairs, workers=workers, **how)


def assert_equal(one, other):
    assert torch.equal(one.features, other.features)
    assert torch.equal(one.identities, other.identities)
    for fact in ("names", "flags", "facts", "sizes", "n_cached", "n_embedded", "passed_over"):
        assert getattr(one, fact) == getattr(other, fact), fact
    for key in ("code", "path", "args"):
        assert [getattr(each, key) for each in one.skipped] == [getattr(each, key) for each in other.skipped]


@pytest.fixture
def source(folder):
    """The images as files, and once more in a zip archive, a tar archive and a parquet file."""
    archive, tar, table = (folder.with_suffix(suffix) for suffix in (".zip", ".tar", ".parquet"))
    files = sorted(folder.rglob("*.*"))
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for file in files:
            opened.write(file, file.relative_to(folder))
    with tarfile.open(tar, "w") as opened:
        for file in files:
            opened.add(file, file.relative_to(folder))
    pa.parquet.write_table(
        pa.table({"image": [file.read_bytes() for file in files]}), table, row_group_size=25
    )
    whole = concat_sources("all", [folder, archive, tar, table], open_source)
    return SubsetSource("some", whole, range(3, len(whole) - 2))


def test_processes_give_the_features_and_facts_of_threads(source, loaded_in_threads):
    extractors = [genpr.load_extractor("pixels", device="cpu"), wrap_extractor(InPlace()), MEANS]
    expected = embedded(source, *extractors, workers=0)
    loaded_in_threads.clear()
    found = embedded(source, *extractors, workers=1)
    assert 8 <= len(loaded_in_threads) <= 16 + len(expected[0].skipped), "a process loaded the rest"
    for one, other in zip(expected, found, strict=True):
        assert_equal(one, other)
    (alone,) = embedded(source, MEANS, workers=0)
    assert_equal(expected[-1], alone)  # not of pixels that another has changed in place
    assert len(expected[0].skipped) == 7
    assert not children()


@pytest.mark.parametrize("dims", [[3], [1, 2]], ids=["whole", "layers"])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_features_in_the_cache_are_used_unless_they_are_damaged(
    folder, loaded_in_threads, tmp_path, is_damaged, dims
):
    extractor = wrap_extractor(Means())
    extractor.wrapped.cache_key = "1"
    (expected,) = embedded(open_source(folder), extractor, workers=0)
    half = SubsetSource("half", open_source(folder), range(0, N, 2))
    info = extractor_info(extractor)

    def caches():
        return [FeatureCache(tmp_path / f"{dim}", replace(info, dim=dim), "cpu") for dim in dims]

    embedded(half, extractor, workers=0, caches=[JoinedCache(caches())])
    *_, last = layers = caches()
    if is_damaged:
        (shard,) = last.folder.glob("*.safetensors")
        shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    loaded_in_threads.clear()
    (found,) = embedded(open_source(folder), extractor, workers=1, caches=[JoinedCache(layers)])
    assert torch.equal(found.features, expected.features)
    assert (found.sizes, found.flags) == (expected.sizes, expected.flags)
    assert found.n_cached == (0 if is_damaged else N // 2 - 1)
    assert (len(loaded_in_threads) >= N // 2) == is_damaged


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_thread_goes_on_if_its_process_is_ended(folder, loaded_in_threads, ending):
    ended = []

    def end(done, total):
        if len(loaded_in_threads) < done and not ended:  # the process runs
            ended.extend(children())
            assert os.getpgid(ended[0]) != os.getpgrp(), "Ctrl-C would reach it"
            os.kill(ended[0], ending)

    (expected,) = embedded(open_source(folder), MEANS, workers=0)
    loaded_in_threads.clear()
    (found,) = embedded(open_source(folder), MEANS, workers=1, progress=end)
    assert_equal(expected, found)
    assert ended
    assert not children()


def test_crash_of_a_process_is_an_error_that_names_images(folder, loaded_in_threads):
    def crash(done, total):
        for child in children() if len(loaded_in_threads) < done else []:
            os.kill(child, signal.SIGSEGV)

    with pytest.raises(ResourceError) as caught:
        embedded(open_source(folder), MEANS, workers=1, progress=crash)
    assert caught.value.code == "decoder-crashed"
    assert caught.value.path in {item.name for item in open_source(folder)}
    assert not children()


def test_nothing_is_left_after_an_interruption(folder, loaded_in_threads):
    def interrupt(done, total):
        if children():
            raise KeyboardInterrupt

    before = open_files()
    with pytest.raises(KeyboardInterrupt):
        embedded(open_source(folder), MEANS, workers=2, progress=interrupt)
    assert not children()
    assert not open_files().items() - before.items()


def test_error_that_only_the_process_meets_is_left_to_the_thread(loaded_in_threads, folder):
    files = sorted(folder.rglob("*.png"))
    code = f"data if __import__('os').getpid() == {os.getpid()} else 1 / 0"

    class Files(IndexedSource):
        name, is_in_files = "files", True

        def __len__(self):
            return len(files)

        def select(self, indices):
            return (
                Item(str(files[index]), partial(eval, code, {"data": files[index].read_bytes()}))
                for index in indices
            )

    (found,) = embedded(Files(), MEANS, workers=1)
    assert len(loaded_in_threads) == len(found) == len(files)


def test_items_that_cannot_be_pickled_are_left_to_the_thread(loaded_in_threads, folder):
    class Files(IndexedSource):
        name, is_in_files = "files", True

        def __len__(self):
            return N - 2

        def select(self, indices):
            items = {item.name: item for item in open_source(folder)}
            return (Item(name, lambda name=name: items[name].read()) for name in sorted(items)[: N - 2])

    (found,) = embedded(Files(), MEANS, workers=1)
    assert len(loaded_in_threads) == len(found) + len(found.skipped) == N - 2
    assert not children()


def test_images_in_memory_are_loaded_in_threads(folder, loaded_in_threads, tmp_path, rng):
    np.save(tmp_path / "more.npy", rng.integers(0, 256, (40, 9, 9, 3), dtype=np.uint8))
    whole = concat_sources("all", [folder, tmp_path / "more.npy"], open_source)
    embedded(whole, MEANS, workers=1)
    assert len(loaded_in_threads) == N + 40


def test_image_that_only_the_thread_can_read_is_used(folder, loaded_in_threads):
    (expected,) = embedded(open_source(folder), MEANS, workers=0)
    loaded_in_threads.clear()
    opened = os.open(folder, os.O_RDONLY)
    try:
        (found,) = embedded(open_source(f"/proc/self/fd/{opened}"), MEANS, workers=1)
    finally:
        os.close(opened)
    assert_equal(expected, found)
    assert len(loaded_in_threads) == N


def test_processes_need_no_memfd_create_of_python(folder, loaded_in_threads, monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    embedded(open_source(folder), MEANS, workers=1)
    assert len(loaded_in_threads) < N


@pytest.mark.parametrize("start", ["kill -ABRT $$", "exit 1"])
def test_threads_load_images_if_processes_end_at_their_start(
    folder, loaded_in_threads, monkeypatch, tmp_path, start
):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{start}\n")
    python.chmod(0o700)
    (expected,) = embedded(open_source(folder), MEANS, workers=0)
    loaded_in_threads.clear()
    monkeypatch.setattr(sys, "executable", str(python))
    (found,) = embedded(open_source(folder), MEANS, workers=1)
    assert_equal(expected, found)
    assert len(loaded_in_threads) == N


@pytest.mark.parametrize("changed", [{}, {"executable": None}, {"frozen": True}], ids=str)
def test_threads_load_images_where_no_process_can_start(folder, monkeypatch, changed):
    monkeypatch.setattr(subprocess, "Popen", start := Mock(side_effect=OSError("not here")))
    for name, value in changed.items():
        monkeypatch.setattr(sys, name, value, raising=False)
    expected, found = (embedded(open_source(folder), MEANS, workers=workers)[0] for workers in (0, 2))
    assert_equal(expected, found)
    assert start.called == (not changed), "it would start the program of the user"


def test_process_does_not_run_code_of_the_user(folder, tmp_path):
    script, started = tmp_path / "script.py", tmp_path / "started"
    (tmp_path / "sitecustomize.py").write_text(f"open({str(started)!r}, 'a').write('.')")
    script.write_text(
        "import sys, time\n"
        "from genpr.images.loading import Reader\n"
        "from genpr.images.read_ahead import read_ahead\n"
        "from genpr.images.policy import DecodePolicy\n"
        "from genpr.images.source import open_source\n"
        "source = open_source(sys.argv[1])\n"
        "loaded = read_ahead(enumerate(source), [Reader()], DecodePolicy(), processes=1)\n"
        "images = next(loaded)\n"
        "time.sleep(0.5)  # a process starts\n"
        "images += (image for [image] in loaded)\n"
        "print('ran', sum(image.pixels is not None for image in images))\n"
    )
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, script, folder],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert started.read_text() == "."
    assert (done.returncode, done.stdout) == (0, f"ran {N - 2}\n"), done.stderr
