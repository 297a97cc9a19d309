"""Where the boxes of an AVIF file say that its images are, and how large.

References:
    ISO/IEC 14496-12 (boxes, tracks) and 23008-12 (items).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class AvifBoxes:
    """What the boxes of an AVIF file say.

    Attributes:
        sizes: (width, height) of its images, of the pieces that they are put together of, and of its sequences.
        coded: AV1 data of each image or piece, and of the first picture of each sequence.
    """

    sizes: list[Size]
    coded: list[memoryview]


def avif_boxes(data: bytes) -> AvifBoxes:
    """Find the images of a file.

    Raises:
        ValueError: Images are made of the same bytes again and again.
    """
    found = AvifBoxes([], [])
    view = memoryview(data)
    for kind, body in _children(view):
        if kind == b"meta":
            _read_items(view, body, found)
        elif kind == b"moov":
            for _, track in _below(body, b"trak"):
                _read_track(view, track, found)
    return found


def _children(body: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Type and content of each box in `body`."""
    at = 0
    while at + 8 <= len(body):
        size, head = _number(body, at, 4), 8
        if size == 1:
            size, head = _number(body, at + 8, 8), 16
        elif size == 0:
            size = len(body) - at
        if size < head:
            return
        yield bytes(body[at + 4 : at + 8]), body[at + head : at + size]
        at += size


def _below(body: memoryview, *path: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """The boxes at the end of a path of types."""
    for kind, content in _children(body):
        if kind == path[0]:
            yield from _below(content, *path[1:]) if len(path) > 1 else ((kind, content),)


def _number(body: memoryview, at: int, size: int) -> int:
    return int.from_bytes(body[at : at + size], "big")


def _read_items(view: memoryview, meta: memoryview, found: AvifBoxes) -> None:
    """Images that are items: their types by `iinf`, places by `iloc`, sizes by `ispe`."""
    children = list(_children(meta[4:]))
    inside = next((body for kind, body in children if kind == b"idat"), memoryview(b""))
    coded: set[int] = set()
    for kind, body in children:
        if kind == b"iprp":
            found.sizes.extend(
                (_number(each, 4, 4), _number(each, 8, 4)) for _, each in _below(body, b"ipco", b"ispe")
            )
        elif kind == b"iinf":
            entries = body[6 if _number(body, 0, 1) == 0 else 8 :]
            for _, entry in _below(entries, b"infe"):
                id_size = 2 if _number(entry, 0, 1) < 3 else 4
                if bytes(entry[6 + id_size : 10 + id_size]) == b"av01":
                    coded.add(_number(entry, 4, id_size))
    room = 4 * len(view)  # extents may overlap, and copies of them fill the memory
    for item, extents in (each for kind, body in children if kind == b"iloc" for each in _places(body)):
        if item not in coded:
            continue
        pieces = [
            (inside if is_inside else view)[start : start + length if length else None]
            for is_inside, start, length in extents
        ]
        room -= sum(map(len, pieces)) if len(pieces) > 1 else 0
        if room < 0:
            raise ValueError("overlapping parts of images")
        found.coded.append(pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces)))


def _places(iloc: memoryview) -> Iterator[tuple[int, list[tuple[bool, int, int]]]]:
    """Each item with its extents: whether they lie in the `idat` box, start, and length (0 for all that follows)."""
    version = _number(iloc, 0, 1)
    sizes = _number(iloc, 4, 2)
    offset_size, length_size, base_size, index_size = (sizes >> shift & 15 for shift in (12, 8, 4, 0))
    if version == 0:
        index_size = 0
    id_size = 2 if version < 2 else 4
    at = 6 + id_size
    extent_size = index_size + offset_size + length_size
    for _ in range(_number(iloc, 6, id_size)):
        if at >= len(iloc):
            return
        item = _number(iloc, at, id_size)
        at += id_size
        is_inside = version > 0 and _number(iloc, at, 2) & 15 == 1
        at += 4 if version > 0 else 2
        base = _number(iloc, at, base_size)
        count = _number(iloc, at + base_size, 2)
        at += base_size + 2
        extents = []
        # Extents without any bytes of their own are all the same one.
        for start in (
            range(at, min(at + count * extent_size, len(iloc)), extent_size) if extent_size else (at,)
        ):
            offset = start + index_size
            length = _number(iloc, offset + offset_size, length_size)
            extents.append((is_inside, base + _number(iloc, offset, offset_size), length))
        at += count * extent_size
        if extents:
            yield item, extents


def _read_track(view: memoryview, track: memoryview, found: AvifBoxes) -> None:
    """The first picture of a sequence: its size by `tkhd`, its place by `stco`, its length by `stsz`."""
    for _, header in _below(track, b"tkhd"):
        at = 88 if _number(header, 0, 1) == 1 else 76
        found.sizes.append((_number(header, at, 4) >> 16, _number(header, at + 4, 4) >> 16))
    for _, table in _below(track, b"mdia", b"minf", b"stbl"):
        boxes = dict(_children(table))
        entry = boxes.get(b"stsd", memoryview(b""))
        offsets, width = (boxes.get(b"stco"), 4) if b"stco" in boxes else (boxes.get(b"co64"), 8)
        lengths = boxes.get(b"stsz")
        if offsets is None or lengths is None or bytes(entry[12:16]) != b"av01":
            continue
        start = _number(offsets, 8, width)
        length = _number(lengths, 4, 4) or _number(lengths, 12, 4)
        found.coded.append(view[start : start + length])
