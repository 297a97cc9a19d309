"""The sizes of the AV1 frames in an AVIF file.

libavif believes the sizes in the boxes of a file, lets the AV1 decoder decode frames of any other size, and then scales
them. So the boxes are followed to the frames, and the headers of these are read.

References:
    AV1 Bitstream & Decoding Process Specification, sections 5.3 (OBUs), 5.5 (sequence header), 5.9 (frame header).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from genpr.images.avif_boxes import Size, avif_boxes
from genpr.images.pieces import counted

_SEQUENCE_HEADER, _FRAME_HEADER, _FRAME = 1, 3, 6
_SELECT = 2  # "each frame says so itself"
_KEY_FRAME, _SWITCH_FRAME = 0, 3
_HEADER_BYTES = 1024  # more than the longest header has up to the sizes


def avif_frames(data: bytes) -> list[Size]:
    """(width, height) of every frame in the images of a file, and in the first pictures of its sequences.

    Frames that choose their size themselves count with the largest that they can choose.

    Raises:
        ValueError: A frame is larger than the file says that its images are, or there is none.
    """
    boxes = avif_boxes(data)
    stated = max((width * height for width, height in boxes.sizes), default=0)
    frames: list[Size] = []
    sequence: _Sequence | None = None
    for kind, body in counted(each for coded in boxes.coded for each in _units(coded)):
        if kind == _SEQUENCE_HEADER:
            sequence = _read_sequence(_Bits(body))
            if sequence.width * sequence.height > stated:
                raise ValueError(
                    f"frames of {sequence.width} x {sequence.height} pixels in images of {stated:,} pixels"
                )
        elif kind in {_FRAME_HEADER, _FRAME} and sequence is not None:
            frames.append(_frame_size(_Bits(body), sequence))
    if not frames:
        raise ValueError("no AV1 frame where its boxes say that there are some")
    return frames


def _units(coded: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Type and content of each open bitstream unit (OBU)."""
    at = 0
    while at < len(coded):
        head = coded[at]
        at += 2 if head & 4 else 1
        size = len(coded) - at
        if head & 2:
            size = 0
            for place in range(8):
                byte = coded[at] if at < len(coded) else 0
                at += 1
                size |= (byte & 127) << 7 * place
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

    def variable(self) -> int:
        """A number of variable length, `uvlc` in the specification."""
        zeros = 0
        while not self(1):
            zeros += 1
        return self(zeros) if zeros < 32 else 0


class _Sequence(NamedTuple):
    """What of a sequence header says how large frames are.

    Attributes:
        width: The largest, in pixels.
        height: Likewise.
        size_bits: (bits of a width, bits of a height) in frames that choose their own.
        is_reduced: Whether frames are stills without most of their header.
        time_bits: Of the time at which a frame is shown, 0 if there is none.
        screen_content: 0, 1 or `_SELECT`.
        integer_motion: Likewise.
        id_bits: Of the number of a frame, 0 if there is none.
    """

    width: int
    height: int
    size_bits: Size
    is_reduced: bool
    time_bits: int = 0
    screen_content: int = _SELECT
    integer_motion: int = _SELECT
    id_bits: int = 0


def _read_sequence(bits: _Bits) -> _Sequence:
    bits(4)  # profile, still picture
    is_reduced = bool(bits(1))
    time_bits = id_bits = 0
    if is_reduced:
        bits(5)  # level
    else:
        time_bits = _skip_operating_points(bits)
    size_bits = bits(4) + 1, bits(4) + 1
    width, height = bits(size_bits[0]) + 1, bits(size_bits[1]) + 1
    if is_reduced:
        return _Sequence(width, height, size_bits, is_reduced)
    if bits(1):
        id_bits = bits(4) + 2 + bits(3) + 1
    bits(3 + 4)  # block size and intra tools, inter tools
    if bits(1):  # order hints
        bits(2)
    screen_content = _SELECT if bits(1) else bits(1)
    integer_motion = _SELECT
    if screen_content and not bits(1):
        integer_motion = bits(1)
    return _Sequence(width, height, size_bits, is_reduced, time_bits, screen_content, integer_motion, id_bits)


def _skip_operating_points(bits: _Bits) -> int:
    """Pass over timing and operating points; how many bits the time of a frame has."""
    time_bits = delay_bits = 0
    if bits(1):  # timing
        bits(64)
        is_even = bits(1)
        if is_even:
            bits.variable()
        if bits(1):  # decoder model
            delay_bits = bits(5) + 1
            bits(32 + 5)
            shown_bits = bits(5) + 1
            time_bits = 0 if is_even else shown_bits
    has_delay = bits(1)
    for _ in range(bits(5) + 1):
        bits(12)
        if bits(5) > 7:  # level
            bits(1)
        if delay_bits and bits(1):
            bits(2 * delay_bits + 1)
        if has_delay and bits(1):
            bits(4)
    return time_bits


def _frame_size(bits: _Bits, sequence: _Sequence) -> Size:
    """The size of a frame, or the largest that it can choose."""
    if sequence.is_reduced:
        return sequence.width, sequence.height
    if bits(1):  # a frame that is there already is shown
        return 0, 0
    kind, is_shown = bits(2), bits(1)
    if is_shown:
        bits(sequence.time_bits)
    else:
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
