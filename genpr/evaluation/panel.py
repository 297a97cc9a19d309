"""Panels: scores in several representations, with a result per extractor.

Importing this module does not import torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from genpr.errors import UsageError, get_named
from genpr.evaluation.compare import results_text
from genpr.evaluation.options import ScoreKeywords, ScoreOptions
from genpr.evaluation.plan import ScorePlan
from genpr.evaluation.protocols import find_protocol
from genpr.evaluation.result import Result
from genpr.features.options import takes_options
from genpr.features.registry import canonical_name
from genpr.features.representations import FDR6, FrechetRatios, frechet_ratios
from genpr.metrics.registry import HELD_OUT, METRICS
from genpr.validation import entry_point

if TYPE_CHECKING:
    from genpr.features.source_features import ExtractorLike

RATIO = "fd"
"""The metric that is divided by its value for held-out reals."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class PanelResult(Mapping[str, Result]):
    """The results of a panel by representation, in the given order.

    Attributes:
        results: Results by name of the representation, each equal to that of a score with this extractor alone.
        held_out: Results of the held-out reals, scored like the fakes against the same reals; empty without held-out reals.
        others: The metrics with fixed features, such as `fid`, which do not depend on the representation; None without any.
        others_held_out: The same metrics for the held-out reals.
    """

    results: Mapping[str, Result]
    held_out: Mapping[str, Result]
    others: Result | None = None
    others_held_out: Result | None = None

    def __getitem__(self, name: str) -> Result:
        """The result of one representation."""
        return get_named(self.results, name, "representation")

    def __iter__(self) -> Iterator[str]:
        """The names of the representations."""
        return iter(self.results)

    def __len__(self) -> int:
        """The number of representations."""
        return len(self.results)

    def __str__(self) -> str:
        """Each result with its notices, under its name."""
        return results_text(self.every)

    @property
    def every(self) -> dict[str, Result]:
        """All results, including that of the metrics with fixed features."""
        return {**self.results, **({} if self.others is None else {"other features": self.others})}

    @property
    def ratios(self) -> dict[str, float | None]:
        """FD divided by the FD of held-out reals, or by that of the control without held-out reals, by representation.

        The control compares halves of the reals. FD increases for fewer images, so this ratio is smaller than one with as many
        held-out reals as fakes. None if a value is unknown, if the divisor is 0 up to rounding, and for FD to reference
        statistics without held-out reals, since the control compares images.
        """
        ratios: dict[str, float | None] = dict.fromkeys(self.results)
        for name, result in self.results.items():
            found, base = result.metrics.get(RATIO), None
            if name in self.held_out:
                of_held_out = self.held_out[name].metrics.get(RATIO)
                base = None if of_held_out is None else of_held_out.value
            elif result.control is not None and result.reference_statistics is None:
                base = result.control.values.get(RATIO)
            if found is not None and base is not None and base > _ROUNDING * found.value:
                ratios[name] = found.value / base
        return ratios

    @property
    def fdr6(self) -> FrechetRatios | None:
        """FDr and FDr6 of FD-loss, for protocol `fdr6` with the distances of all its representations."""
        distances = {
            name: each.metrics[RATIO].value for name, each in self.results.items() if RATIO in each.metrics
        }
        is_fdr6 = all(each.protocol == "fdr6" for each in self.results.values())
        is_whole = distances.keys() == {each.name for each in FDR6}
        return frechet_ratios(distances) if is_fdr6 and is_whole else None

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain JSON types; `genpr.load_results` reads the results of the representations from it."""
        others = {"fake": self.others, "held_out": self.others_held_out}
        return {
            "results": {name: result.to_dict() for name, result in self.results.items()},
            "held_out": {name: result.to_dict() for name, result in self.held_out.items()},
            "others": {role: None if each is None else each.to_dict() for role, each in others.items()},
            "ratios": self.ratios,
            "fdr6": None if self.fdr6 is None else asdict(self.fdr6),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """`to_dict` as text; NaN and infinities cannot occur."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)


