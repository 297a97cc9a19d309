"""Reals that a generator was not trained on."""

from __future__ import annotations

from collections.abc import Sequence

from genpr.evaluation.plan import ScorePlan
from genpr.features.inputs import OpenedInput, check_same_kind, open_input
from genpr.features.source_features import Embedder, SourceFeatures


def embedded_held_out(
    source: object, real: OpenedInput, plans: Sequence[ScorePlan], embedder: Embedder
) -> SourceFeatures | None:
    """The held-out reals, in the space of each plan's own extractor.

    Args:
        source: Anything that a side may be; None for none.
        real: The real side, of the same kind.
        plans: What will be computed.
        embedder: How the real side was embedded.

    Raises:
        UsageError: The path does not exist.
        DataError: They cannot be used, or do not belong to the real side.
    """
    if source is None:
        return None
    opened = open_input(source, "held-out")
    check_same_kind(real, opened)
    own = [plan.own for plan in plans]
    side = SourceFeatures(opened, "held-out", embedder, declared=own)
    side.require(own, minimum=1)
    return side
