"""Results made up for pages of comparisons: with replicates, so that differences between them have intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from page_results import NULLS, a_result

SPREAD = 0.004  # of replicates beside what they share: differences from about 0.008 on can be told


def a_scored(values, *, seed=1, nulls=NULLS, **changes):
    """`values` are shares of the nulls, as of `a_result`; replicates of all results share what the reals do to them."""
    made = a_result(values, nulls=nulls, **changes)
    shared = np.random.default_rng(0).normal(0, 0.05, 50)
    own = np.random.default_rng(seed)
    metrics = {
        name: replace(
            metric,
            replicates=tuple(float(each) for each in metric.value + shared + own.normal(0, SPREAD, 50)),
        )
        for name, metric in made.metrics.items()
    }
    return replace(made, metrics=metrics)


def pair(first, other, **changes):
    """Two results by name: `first` and `other` are shares of the nulls."""
    return {"a.json": a_scored(first, **changes), "b.json": a_scored(other, seed=2, **changes)}