@takes_options(ScoreOptions, without={"extractor", "labels"})
@entry_point
def score_panel(
    real: object,
    fake: object,
    *,
    extractors: Sequence[ExtractorLike] | Mapping[str, ExtractorLike] | None = None,
    **options: Unpack[ScoreKeywords],
) -> PanelResult:
    """Score one fake set against one real set in several representations; each image is decoded once.

    Each result is equal to that of `genpr.score` with this extractor alone. Features of all representations are kept in memory
    together, and all networks are on the device together where they fit.

    Args:
        real: Real images, as for `Evaluator`.
        fake: Generated images.
        extractors: At least one, each as for `genpr.score`; a mapping defines their names. Not needed for protocols "fdr6" and "mind6".
        **options: The fields of `ScoreOptions`.

    Raises:
        UsageError: A path or name does not exist, an extractor is given twice, or an option is impossible.
        DataError: A side cannot be used, or the two do not belong together.
        ResourceError: Weights, device or memory are missing.

    Example:
        >>> import numpy as np
        >>> real, fake = np.random.default_rng(0).integers(0, 256, (2, 40, 8, 8, 3), dtype=np.uint8)
        >>> panel = score_panel(real, fake, extractors=["pixels", "gabor"], device="cpu")
        >>> list(panel), list(panel["gabor"].metrics)
        (['pixels', 'gabor'], ['calibrated_precision', 'calibrated_recall', 'precision', 'recall', 'density', 'coverage', 'fd'])
    """
    return score_choices(real, fake, panel_choices(extractors, ScoreOptions(**options)))


def panel_choices(
    extractors: Sequence[ExtractorLike] | Mapping[str, ExtractorLike] | None, options: ScoreOptions
) -> dict[str | None, ScoreOptions]:
    """The options of each extractor by its name, and at None those of metrics with fixed features, if any.

    The default metrics are those of the protocol, and FD unless the protocol has a panel.

    Raises:
        UsageError: There is no extractor, one is given twice, or an option is impossible.
    """
    if options.extractor is not None or options.labels is not None:
        text = "a panel has extractors instead of extractor, and no labels; use genpr.score with one extractor for labels"
        raise UsageError(text, code="bad-option")
    recipe, held_out = find_protocol(options.protocol), options.held_out is not None
    default = (
        recipe.metrics if recipe.panel else (*recipe.metrics, *{RATIO}.intersection(recipe.allowed_metrics))
    )
    names = recipe.choose_metrics(options.metrics or default, held_out=held_out)
    # Without metrics of the representations, the first plan raises an error.
    rows = [
        name for name in names if METRICS[name].extractor is None and name not in recipe.extractors
    ] or names
    named = _named(recipe.panel if extractors is None else extractors)
    choices: dict[str | None, ScoreOptions] = {
        name: replace(options, extractor=key, metrics=rows) for name, key in named.items()
    }
    if rest := [name for name in names if name not in rows]:
        choices[None] = replace(options, extractor=None, metrics=rest, held_out=None, k=None)
    for each in choices.values():
        ScorePlan.from_options(None, each)
    return choices


def score_choices(real: object, fake: object, choices: Mapping[str | None, ScoreOptions]) -> PanelResult:
    """The scores of `panel_choices`."""
    from genpr.evaluation.evaluator import score_with  # imports torch

    scored = score_with(real, fake, list(choices.values()), score_held_out=True)
    rows = dict(zip(choices, scored, strict=True))
    others = rows.pop(None, None)
    results = {str(name): each.result for name, each in rows.items()}
    held_out = {}
    for name, each in rows.items():
        if each.held_out is not None:  # without the metrics that compare fakes with them
            metrics = {
                metric: value for metric, value in each.held_out.metrics.items() if metric not in HELD_OUT
            }
            held_out[str(name)] = replace(each.held_out, metrics=metrics)
    if others is None:
        return PanelResult(results, held_out)
    return PanelResult(results, held_out, others.result, others.held_out)


def _named(extractors: Sequence[ExtractorLike] | Mapping[str, ExtractorLike]) -> dict[str, ExtractorLike]:
    """The extractors of a panel by their names."""
    if isinstance(extractors, str) or callable(extractors):
        extractors = [extractors]
    given = extractors.items() if isinstance(extractors, Mapping) else [("", each) for each in extractors]
    named: dict[str, ExtractorLike] = {}
    for label, each in given:
        if isinstance(each, str):
            key: ExtractorLike = canonical_name(each)
            name = label or str(key)
        else:
            from genpr.features.custom import extractor_info  # imports torch

            key, name = each, label or extractor_info(each).name
        if name in named or key in named.values():
            text = f"extractor {name} is given twice; give each once, or a mapping with different names"
            raise UsageError(text, code="extractor-twice")
        named[name] = key
    if not named:
        raise UsageError("a panel needs at least one extractor", code="bad-option")
    return named
