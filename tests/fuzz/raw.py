"""Damage that needs no knowledge of a format: bits, bytes, lengths, cuts and splices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

Damage = Callable[[Random, bytes], bytes]

INTERESTING = (0, 1, -1, 2, 7, 8, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1)
_HUGE = (2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def flip_bits(rng: Random, data: bytes) -> bytes:
    """Up to eight bits."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if found:
            found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def set_bytes(rng: Random, data: bytes) -> bytes:
    """A short stretch, at random or to one value."""
    place, length = _place(rng, data), rng.choice((1, 2, 4, 16))
    stretch = rng.randbytes(length) if rng.random() < 0.5 else bytes([rng.choice((0, 255, 32, 10))]) * length
    return data[:place] + stretch + data[place + length :]


def set_number(rng: Random, data: bytes) -> bytes:
    """A number of 1 to 8 bytes, in either order, such as a length that is 0, -1 or huge."""
    size = rng.choice((1, 2, 4, 8))
    value = rng.choice(INTERESTING + (_HUGE if size == 8 else ())) % 2 ** (8 * size)
    place = _place(rng, data)
    return data[:place] + value.to_bytes(size, rng.choice(("little", "big"))) + data[place + size :]


def cut(rng: Random, data: bytes) -> bytes:
    """The start of the file, or all but its last bytes."""
    return data[: _place(rng, data)] if rng.random() < 0.5 else data[: -rng.choice((1, 2, 8, 64))]


def remove(rng: Random, data: bytes) -> bytes:
    """All but a stretch in the middle."""
    first, last = sorted((_place(rng, data), _place(rng, data)))
    return data[:first] + data[last:]


def repeat(rng: Random, data: bytes) -> bytes:
    """A stretch comes again, up to a thousand times."""
    first = _place(rng, data)
    stretch = data[first : first + rng.choice((1, 4, 32, 256))]
    return data[:first] + stretch * rng.choice((1, 2, 50, 1000)) + data[first:]


def add(rng: Random, data: bytes) -> bytes:
    """Bytes behind, before or within."""
    place = rng.choice((0, len(data), _place(rng, data)))
    return data[:place] + rng.randbytes(rng.choice((1, 16, 600))) + data[place:]


def splice(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """The start of one file and the end of another."""
    other = rng.choice(others)
    return data[: _place(rng, data)] + other[_place(rng, other) :]


RAW: tuple[Damage, ...] = (flip_bits, flip_bits, set_bytes, set_number, set_number, cut, remove, repeat, add)


def _place(rng: Random, data: bytes) -> int:
    """Anywhere, and more often near the start, where headers are."""
    if not data:
        return 0
    return rng.randrange(min(len(data), 64) if rng.random() < 0.4 else len(data))
