"""Every metric that can be asked for: its features, its direction, its meaning in one line, its source.

Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """One metric.

    Attributes:
        name: What `metrics=` takes.
        meaning: What it measures, for someone who never saw it, in at most 50 characters.
        better: Whether a better generator has more or less of it.
        space: The extractor on whose features it is defined; None for the extractor of the score.
        uses_k: Whether it counts neighbours.
        looks_at_reals: Whether it compares with reals, or judges the fakes alone.
        least: Images of a side without which it is not defined, beside k + 1.
        reference: Where it was published.
    """

    name: str
    meaning: str
    better: Literal["higher", "lower"]
    space: str | None
    uses_k: bool
    reference: str
    looks_at_reals: bool = True
    least: int = 2


_KYNKAANNIEMI = "Kynkäänniemi et al. 2019, arXiv:1904.06991"
_NAEEM = "Naeem et al. 2020, arXiv:2002.09797"
_HEUSEL = "Heusel et al. 2017, arXiv:1706.08500"
_BINKOWSKI = "Bińkowski et al. 2018, arXiv:1801.01401"
_CHONG = "Chong and Forsyth 2020, arXiv:1911.07023"

_MANIFOLD = (
    ("precision", "share of fakes close to some real image (fidelity)", _KYNKAANNIEMI),
    ("recall", "share of reals close to some fake image (diversity)", _KYNKAANNIEMI),
    ("density", "reals around each fake, over k; may pass 1 (fidelity)", _NAEEM),
    ("coverage", "share of reals with a fake right beside (diversity)", _NAEEM),
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

METRICS: Mapping[str, MetricInfo] = MappingProxyType(
    {
        info.name: info
        for info in (
            *(MetricInfo(name, text, "higher", None, True, source) for name, text, source in _MANIFOLD),
            *(
                MetricInfo(name, text, "lower", space, False, source, least=3 if name == "fd_infinity" else 2)
                for name, text, space, source in _DISTANCES
            ),
            *(
                MetricInfo(name, text, "higher", space, False, source, False, 10 if name == "is" else 2)
                for name, text, space, source in _OF_FAKES
            ),
        )
    }
)
"""By name, in the order in which they are shown."""

MANIFOLD_METRICS = tuple(name for name, info in METRICS.items() if info.uses_k)
"""Those that count neighbours: precision, recall, density, coverage."""
