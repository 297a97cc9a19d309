"""Going on on the CPU, where a GPU that nobody insisted on has too little memory for the least piece of work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from genpr.distributed.team import current_team
from genpr.features.embedder import Embedder, Space, told_by_ranks
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedImages, is_one_shot
from genpr.notices import Notice
from genpr.shortage import is_out_of_memory, release, shortages, tell

_Found = TypeVar("_Found")


def going_on(
    embedder: Embedder, work: Callable[[Embedder], _Found], what: str, *, can_move: bool = True
) -> tuple[_Found, tuple[Notice, ...]]:
    """Do the work where the embedder computes; if memory runs out there, all of it anew on the spare device, if it has one.

    Args:
        embedder: Says where.
        work: Given an embedder, computes where that does.
        what: What it is for, in the notice.
        can_move: Whether it can be done elsewhere.

    Returns:
        What `work` returned, and what is to be told about memory.

    Raises:
        Exception: Whatever `work` raises, if there is nowhere to go on.
    """
    with shortages() as told:
        try:
            return work(embedder), told_by_ranks(told)
        except Exception as error:
            if not (can_move and _has_spare(embedder) and is_out_of_memory(error)):
                raise
        # The error is gone by now, and with it the memory that the failed work took.
        release(embedder.device.type)
        tell("oom-cpu", device=embedder.device, what=what)
        return work(replace(embedder, on="cpu", _loaded={})), tuple(told)


def _has_spare(embedder: Embedder) -> bool:
    # Ranks that share a score stay together: one that begins anew would leave the others waiting.
    return embedder.on == "auto" and embedder.device.type != "cpu" and current_team().is_alone


def embed_patiently(
    embedder: Embedder, side: OpenedImages, role: str, spaces: Sequence[Space], limit: int | None
) -> list[FeatureSet]:
    """As `Embedder.embed`, and the features say what was done about memory.

    Those of a CPU differ from those of a GPU in their last bits, so all images of the side are embedded anew there.
    """

    def embedded(where: Embedder) -> list[FeatureSet]:
        return where.embed(side, role, spaces, limit)

    # An object of the user's is where the user put it.
    can_move = all(isinstance(space, str) for space in spaces) and not is_one_shot(side.source)
    sets, told = going_on(embedder, embedded, f"for {role} images", can_move=can_move)
    return [replace(features, notices=(*features.notices, *told)) for features in sets]
