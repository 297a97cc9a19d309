"""Every metric that can be asked for: its features, its direction, its meaning in one line, its source.

Importing this module does not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from genpr.metrics.asked_for import ASKED_FOR


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """One metric.

    Attributes:
        name: What `metrics=` takes; those of labels, retrieval, alignment and entities carry their family in front.
        meaning: What it measures, for someone who never saw it, in at most 50 characters.
        better: Whether a better generator has more or less of it; or "at null", where a perfect one is in the middle, and
            more and less are both worse.
        space: The extractor on whose features it is defined; None for the extractor of the score.
        kind: Whether it counts neighbours, is a distance between distributions, judges the fakes alone, compares them
            with reals that were held out of training, or compares them with what was asked for: labels, prompts, entities.
        fixed_k: Its number of neighbours, where that cannot be chosen.
        least: Images of a side without which it is not defined, beside k + 1.
        reference: Where it was published.
    """

    name: str
    meaning: str
    better: Literal["higher", "lower", "at null"]
    space: str | None
    kind: Literal["neighbours", "distance", "fakes", "held-out", "asked"]
    reference: str
    fixed_k: int | None = None
    least: int = 2

    @property
    def uses_k(self) -> bool:
        """Whether it counts neighbours."""
        return self.kind == "neighbours"

    @property
    def family(self) -> str:
        """Metrics of different families are never averaged: "manifold" (with the distances), or what its name says."""
        return family_of(self.name)

    @property
    def looks_at_reals(self) -> bool:
        """Whether it compares with reals, or judges the fakes alone."""
        return self.kind != "fakes"


MANIFOLD = "manifold"


def family_of(name: str) -> str:
    """The family of a metric by its name.

    Example:
        >>> family_of("recall"), family_of("entity.recall")
        ('manifold', 'entity')
    """
    family, dot, _ = name.partition(".")
    return family if dot else MANIFOLD


def plain_name(name: str) -> str:
    """The name of a metric as results hold it: `manifold.recall` is `recall`.

    Example:
        >>> plain_name("manifold.recall"), plain_name("entity.recall")
        ('recall', 'entity.recall')
    """
    return name.removeprefix(f"{MANIFOLD}.")


_KYNKAANNIEMI = "Kynkäänniemi et al. 2019, arXiv:1904.06991"
_NAEEM = "Naeem et al. 2020, arXiv:2002.09797"
_HEUSEL = "Heusel et al. 2017, arXiv:1706.08500"
_BINKOWSKI = "Bińkowski et al. 2018, arXiv:1801.01401"
_CHONG = "Chong and Forsyth 2020, arXiv:1911.07023"
_SALVY = "Salvy et al. 2026, arXiv:2507.01761"
_KHAYATKHOEI = "Khayatkhoei and AbdAlmageed 2023, arXiv:2306.09618"
_CHEEMA = "Cheema and Urner 2023, AISTATS, PMLR 206"
_PARK = "Park and Kim 2023, arXiv:2309.01590"
_SYKES = "Sykes et al. 2024, arXiv:2405.01611"
_HERE = "this package"

_MANIFOLD = (
    ("precision", "share of fakes close to some real image (fidelity)", _KYNKAANNIEMI),
    ("recall", "share of reals close to some fake image (diversity)", _KYNKAANNIEMI),
    ("density", "reals around each fake, over k; may pass 1 (fidelity)", _NAEEM),
    ("coverage", "share of reals with a fake right beside (diversity)", _NAEEM),
    ("clipped_density", "density without outliers' large balls (fidelity)", _SALVY),
    ("clipped_coverage", "share of good fakes that covers so much (diversity)", _SALVY),
    ("symmetric_precision", "lesser of precision and its complement (fidelity)", _KHAYATKHOEI),
    ("symmetric_recall", "lesser of recall and coverage (diversity)", _KHAYATKHOEI),
    ("complement_precision", "share of fakes with a real right beside (fidelity)", _KHAYATKHOEI),
    ("complement_recall", "the same as coverage (diversity)", _KHAYATKHOEI),
    ("precision_cover", "share of fakes with k reals among 3 k fakes", _CHEEMA),
    ("recall_cover", "share of reals with k fakes among 3 k reals", _CHEEMA),
    ("p_precision", "precision with soft balls of one size (fidelity)", _PARK),
    ("p_recall", "recall with soft balls of one size (diversity)", _PARK),
    ("f8", "best F8 of a precision-recall curve (diversity)", _SYKES),
    ("f1_8", "best F1/8 of a precision-recall curve (fidelity)", _SYKES),
    ("witnessed_fidelity", "share of fakes that 5 reals vouch for (fidelity)", _HERE),
    ("witnessed_diversity", "lesser of witnessed support and coverage", _HERE),
    ("witnessed_support", "share of reals that 5 fakes vouch for", _HERE),
    ("witnessed_coverage", "share of reals with 4 fakes in their ball", _HERE),
    ("realism", "median over fakes of a real radius over distance", _KYNKAANNIEMI),
    ("rarity", "mean percentile of fakes' smallest real balls", "Han et al. 2022, arXiv:2206.08549"),
    ("authenticity", "share of fakes that copy no real (memorisation)", "Alaa et al. 2022, arXiv:2102.08921"),
)
_FIXED_K = {
    "authenticity": 1,
    "witnessed_fidelity": 20,
    "witnessed_diversity": 20,
    "witnessed_support": 20,
    "witnessed_coverage": 20,
}
_AT_NULL = frozenset({"rarity", "authenticity"})
_NN_ACCURACY = MetricInfo(
    "nn_accuracy",
    "share of images whose nearest is of their own set",
    "at null",
    None,
    "neighbours",
    "Schilling 1986; Xu et al. 2018, arXiv:1806.07755",
    fixed_k=1,
)
_DISTANCES = (
    ("fid", "Fréchet distance of Inception features", "inception", _HEUSEL),
    (
        "sfid",
        "Fréchet distance of Inception feature maps",
        "inception-spatial",
        "Nash et al. 2021, arXiv:2103.03841",
    ),
    ("kid", "kernel distance of Inception features", "inception", _BINKOWSKI),
    (
        "fd_dinov2",
        "Fréchet distance of DINOv2 features",
        "dinov2-vitl14",
        "Stein et al. 2023, arXiv:2306.04675",
    ),
    (
        "cmmd",
        "kernel distance of CLIP embeddings, x 1000",
        "clip-vit-l-14-336",
        "Jayasumana et al. 2024, arXiv:2401.09603",
    ),
    ("fd", "Fréchet distance of the chosen features", None, _HEUSEL),
    ("fd_infinity", "the same, extrapolated to endless fakes", None, _CHONG),
    ("kd", "kernel distance of the chosen features", None, _BINKOWSKI),
)
_OF_FAKES = (
    (
        "is",
        "Inception Score: sharp and varied classes",
        "inception-softmax",
        "Salimans et al. 2016, arXiv:1606.03498",
    ),
    ("vendi", "effective number of different fakes", None, "Friedman and Dieng 2023, arXiv:2210.02410"),
)

_C_T = MetricInfo(
    "c_t",
    "z of distances to reals against held-out ones'",
    "at null",
    None,
    "held-out",
    "Meehan et al. 2020, arXiv:2004.05675",
)

METRICS: Mapping[str, MetricInfo] = MappingProxyType(
    {
        info.name: info
        for info in (
            *(
                MetricInfo(
                    name,
                    text,
                    "at null" if name in _AT_NULL else "higher",
                    None,
                    "neighbours",
                    source,
                    fixed_k=_FIXED_K.get(name),
                )
                for name, text, source in _MANIFOLD
            ),
            _NN_ACCURACY,
            _C_T,
            *(
                MetricInfo(
                    name, text, "lower", space, "distance", source, least=3 if name == "fd_infinity" else 2
                )
                for name, text, space, source in _DISTANCES
            ),
            *(
                MetricInfo(name, text, "higher", space, "fakes", source, least=10 if name == "is" else 2)
                for name, text, space, source in _OF_FAKES
            ),
        )
    }
)
"""Those found from features alone, by name, in the order in which they are shown."""

ASKED: Mapping[str, MetricInfo] = MappingProxyType(
    {
        name: MetricInfo(name, meaning, better, None, "asked", source)
        for name, meaning, better, source in ASKED_FOR
    }
)
"""Those that compare with what was asked for: labels, prompts or entities."""

ALL_METRICS: Mapping[str, MetricInfo] = MappingProxyType({**METRICS, **ASKED})
"""Every metric that a result may hold."""

_FROM_ZERO = frozenset(
    {"density", "clipped_density", "realism", "rarity", "is", "vendi", "alignment.clip_score"}
)
_ANY_VALUE = frozenset(
    {"c_t", *(name for name, *_ in _DISTANCES)}
)  # unbiased estimates of distances may be negative


def range_of(name: str) -> tuple[float, float]:
    """The least and the largest value that a metric can have; all but a few are shares.

    Example:
        >>> range_of("recall"), range_of("density"), range_of("kid")
        ((0.0, 1.0), (0.0, inf), (-inf, inf))
    """
    if name in _ANY_VALUE:
        return -math.inf, math.inf
    return 0.0, math.inf if name in _FROM_ZERO else 1.0


NEIGHBOUR_METRICS = tuple(name for name, info in METRICS.items() if info.uses_k)
"""Those that count neighbours."""

IN_BLOCKS = (
    "coverage",
    "clipped_coverage",
    "symmetric_precision",
    "symmetric_recall",
    "complement_precision",
    "complement_recall",
    "precision_cover",
    "recall_cover",
)
"""Those that move with the ratio of the two sizes, and hardly do so in blocks of equal size."""

PRDC = ("precision", "recall", "density", "coverage")
"""What most people ask for."""
