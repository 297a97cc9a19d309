"""Going on on the CPU, where a GPU that nobody insisted on has too little memory for the least piece of work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from genpr.distributed import current_communicator
from genpr.features.embedder import Embedder, Space, told_by_ranks
from genpr.features.feature_set import FeatureSet
from genpr.features.inputs import OpenedImages, is_one_shot
from genpr.notices import Notice
from genpr.runtime import with_cpu_fallback

_Found = TypeVar("_Found")


def going_on(
    embedder: Embedder, work: Callable[[Embedder], _Found], what: str, *, can_move: bool = True
) -> tuple[_Found, tuple[Notice, ...]]:
    """`with_cpu_fallback` for work that takes an embedder; the CPU is used only where "auto" chose a GPU.

    Ranks that share a score stay together: one that started again would leave the others waiting.
    """
    first = embedder.device

    def run(device: torch.device) -> _Found:
        return work(embedder if device == first else embedder.on_cpu())

    may_move = can_move and embedder.on == "auto" and current_communicator().is_single_process
    found, notices = with_cpu_fallback(first, run, what, can_move=may_move)
    return found, told_by_ranks(notices)


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
