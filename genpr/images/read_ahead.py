"""Load images ahead of a network, in threads or processes.

Processes do not share Python's lock. Each belongs to a decoding thread. It is started without the program of the user, which would
otherwise be imported once more. It writes pixels into memory that it shares with its thread: a file without a name
(`memfd_create`), which needs no space in /dev/shm and ends with its users. The thread sends items, waits without the lock, and copies
the pixels. Until its process runs, and if the process ends early or cannot load an image, the thread loads the images itself.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import numpy as np

import genpr
from genpr.errors import ResourceError, some
from genpr.images.loading import CachedImage, ImageCache, LoadedImage, Positioned, Reader, load
from genpr.images.policy import DecodePolicy
from genpr.runtime import usable_cores

_CODE = (
    "import sys; sys.path[:] = {path!r}\n"
    "from genpr.images.read_ahead import serve; serve({connection}, {memory})"
)
_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT}
_CHUNK = 8  # images per task
_CHUNKS_AHEAD = 3  # per thread; bounds the decoded pixels in memory
_MAX_THREADS = 32
_NO_FEATURES: Any = None  # of images in a cache, which the thread reads


_Loaded = list[list[LoadedImage]]  # by image and reader
_OfProcess = list[list[LoadedImage] | None]  # None for an image with an error
_Reply = tuple[bytes, list[int]]  # all but the pixels, pickled, and the bytes of each array of pixels


def read_ahead(
    items: Iterable[Positioned], readers: Sequence[Reader], policy: DecodePolicy, *, processes: int = 0
) -> Generator[list[LoadedImage]]:
    """Load items in threads or processes, a bounded number ahead; yield a list per item, in order, with an entry per reader."""
    threads = processes or default_threads()
    waiting: deque[Future[_Loaded]] = deque()
    iterator = iter(items)
    with ExitStack() as stack:
        work: Callable[[Sequence[Positioned]], _Loaded] = partial(load, readers=readers, policy=policy)
        if processes:
            work = stack.enter_context(_Processes(readers, policy)).load
        pool = ThreadPoolExecutor(threads, thread_name_prefix="genpr-decode")
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        while chunk := tuple(islice(iterator, _CHUNK)):
            waiting.append(pool.submit(work, chunk))
            if len(waiting) > threads * _CHUNKS_AHEAD:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def default_threads() -> int:
    """The number of threads or processes that load images: one core runs the network."""
    return max(1, min(_MAX_THREADS, usable_cores() - 1))


class _Processes:
    """Loads images in a process of the calling thread; all processes end on exit."""

    def __init__(self, readers: Sequence[Reader], policy: DecodePolicy) -> None:
        self._readers, self._policy = readers, policy
        self._of_thread = threading.local()
        self._started: list[_Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for process in self._started:
            process.end()

    def load(self, items: Sequence[Positioned]) -> _Loaded:
        """As `load`; ResourceError "decoder-crashed" if the process crashed."""
        process: _Process | None = getattr(self._of_thread, "process", None)
        found = None if process is None else process.load(items)
        if found is not None:
            return [self._completed(item, images) for item, images in zip(items, found, strict=True)]
        loaded = load(items, self._readers, self._policy)
        if process is None and any(image.pixels is not None for images in loaded for image in images):
            self._of_thread.process = process = _Process(self._readers, self._policy)
            self._started.append(process)
        return loaded

    def _completed(self, item: Positioned, images: list[LoadedImage] | None) -> list[LoadedImage]:
        """The results of all readers, with features from the caches, and prepared by code of the user."""
        # Only this process may be able to read it: a path in /proc, the encoding of paths, an archive that was replaced.
        if images is None:
            return load([item], self._readers, self._policy)[0]
        completed = []
        for reader, image in zip(self._readers, images, strict=True):
            if image.pixels is None and reader.cache is not None:
                cached = reader.cache.get(image.identity)
                if cached is None:  # its file in the cache is damaged
                    return load([item], self._readers, self._policy)[0]
                completed.append(image.known(cached))
            elif reader.is_portable:
                completed.append(image)
            else:
                completed.append(image.prepared(reader, is_shared=len(images) > 1))
        return completed


class _Process:
    """A process that loads images, as its thread sees it."""

    def __init__(self, readers: Sequence[Reader], policy: DecodePolicy) -> None:
        # Code of the user, and features, stay here.
        portable = [each if each.is_portable else each._replace(prepare=None) for each in readers]
        names = [None if each.cache is None else _CachedNames(each.cache) for each in readers]
        task = [each._replace(cache=own) for each, own in zip(portable, names, strict=True)], policy
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = False
        self._resources = ExitStack()
        if not sys.executable or getattr(sys, "frozen", False):  # Python is part of a program of the user
            return
        # No memory or handle is left, processes are not allowed, or libc is too old.
        with suppress(OSError, AttributeError), ExitStack() as resources:
            self._connection, theirs = map(resources.enter_context, Pipe())
            # `os.memfd_create` is missing in builds of Python for old versions of glibc, such as those of conda.
            memory = ctypes.CDLL(None).memfd_create(b"genpr-pixels", 1)  # MFD_CLOEXEC
            os.fstat(memory)  # OSError if it was not created
            resources.callback(os.close, memory)
            with open(memory, "wb", closefd=False) as file:
                pickle.dump(task, file)
            self._memory = memory
            path = [*filter(None, sys.path), str(Path(genpr.__file__).parents[1])]
            code = _CODE.format(path=path, connection=theirs.fileno(), memory=memory)
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", code],
                pass_fds=(theirs.fileno(), memory),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                process_group=0,  # Ctrl-C interrupts only this process
            )
            theirs.close()  # of the process, whose end closes it
            self._resources = resources.pop_all()

    def load(self, items: Sequence[Positioned]) -> _OfProcess | None:
        """Load images in the process; None if it does not run yet or any more, and for images with errors."""
        process = self._process
        if process is None:
            return None
        try:
            if not self._is_ready:
                if not self._connection.poll():
                    return None
                self._connection.recv()
                self._is_ready = True
            self._connection.send(items)
            return _restored(self._connection.recv(), self._memory)
        except Exception:  # noqa: BLE001 - it ended, an item cannot be pickled, or no memory or handle is left
            self.end()
            if not self._is_ready or -process.returncode not in _CRASHES:
                return None
            names = [item.name for _, item in items]
            text = (
                f"a process that decodes images crashed ({signal.Signals(-process.returncode).name}) while it loaded {some(names, 8)}; "
                "one of them may crash a library: save them again, or leave them out"
            )
            raise ResourceError(text, code="decoder-crashed", path=names[0]) from None

    def end(self) -> None:
        """End the process, which has nothing to finish, and free what belongs to it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self._resources.close()


