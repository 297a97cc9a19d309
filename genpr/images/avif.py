"""The sizes of the AV1 frames in an AVIF file.

libavif believes the sizes in the boxes of a file, lets the AV1 decoder decode frames of any other size, and then scales
them. So the boxes are followed to the frames, and the headers of these are read.

References:
    ISO/IEC 14496-12 (boxes, tracks) and 23008-12 (items).
    AV1 Bitstream & Decoding Process Specification, sections 5.3 (OBUs), 5.5 (sequence header), 5.9 (frame header).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from genpr.images.formats import LEAST_PASS, Workload, counted

_Size = tuple[int, int]

_SEQUENCE_HEADER, _FRAME_HEADER, _FRAME = 1, 3, 6
_SELECT = 2  # "each frame says so itself"
_KEY_FRAME, _SWITCH_FRAME = 0, 3
_HEADER_BYTES = 1024  # more than the longest header has up to the sizes


def avif_workload(data: bytes) -> Workload:
    """What decoding the images of a file takes, and the first pictures of its sequences.

    Frames that choose their size themselves count with the largest that they can choose.

    Raises:
        TooManyPiecesError: It is made of very many units.
        ValueError: A frame is larger than the file says that its images are, there is none, or images are made of the
            same bytes again and again.
    """
    boxes = _find_boxes(data)
    stated = max((width * height for width, height in boxes.sizes), default=0)
    frames: list[int] = []
    sequence: _Sequence | None = None
    for kind, body in counted(each for coded in boxes.coded for each in _units(coded)):
        if kind == _SEQUENCE_HEADER:
            sequence = _read_sequence(_Bits(body))
            if sequence.width * sequence.height > stated:
                raise ValueError(
                    f"frames of {sequence.width} x {sequence.height} pixels in images of {stated:,} pixels"
                )
        elif kind in {_FRAME_HEADER, _FRAME} and sequence is not None:
            width, height = _frame_size(_Bits(body), sequence)
            frames.append(width * height)
    if not frames:
        raise ValueError("no AV1 frame where its boxes say that there are some")
    return Workload(max(frames), sum(max(pixels, LEAST_PASS) for pixels in frames))


@dataclass(frozen=True, slots=True)
class _Boxes:
    """What the boxes of an AVIF file say.

    Attributes:
        sizes: (width, height) of its images, of the pieces that they are put together of, and of its sequences.
        coded: AV1 data of each image or piece, and of the first picture of each sequence.
    """

    sizes: list[_Size]
    coded: list[memoryview]


def _find_boxes(data: bytes) -> _Boxes:
    """Find the images of a file."""
    found = _Boxes([], [])
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


def _read_items(view: memoryview, meta: memoryview, found: _Boxes) -> None:
    """Images that are items: their types by `iinf`, locations by `iloc`, sizes by `ispe`."""
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
    for item, extents in (
        each for kind, body in children if kind == b"iloc" for each in _item_locations(body)
    ):
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


def _item_locations(iloc: memoryview) -> Iterator[tuple[int, list[tuple[bool, int, int]]]]:
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


def _read_track(view: memoryview, track: memoryview, found: _Boxes) -> None:
    """The first picture of a sequence: its size by `tkhd`, its offset by `stco`, its length by `stsz`."""
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


def _units(coded: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Type and content of each open bitstream unit (OBU)."""
    at = 0
    while at < len(coded):
        head = coded[at]
        at += 2 if head & 4 else 1
        size = len(coded) - at
        if head & 2:
            size = 0
            for part in range(8):
                byte = coded[at] if at < len(coded) else 0
                at += 1
                size |= (byte & 127) << 7 * part
                if byte < 128:
                    break
        yield head >> 3 & 15, coded[at : at + size]
        at += size


class _Bits:
    """Reads a header bit by bit; beyond its end there are zeros."""

    def __init__(self, body: memoryview) -> None:
        head = bytes(body[:_HEADER_BYTES]).ljust(_HEADER_BYTES, b"\0")
        self._value = int.from_bytes(head, "big")
        self._left = 8 * _HEADER_BYTES

    def __call__(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            raise ValueError("an AV1 header without end")
        return self._value >> self._left & (1 << count) - 1


class _Sequence(NamedTuple):
    """What of a sequence header says how large frames are.

    Attributes:
        width: The largest, in pixels.
        height: Likewise.
        size_bits: (bits of a width, bits of a height) in frames that choose their own.
        is_reduced: Whether frames are stills without most of their header.
        screen_content: 0, 1 or `_SELECT`.
        integer_motion: Likewise.
        id_bits: Of the number of a frame, 0 if there is none.
    """

    width: int
    height: int
    size_bits: _Size
    is_reduced: bool
    screen_content: int = _SELECT
    integer_motion: int = _SELECT
    id_bits: int = 0


def _read_sequence(bits: _Bits) -> _Sequence:
    bits(4)  # profile, still picture
    is_reduced = bool(bits(1))
    if is_reduced:
        bits(5)  # level
    else:
        _skip_operating_points(bits)
    size_bits = bits(4) + 1, bits(4) + 1
    width, height = bits(size_bits[0]) + 1, bits(size_bits[1]) + 1
    if is_reduced:
        return _Sequence(width, height, size_bits, is_reduced)
    id_bits = bits(4) + 2 + bits(3) + 1 if bits(1) else 0
    bits(3 + 4)  # block size and intra tools, inter tools
    if bits(1):  # order hints
        bits(2)
    screen_content = _SELECT if bits(1) else bits(1)
    integer_motion = _SELECT
    if screen_content and not bits(1):
        integer_motion = bits(1)
    return _Sequence(width, height, size_bits, is_reduced, screen_content, integer_motion, id_bits)


def _skip_operating_points(bits: _Bits) -> None:
    if bits(1):
        raise ValueError("an AV1 header with times, which images do not have")
    has_delay = bits(1)
    for _ in range(bits(5) + 1):
        bits(12)
        if bits(5) > 7:  # level
            bits(1)
        if has_delay and bits(1):
            bits(4)


def _frame_size(bits: _Bits, sequence: _Sequence) -> _Size:
    """The size of a frame, or the largest that it can choose."""
    if sequence.is_reduced:
        return sequence.width, sequence.height
    if bits(1):  # a frame that is there already is shown
        return 0, 0
    kind, is_shown = bits(2), bits(1)
    if not is_shown:
        bits(1)
    if kind != _SWITCH_FRAME and not (kind == _KEY_FRAME and is_shown):
        bits(1)  # error resilience
    bits(1)
    screen_content = bits(1) if sequence.screen_content == _SELECT else sequence.screen_content
    if screen_content and sequence.integer_motion == _SELECT:
        bits(1)
    bits(sequence.id_bits)
    if kind == _SWITCH_FRAME or bits(1):
        return 1 << sequence.size_bits[0], 1 << sequence.size_bits[1]
    return sequence.width, sequence.height
