"""Any images into one .npz file, as OpenAI's evaluator and others want them: `arr_0`, uint8 (n, h, w, 3).

Nothing is held but the images that threads are decoding: the array is written as it comes. How many images there
will be stands before them in the file, so it is taken from the source; if it turns out otherwise, because images
were left out or the source did not know, the file is copied once with the number put right.
"""

from __future__ import annotations

import io
import os
import shutil
import zipfile
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from genpr.errors import BadImagesError, DataError, ImageError, UsageError, printable
from genpr.images.decode import Decoded, decode
from genpr.images.item import ImageSource, Item, known_length
from genpr.images.policy import MAX_PIXELS, BadImagePolicy, DecodePolicy
from genpr.images.source import open_source, subset
from genpr.runtime import usable_cores
from genpr.storage import atomic_path, check_place, unwritable

_MEMBER = "arr_0.npy"
_COPY_BYTES = 2**20
_AHEAD = 4  # images per thread; bounds the decoded pixels that wait


@dataclass(frozen=True)
class Packed:
    """What was written: number and sides of the images, those that could not be used, and how many have each flag."""

    n: int
    height: int
    width: int
    skipped: tuple[ImageError, ...]
    flags: Mapping[str, int]


def pack(
    source: object,
    path: str | os.PathLike[str],
    *,
    max_images: int | None = None,
    seed: int = 0,
    on_bad: Literal["error", "skip"] = "error",
    max_bad: float = 0.01,
    max_pixels: int = MAX_PIXELS,
    alpha: str = "drop",
    exif: Literal["ignore", "apply"] = "ignore",
    compressed: bool = False,
    force: bool = False,
) -> int:
    """Write the images of a source to an .npz file, in their order, as `arr_0`, uint8 (n, h, w, 3).

    Args:
        source: Whatever `open_source` takes; all its images must have one size.
        path: The file to write; it appears when it is complete, or not at all.
        max_images: Write a random subset of at most this many.
        seed: Chooses the subset.
        on_bad: What to do about unusable images: "error" refuses the source, "skip" leaves them out.
        max_bad: The largest share of them that "skip" accepts.
        max_pixels: Larger images are refused before decoding.
        alpha: "drop" leaves transparency out; "white", "black" or "#rrggbb" is laid behind it.
        exif: "ignore" takes pixels as stored; "apply" turns them by their EXIF orientation.
        compressed: Deflate the array.
        force: Replace an existing file.

    Returns:
        Number of images written.

    Raises:
        UsageError: An argument is wrong, or `path` exists and `force` is not set.
        BadImagesError: There are unusable images, all of which it lists, and they are not accepted.
        DataError: There are no images, they differ in size ("mixed-sizes"), or the source is damaged.
        ResourceError: `path` cannot be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pack(np.zeros((5, 8, 8, 3), np.uint8), f"{folder}/black.npz")
        5
    """
    check_output(path, source, force=force)
    policy = DecodePolicy(max_pixels, alpha, exif)
    opened = open_source(source)
    if max_images is not None:
        opened = subset(opened, max_images, seed)
    return pack_source(
        opened, Path(path), on_bad=on_bad, max_bad=max_bad, policy=policy, compressed=compressed
    ).n


def check_output(path: str | os.PathLike[str], source: object, *, force: bool) -> None:
    """Refuse a path that `pack` could or should not write, before anything is read."""
    shown, path = printable(os.fsdecode(path)), Path(path)
    if path.suffix.lower() != ".npz":
        raise UsageError(f"{shown} must end in .npz, the only format genpr packs into", code="output-suffix")
    check_place(path)
    if not os.path.lexists(path):
        return
    if isinstance(source, str | os.PathLike) and _is_same_file(path, Path(source)):
        reason = "is the source itself; write to another file"
    elif not force:
        reason = "exists; --force replaces it"
    else:
        return
    raise UsageError(f"{shown} {reason}", code="output-exists", path=str(path))


