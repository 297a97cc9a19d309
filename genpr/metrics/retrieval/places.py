"""Where the relevant candidates of each query are in its ranking, and what every metric of rankings makes of that.

Candidates of equal score have no order. Every number here is the mean over all orders of them, as if each were drawn
at random (McSherry and Najork 2008, "Computing Information Retrieval Performance Measures Efficiently in the Presence
of Tied Scores"), so a scorer that knows nothing gets exactly what guessing gets.

In short, for one of r relevant ones among e candidates of equal score, g candidates and a relevant ones being before
all of these, its place is g + j with j uniform on 1..e; J of these places are within the cut, J = min(e, cut - g).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Counts: TypeAlias = NDArray[np.int64]
Numbers: TypeAlias = NDArray[np.float64]
_Wide: TypeAlias = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is relevant to each of q queries.

    Attributes:
        offsets: (q + 1,) int64; the relevant ones of query i are those from offsets[i] to offsets[i + 1].
        gains: (p,) float64, positive, what finding each is worth in DCG; within a query in any order.
    """

    offsets: Counts
    gains: Numbers

    @property
    def count(self) -> Counts:
        """Relevant ones of each query, (q,) int64."""
        return np.diff(self.offsets)

    @property
    def query(self) -> Counts:
        """The query of each relevant one, (p,) int64."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.count)

    def ideal(self, cut: Counts) -> Numbers:
        """DCG of the best order, up to place `cut` (q,): (q,) float64."""
        query = self.query
        best = self.gains[np.lexsort((-self.gains, query))]
        place = np.arange(len(best)) - self.offsets[query]
        within = place < cut[query]
        worth = best[within] * discounts(int(self.count.max(initial=0)))[place[within]]
        return _totals(query[within], worth, len(cut))


@dataclass(frozen=True, slots=True)
class Places:
    """Where relevant candidates are; sorted by query, then by place. Of a list, those that are in it.

    Attributes:
        query: (p,) int64, its query.
        above: (p,) int64, candidates of a higher score: g.
        tied: (p,) int64, candidates of its score, itself among them: e.
        relevant_above: (p,) int64, relevant ones of a higher score: a.
        relevant_tied: (p,) int64, relevant ones of its score: r.
        gain: (p,) float64.
    """

    query: Counts
    above: Counts
    tied: Counts
    relevant_above: Counts
    relevant_tied: Counts
    gain: Numbers

    @classmethod
    def of(cls, query: Counts, above: Counts, tied: Counts, gain: Numbers) -> Places:
        """Sort the places (p,) of relevant candidates, and count which of them are before which."""
        order = np.lexsort((gain, above, query))
        query, above, tied, gain = query[order], above[order], tied[order], gain[order]
        at = np.arange(len(query))
        new_query = np.ones(len(query), dtype=bool)
        new_query[1:] = query[1:] != query[:-1]
        new_score = new_query.copy()
        new_score[1:] |= above[1:] != above[:-1]
        first_of_query = np.maximum.accumulate(np.where(new_query, at, 0))
        group = np.cumsum(new_score) - 1
        first_of_score = np.flatnonzero(new_score)[group] if len(at) else at
        return cls(
            query,
            above,
            tied,
            first_of_score - first_of_query,
            np.bincount(group)[group] if len(at) else at,
            gain,
        )

    @classmethod
    def by_chance(cls, wanted: Wanted, pool: Counts) -> Places:
        """The places when all candidates have one score; `pool` (q,) is how many each query has."""
        query = wanted.query
        return cls.of(query, np.zeros_like(query), pool[query], wanted.gains)

    def at_worst(self) -> Places:
        """The places when relevant ones come after all others of their score, those of least gain first."""
        at = np.arange(len(self.query))
        start = np.searchsorted(self.query, self.query)  # sorted by place, then gain: the order wanted
        within = at - start - self.relevant_above
        return replace(
            self,
            above=self.above + self.tied - self.relevant_tied + within,
            tied=np.ones_like(at),
            relevant_above=self.relevant_above + within,
            relevant_tied=np.ones_like(at),
        )

    def found(self, cut: Counts) -> Numbers:
        """Relevant ones up to place `cut` (q,): (q,), mean over orders."""
        return _totals(self.query, self._reach(cut) / self.tied, len(cut))

    def hit(self, cut: Counts) -> Numbers:
        """Probability that any relevant one is up to place `cut` (q,): (q,)."""
        out = np.zeros(len(cut))
        first = self._first()
        e, r, reach = self.tied[first], self.relevant_tied[first], self._reach(cut)[first]
        few, many = np.minimum(r, reach), np.maximum(r, reach)
        missed = np.ones(len(first))
        for i in range(int(few.max(initial=0))):
            missed *= np.where(i < few, np.maximum(e - many - i, 0) / np.maximum(e - i, 1), 1.0)
        out[self.query[first]] = np.where(r == 1, reach / e, 1 - missed)
        return out

    def reciprocal(self, cut: Counts) -> Numbers:
        """1 / place of the first relevant one, 0 where that is beyond `cut` (q,): (q,), mean over orders."""
        out = np.zeros(len(cut))
        first = self._first()
        g, e, r, reach = (
            self.above[first],
            self.tied[first],
            self.relevant_tied[first],
            self._reach(cut)[first],
        )
        value = np.asarray(self._reciprocals(first, reach) / e, dtype=np.float64)
        several = np.flatnonzero((r > 1) & (e > 1))
        kinds, kind = np.unique(np.stack([g, e, r, reach], axis=1)[several], axis=0, return_inverse=True)
        value[several] = np.array([_first_of_several(*row) for row in kinds.tolist()])[kind.ravel()]
        out[self.query[first]] = value
        return out

    def precisions(self, cut: Counts) -> Numbers:
        """Sum over relevant ones up to place `cut` (q,) of the precision at their places: (q,), mean over orders."""
        reach = self._reach(cut)
        inverse = self._reciprocals(slice(None), reach)
        others = (self.relevant_tied - 1) / np.maximum(self.tied - 1, 1).astype(np.longdouble)
        total = (self.relevant_above + 1) * inverse + others * (reach - (self.above + 1) * inverse)
        return _totals(self.query, total / self.tied, len(cut))

    def discounted_gain(self, cut: Counts) -> Numbers:
        """DCG up to place `cut` (q,): (q,), mean over orders."""
        reach = self._reach(cut)
        terms = discounts(self._length())
        mean = _between(terms, self.above, reach) / self.tied
        return _totals(self.query, self.gain * mean, len(cut))

    def _reach(self, cut: Counts) -> Counts:
        reach: Counts = np.clip(cut[self.query] - self.above, 0, self.tied)
        return reach

    def _first(self) -> Counts:
        """Rows of one of the best relevant ones of each query that has any."""
        first: Counts = np.unique(self.query, return_index=True)[1]
        return first

    def _length(self) -> int:
        return int((self.above + self.tied).max(initial=1))

    def _reciprocals(self, rows: Counts | slice, reach: Counts) -> _Wide:
        """Sum of 1 / place over the `reach` places from `above` on."""
        terms = 1 / np.arange(1, self._length() + 1, dtype=np.longdouble)
        return _between(terms, self.above[rows], reach)


def discounts(length: int) -> _Wide:
    """1 / log2(1 + place) of places 1 to `length`."""
    return np.log2(np.arange(2, length + 2, dtype=np.longdouble)) ** -1


def _totals(query: Counts, values: Numbers | _Wide, queries: int) -> Numbers:
    return np.bincount(query, values.astype(np.float64), queries).astype(np.float64)


def _between(terms: _Wide, above: Counts, reach: Counts) -> _Wide:
    """Sums of `reach` terms from place `above` + 1 on; a single one is that term, to the last bit."""
    sums = np.concatenate([np.zeros(1, dtype=np.longdouble), np.cumsum(terms)])
    last = len(terms) - 1
    return np.where(
        reach == 1,
        terms[np.minimum(above, last)],
        sums[np.minimum(above + reach, last + 1)] - sums[np.minimum(above, last + 1)],
    )


def _first_of_several(above: int, tied: int, relevant: int, reach: int) -> float:
    """Mean of 1 / place of the first of `relevant` among `tied`, 0 where it is beyond `reach` of these."""
    j = np.arange(1, min(reach, tied - relevant + 1) + 1)
    none_before = np.cumprod(np.concatenate([[1.0], (tied - relevant - j[:-1] + 1) / (tied - j[:-1] + 1)]))
    return float(np.sum(none_before[: len(j)] * relevant / (tied - j + 1) / (above + j)))
