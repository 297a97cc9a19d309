"""Write images to one .npz file in the format of OpenAI's evaluator: `arr_0`, uint8 (n, h, w, 3).

The array is written as images are decoded, so only the images in progress are in memory. The header of the file contains the
number of images, which is taken from the source. If it is wrong, because images were skipped or the source did not
know it, the file is copied once with the correct number.
"""

from __future__ import annotations

import io
import shutil
import zipfile
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from numpy.lib import format as npy

from genpr.errors import BadImagesError, DataError, ImageError
from genpr.images.decode import Decoded, decode
from genpr.images.item import ImageSource, Item, known_length
from genpr.images.policy import BadImagePolicy, DecodePolicy
from genpr.runtime import usable_cores
from genpr.storage import atomic_path, marked_by, place_of, report_write_errors

_MEMBER = "arr_0.npy"
_MARK_AT = 30 + len(_MEMBER) + 4  # after the local header of the member and the head of the extra field
_COPY_BYTES = 2**20
_AHEAD = 4  # images per thread; bounds the decoded pixels that wait


def is_packed_from(source: str) -> Callable[[Path], bool]:
    """A function that recognizes a file that was written here from the source of this name."""
    return marked_by(lambda head: head.find(_mark_of(source)) == _MARK_AT)


def _mark_of(source: str) -> bytes:
    """The content of an extra field of the member, which readers skip."""
    return f"genpr pack {place_of(source)}".encode()


@dataclass(frozen=True)
class Packed:
    """The result: number and size of the images, the skipped ones, and counts of flags."""

    n: int
    height: int
    width: int
    skipped: tuple[ImageError, ...]
    flags: Mapping[str, int]


def pack_source(
    source: ImageSource,
    path: Path,
    *,
    bad_images: BadImagePolicy,
    policy: DecodePolicy,
    check: Callable[[], None] = lambda: None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Packed:
    """Write the images of a source in order to `path`, which is replaced atomically, after a last `check`.

    `progress` is called with the number of images done and the total (None if unknown).
    """
    bad, flags = list[ImageError](), Counter[str]()
    total, seen, n, shape = known_length(source), 0, 0, (0, 0, 0)
    decoded = _decoded(source, policy)
    with report_write_errors(path), atomic_path(path) as temporary, closing(decoded), ExitStack() as stack:
        for seen, (name, image) in enumerate(decoded, 1):
            if progress is not None:
                progress(seen, total)
            if isinstance(image, ImageError):
                bad.append(image)
                continue
            if bad and bad_images.action == "error":  # only further errors are collected
                continue
            if not n:
                first, shape = name, image.pixels.shape
                file = stack.enter_context(_member(temporary, (total or 0, *shape), source.name))
            if image.pixels.shape != shape:
                (h, w, _), (height, width, _) = image.pixels.shape, shape
                sizes = f"{name} is {w} x {h} pixels, but {first} is {width} x {height}"
                text = f"{source.name} has images of different sizes: {sizes}; make them equal with --prepare"
                raise DataError(text, code="mixed-sizes", path=name)
            flags.update(image.flags)
            file.write(image.pixels.data)
            n += 1
        bad_images.check(bad, total=seen, source=source.name)
        if not n and bad:
            text = f"none of the {len(bad)} images in {source.name} can be used; the first: {bad[0]}"
            raise BadImagesError(text, bad=bad, path=source.name)
        if not n:
            raise DataError(f"{source.name} has no images", code="no-images", path=source.name)
        stack.close()
        if n != total:
            _correct_count(temporary, (total or 0, *shape), n, source.name)
        check()
    return Packed(n, shape[0], shape[1], tuple(bad), dict(flags))


def _decoded(
    source: ImageSource, policy: DecodePolicy
) -> Generator[tuple[str, Decoded | ImageError], None, None]:
    """Read and decode items in threads, a bounded distance ahead, and yield results or errors in order."""

    def load(item: Item) -> tuple[str, Decoded | ImageError]:
        try:
            return item.name, decode(item.read(), name=item.name, policy=policy)
        except ImageError as error:
            return item.name, error.detached()

    threads = max(1, min(32, usable_cores()))
    pool = ThreadPoolExecutor(threads, thread_name_prefix="genpr-decode")
    waiting: deque[Future[tuple[str, Decoded | ImageError]]] = deque()
    try:
        for item in source:
            waiting.append(pool.submit(load, item))
            if len(waiting) >= threads * _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except OSError as error:  # an error of reading, to be distinguished from errors of writing
        text = f"{source.name} cannot be read ({error})"
        raise DataError(text, code="unreadable", path=source.name) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _header(shape: tuple[int, ...]) -> bytes:
    header = io.BytesIO()
    npy.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return header.getvalue()


@contextmanager
def _member(path: Path, shape: tuple[int, ...], source: str) -> Iterator[IO[bytes]]:
    """A new .npz file with one array, opened for writing after its header; with 64-bit sizes, as numpy writes them."""
    member, mark = zipfile.ZipInfo(_MEMBER), _mark_of(source)
    member.extra = b"gp" + len(mark).to_bytes(2, "little") + mark
    with zipfile.ZipFile(path, "w") as archive, archive.open(member, "w", force_zip64=True) as file:
        file.write(_header(shape))
        yield file


def _correct_count(path: Path, shape: tuple[int, ...], n: int, source: str) -> None:
    """Copy the file with `n` in its header instead of `shape[0]`."""
    with (
        atomic_path(path) as corrected,
        zipfile.ZipFile(path) as archive,
        archive.open(_MEMBER) as old,
        _member(corrected, (n, *shape[1:]), source) as new,
    ):
        old.read(len(_header(shape)))
        shutil.copyfileobj(old, new, _COPY_BYTES)
