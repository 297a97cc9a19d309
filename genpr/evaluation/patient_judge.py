"""A judge that goes on on the CPU where a GPU that nobody insisted on has too little memory for the search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from genpr.evaluation.evidence import Evidence
from genpr.evaluation.judge import Judge
from genpr.evaluation.label_recipe import LabelRecipe
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.result import Result
from genpr.features.cpu_fallback import going_on
from genpr.features.embedded_source import SideFeatures
from genpr.features.embedder import Embedder
from genpr.notices import Notice, notice
from genpr.runtime import gpu_trouble

_Found = TypeVar("_Found")


class PatientJudge:
    """As `Judge`, and its results say what was done about memory.

    Once on the CPU it stays there: what did not fit once will not fit again.

    Args:
        plan: As of `Judge`.
        real: As of `Judge`.
        embedder: How it was embedded, and where to begin.
        held_out: As of `Judge`.
        labels: As of `Judge`.
    """

    def __init__(
        self,
        plan: ScorePlan,
        real: SideFeatures,
        embedder: Embedder,
        held_out: SideFeatures | None = None,
        labels: LabelRecipe | None = None,
    ) -> None:
        self._make = partial(Judge, plan, real, held_out=held_out, labels=labels)
        self._embedder = embedder
        self._fitted: Judge | None = None
        trouble = gpu_trouble() if embedder.on == "auto" else None
        self._notices: tuple[Notice, ...] = (
            () if trouble is None else (notice("gpu-unusable", reason=trouble),)
        )
        self._patiently(lambda judge: judge)

    @property
    def judge(self) -> Judge:
        """The one that judges now, fitted where there is memory for it."""
        assert self._fitted is not None
        return self._fitted

    def score(self, fake: SideFeatures) -> Result:
        """As `Judge.score`."""
        result, told = self._patiently(lambda judge: judge.score(fake))
        return _with(result, told)

    def evidence(self, fake: SideFeatures) -> Evidence:
        """As `Judge.evidence`."""
        found, told = self._patiently(lambda judge: judge.evidence(fake))
        return replace(found, result=_with(found.result, told))

    def _patiently(self, work: Callable[[Judge], _Found]) -> tuple[_Found, tuple[Notice, ...]]:
        """What `work` returns, and what is to be told about memory, since the reals were fitted."""

        def judged(embedder: Embedder) -> _Found:
            if self._fitted is None or embedder is not self._embedder:
                self._fitted = None  # it holds memory
                self._fitted, self._embedder = self._make(embedder), embedder
            return work(self._fitted)

        found, told = going_on(self._embedder, judged, "for the metrics")
        self._notices = tuple(dict.fromkeys((*self._notices, *told)))
        return found, self._notices


def _with(result: Result, told: tuple[Notice, ...]) -> Result:
    return replace(result, notices=(*result.notices, *told))