class _CachedNames:
    """The images that are in a cache, without their features."""

    def __init__(self, cache: ImageCache) -> None:
        self.keys = cache.keys

    def get(self, identity: bytes, /) -> CachedImage | None:
        """An image without features; wrong with a probability of 2^-64."""
        (key,) = np.frombuffer(identity[-8:], np.uint64)
        for keys in self.keys:
            at = np.searchsorted(keys, key)
            if at == len(keys) or keys[at] != key:
                return None
        return CachedImage(_NO_FEATURES)


def _stored(images: _OfProcess, memory: int) -> _Reply:
    """Write pixels to a file in memory, from its beginning; those that readers share only once."""
    pixels = list[pickle.PickleBuffer]()
    rest = pickle.dumps(images, protocol=5, buffer_callback=pixels.append)
    with open(memory, "wb", closefd=False) as file:
        file.seek(0)
        file.writelines(each.raw() for each in pixels)
        file.truncate()
    return rest, [each.raw().nbytes for each in pixels]


def _restored(reply: _Reply, memory: int) -> _OfProcess:
    """The images with copies of their pixels."""
    rest, sizes = reply
    with open(memory, "rb", closefd=False) as file:
        file.seek(0)
        pixels = [np.fromfile(file, np.uint8, size) for size in sizes]
    images: _OfProcess = pickle.loads(rest, buffers=pixels)
    return images


def _usable(images: list[LoadedImage]) -> list[LoadedImage] | None:
    """The results of all readers with pixels in arrays, whose bytes are pickled by themselves; None with an error."""
    if any(image.error is not None for image in images):
        return None
    return [
        image if image.pixels is None else replace(image, pixels=np.ascontiguousarray(image.pixels))
        for image in images
    ]


def serve(connection: int, memory: int) -> None:
    """Load images for the thread at the other end of a connection until it is closed; both arguments are file descriptors."""
    thread = Connection(connection)
    with open(memory, "rb", closefd=False) as file:
        file.seek(0)
        readers, policy = pickle.load(file)
    with suppress(EOFError, OSError):  # it was closed
        thread.send(None)
        while True:
            items = thread.recv()
            try:
                reply = _stored(list(map(_usable, load(items, readers, policy))), memory)
            except Exception:  # noqa: BLE001 - the thread tries again, and raises the error
                reply = _stored([None] * len(items), memory)
            thread.send(reply)
