"""Random halves of a set, one bit per half, and counting by bits.

Halves come in pairs: a random half of the rows and the other half. Bit b of a row is set if it belongs to half
b, so one operation on a word of 64 bits handles 64 halves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from genpr.neighbors.engine import places

REPLICATES = 100  # halves of which replicates are made
REAL_STREAM, FAKE_STREAM = 0, 1
_WORD = 64
_GATHER = 0x0102040810204080  # times eight bytes of 0 or 1: they become the bits of the highest byte, the first the lowest
_FEW = 16  # rows that are counted one by one
_HALVES_OF_A_ROW, _ONE_SHORT_ROW_OF = 50, 100


@dataclass(frozen=True, slots=True)
class Halves:
    """Which of n rows belong to which halves."""

    masks: Tensor  # (n, w) int64; bit b % 64 of word b // 64 is set where the row belongs to half b
    count: int  # number of halves B. Halves 2 s and 2 s + 1 share no row
    size: int  # rows of each half, floor(n / 2); of an odd n, one row belongs to neither half of a pair

    @classmethod
    def drawn(
        cls,
        n: int,
        *,
        seed: int,
        stream: int,
        count: int = REPLICATES,
        device: torch.device,
        groups: Tensor | None = None,
    ) -> Halves:
        """Draw halves that depend on the arguments alone.

        Rows of one of the `groups` (n,), numbered from 0, are in the same half, except in the group at the middle of the random order.
        """
        # Streams of a bit generator never change between versions of NumPy; permutations may.
        raw = np.random.PCG64(np.random.SeedSequence([seed, n, stream]))
        size, inside = n // 2, np.zeros((count, n), dtype=bool)
        for split in range(count // 2):
            if groups is None:
                order = np.argpartition(raw.random_raw(n), [size, 2 * size] if n % 2 else size)
            else:
                ranks = np.argsort(np.argsort(raw.random_raw(int(groups.max()) + 1)))
                order = np.argsort(ranks[groups.cpu().numpy()], kind="stable")
            inside[2 * split, order[:size]] = True
            inside[2 * split + 1, order[size : 2 * size]] = True
        return cls(packed(torch.from_numpy(inside).T).to(device), count, size)

    def members(self) -> Tensor:
        """Which rows belong to each half: (B, n) bool."""
        return unpacked(self.masks).T[: self.count]


def neighbors_needed(k: int) -> int:
    """Number of nearest others of a row that contain at least `k` of each half of the row, for 99 of 100 rows.

    For 100 halves, of which a row belongs to 50.
    """
    count = 2 * k
    at_k = math.comb(count, k - 1)
    fewer = (2**count - math.comb(count, k)) // 2  # ways to hold fewer than k
    while _HALVES_OF_A_ROW * fewer * _ONE_SHORT_ROW_OF > 2**count:
        fewer, at_k = 2 * fewer - at_k, at_k * (count + 1) // (count + 2 - k)
        count += 1
    return count


def packed(inside: Tensor) -> Tensor:
    """(..., B) bool as (..., w) int64."""
    octets = pad(inside, (0, -inside.shape[-1] % _WORD)).contiguous().view(torch.int64)
    return octets.mul_(_GATHER).bitwise_right_shift_(56).to(torch.uint8).view(torch.int64)


def unpacked(bits: Tensor) -> Tensor:
    """(..., w) int64 as (..., 64 w) bool."""
    place = torch.arange(8, dtype=torch.uint8, device=bits.device)
    # A copy, since a view needs a last stride of 1, even of one word.
    octets = bits.clone(memory_format=torch.contiguous_format).view(torch.uint8)[..., None]
    return (octets >> place).bitwise_and_(1).view(torch.bool).flatten(-2)


def counted(bits: Tensor) -> Tensor:
    """How many of `bits` (p, w) int64 are set in each place: (64 w,) int64.

    Carry-save addition: three words of one weight become a word of sums and a word of carries of twice the weight, 64
    places at a time (Harley and Seal, in Warren, "Hacker's Delight"). A GPU adds them one by one, in few operations.
    """
    if bits.device.type != "cpu":
        return unpacked(bits).sum(dim=0)
    words, weights, weight = [bits[:0]], list[int](), 1
    while len(bits):
        carries = [bits[:0]]
        while len(bits) > _FEW:
            third = len(bits) // 3
            a, b, c = bits[:third], bits[third : 2 * third], bits[2 * third : 3 * third]
            either = a ^ b
            carries.append((a & b).bitwise_or_(either & c))
            bits = torch.cat([either.bitwise_xor_(c), bits[3 * third :]])
        words.append(bits)
        weights += [weight] * len(bits)
        bits, weight = torch.cat(carries), 2 * weight
    each = unpacked(torch.cat(words)).long()
    return (each * torch.tensor(weights, device=each.device)[:, None]).sum(dim=0)


class Hits:
    """Number of hits of each row in each half, counted up to `most`."""

    def __init__(self, masks: Tensor, most: int) -> None:
        self.planes = (~masks).repeat(most, 1, 1)
        # (n,) rows with counts of `most` in all halves
        self.settled = torch.zeros(len(masks), dtype=torch.bool, device=masks.device)
        self._taken = torch.empty(len(masks), dtype=torch.int64, device=masks.device)

    def add(self, rows: Tensor, bits: Tensor) -> None:
        """Add a hit to `rows` (p,) in the halves of `bits` (p, w); a row may occur any number of times.

        One occurrence of each row is added at a time, and those without effect are dropped, until none is left. Counts
        do not depend on the order. A GPU counts all occurrences at once.
        """
        if bits.device.type != "cpu":
            met = torch.zeros(len(self._taken), _WORD * bits.shape[1], dtype=torch.int32, device=bits.device)
            met.index_add_(0, rows, unpacked(bits).int())
            self.merge(torch.stack([packed(met > t) for t in range(len(self.planes))]))
            self.settled = (self.planes[-1] == -1).all(dim=1)
            return
        touched = rows
        while True:
            news = places(((bits & ~self.planes[-1].index_select(0, rows)) != 0).any(dim=1))
            if not len(news):
                break
            rows, bits = rows[news], bits.index_select(0, news)
            number = torch.arange(len(rows), device=rows.device)
            self._taken[rows] = number
            is_taken = self._taken.index_select(0, rows) == number
            at, later = places(is_taken), places(~is_taken)
            distinct, added = rows[at], bits.index_select(0, at)
            for plane in range(len(self.planes) - 1, 0, -1):
                self.planes[plane, distinct] |= self.planes[plane - 1, distinct] & added
            self.planes[0, distinct] |= added
            rows, bits = rows[later], bits.index_select(0, later)
        self.settled[touched] = (self.planes[-1].index_select(0, touched) == -1).all(dim=1)

    def merge(self, theirs: Tensor) -> None:
        """Add disjoint hits that were counted elsewhere, by their `planes`."""
        ours = self.planes.clone()
        self.planes |= theirs
        for plane in range(1, len(ours)):
            for mine in range(plane):
                self.planes[plane] |= ours[mine] & theirs[plane - 1 - mine]