def _is_same_file(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:  # one of them is not there
        return False


def pack_source(
    source: ImageSource,
    path: Path,
    *,
    on_bad: Literal["error", "skip"] = "error",
    max_bad: float = 0.01,
    policy: DecodePolicy | None = None,
    compressed: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
) -> Packed:
    """Write the images of an opened source over whatever is at `path` (see `pack`, which checks that).

    `progress` is called with the number of images done and the total (None if unknown).
    """
    bad_images = BadImagePolicy(on_bad, max_bad)
    seen = _Seen()
    total = known_length(source)
    decoded = _decoded(source, policy or DecodePolicy())
    with _writing(path), atomic_path(path) as temporary, closing(decoded):
        rows = _rows(decoded, source, seen, total, progress, lists_only=on_bad == "error")
        first = next(rows, None)
        if first is not None:
            first = first.copy()  # a view of it would keep a whole batch of an .npz file
            shape = (total or 0, *first.shape)
            n = 1
            with _member(temporary, shape, compressed=compressed) as file:
                file.write(first.data)
                for n, pixels in enumerate(rows, 2):  # noqa: B007 - the last is the count
                    file.write(pixels.data)
        bad_images.check(seen.bad, total=seen.count, source=source.name)
        if first is None:
            raise _nothing(source, seen.bad)
        if n != total:
            _correct_count(temporary, shape, n, compressed=compressed)
    height, width, _ = first.shape
    return Packed(n, height, width, tuple(seen.bad), dict(seen.flags))


@dataclass
class _Seen:
    """Counts of the images so far, and those that cannot be used."""

    count: int = 0
    bad: list[ImageError] = field(default_factory=list)
    flags: Counter[str] = field(default_factory=Counter)


def _rows(
    decoded: Iterator[tuple[str, Decoded | ImageError]],
    source: ImageSource,
    seen: _Seen,
    total: int | None,
    progress: Callable[[int, int | None], None] | None,
    *,
    lists_only: bool,
) -> Iterator[NDArray[np.uint8]]:
    """The pixels of usable images, all of one size; with `lists_only`, none after an unusable one."""
    shape: tuple[int, ...] = ()
    first = ""
    for name, image in decoded:
        seen.count += 1
        if progress is not None:
            progress(seen.count, total)
        if isinstance(image, ImageError):
            seen.bad.append(image)
            continue
        if seen.bad and lists_only:
            continue
        if not shape:
            shape, first = image.pixels.shape, name
        if image.pixels.shape != shape:
            height, width, _ = image.pixels.shape
            sizes = f"{printable(name)} is {width} x {height} pixels, but {printable(first)} is {shape[1]} x {shape[0]}"
            raise DataError(
                f"{printable(source.name)} has images of different sizes: {sizes}; resize them first",
                code="mixed-sizes",
                path=name,
            )
        seen.flags.update(image.flags)
        yield image.pixels


def _decoded(
    source: ImageSource, policy: DecodePolicy
) -> Generator[tuple[str, Decoded | ImageError], None, None]:
    """Read and decode every item in threads, a bounded distance ahead, and yield what came of it in order."""

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
    except OSError as error:  # of reading, so that it differs from those of writing
        raise DataError(
            f"{printable(source.name)} cannot be read ({error})", code="unreadable", path=source.name
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _nothing(source: ImageSource, bad: list[ImageError]) -> DataError:
    name = source.name
    if bad:
        text = f"none of the {len(bad)} images in {name} can be used; the first: {bad[0]}"
        return BadImagesError(text, bad=bad, path=name)
    return DataError(f"{printable(name)} has no images", code="no-images", path=name)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Report a failure to write `path`; the block must turn those of reading into others."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error


def _header(shape: tuple[int, ...]) -> bytes:
    header = io.BytesIO()
    npy.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return header.getvalue()


@contextmanager
def _member(path: Path, shape: tuple[int, ...], *, compressed: bool) -> Iterator[IO[bytes]]:
    """A new .npz file with one array, open behind its header for writing; 64-bit sizes, as numpy writes them."""
    compression = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with (
        zipfile.ZipFile(path, "w", compression) as archive,
        archive.open(_MEMBER, "w", force_zip64=True) as file,
    ):
        file.write(_header(shape))
        yield file


def _correct_count(path: Path, shape: tuple[int, ...], n: int, *, compressed: bool) -> None:
    """Copy the file once more, with `n` in its header instead of `shape[0]`."""
    with (
        atomic_path(path) as corrected,
        zipfile.ZipFile(path) as archive,
        archive.open(_MEMBER) as old,
        _member(corrected, (n, *shape[1:]), compressed=compressed) as new,
    ):
        old.read(len(_header(shape)))
        shutil.copyfileobj(old, new, _COPY_BYTES)
