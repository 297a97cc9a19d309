"""All metrics by name; those of whole sets are here: the test of copying, distances, and scores of the fakes alone.

Importing this module does not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from genpr.errors import UsageError, similar, some
from genpr.metrics.ball_metrics import NEIGHBOR_METRICS
from genpr.metrics.metric import (
    BallMetric,
    DistributionMetric,
    DistributionOptions,
    HeldOutMetric,
    Metric,
    MetricValue,
    NeighborMetric,
    PairwiseMetric,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from genpr.metrics.frechet import Gaussian
    from genpr.metrics.kernel import KernelDistance
    from genpr.neighbors.engine import PairProgress

M = TypeVar("M", bound=Metric)

_HEUSEL = "Heusel et al. 2017, arXiv:1706.08500"
_BINKOWSKI = "Bińkowski et al. 2018, arXiv:1801.01401"
_STEIN = "Stein et al. 2023, arXiv:2306.04675"
_JAYASUMANA = "Jayasumana et al. 2024, arXiv:2401.09603"
_CHONG = "Chong and Forsyth 2020, arXiv:1911.07023"
_BERTHET = "Berthet et al. 2026, arXiv:2605.06797"
_LABELS = "Sokolova and Lapalme 2009, 10.1016/j.ipm.2009.03.002"
_RANKS = "Manning et al. 2008, Introduction to Information Retrieval"
_R_PRECISION = "Xu et al. 2018, arXiv:1711.10485; Park et al. 2021"
_NDCG = "Järvelin and Kekäläinen 2002, 10.1145/582415.582418"
_ENTITIES = "Hinz et al. 2020, arXiv:1910.13321"
_CLIP_SCORE = "Hessel et al. 2021, arXiv:2104.08718"
_DREAMBOOTH = "Ruiz et al. 2023, arXiv:2208.12242"
_GAN_TEST = "Shmelkov et al. 2018, arXiv:1807.09499"
_GAN_TRAIN = "Shmelkov et al. 2018; Ravuri and Vinyals 2019, arXiv:1905.10887"

_ROUNDING = 1e-6  # of shares that are means of float32
_LARGEST = 1e100  # beyond it, sums and axes of plots overflow


def _with_influence(
    module: str,
    function: str,
    *,
    lower: float | None = None,
    described: Callable[[Any, Tensor, Tensor], MetricValue] = lambda value, *_: MetricValue(value, None),
) -> Callable[..., MetricValue]:
    """A value, with an interval where one is requested; the module of the function is imported when it is called."""

    def compute(real: Tensor, fake: Tensor, options: DistributionOptions) -> MetricValue:
        from genpr.metrics.influence import with_interval  # imports torch

        seed, source = options.interval_seed, import_module(f"genpr.metrics.{module}")
        value, influence = getattr(source, function)(
            real, fake, device=options.device, has_influence=seed is not None
        )
        influence = influence and influence.of_groups(*options.groups)
        return with_interval(described(value, real, fake), influence, seed=seed or 0, lower=lower)

    return compute


def _of_subsets(distance: KernelDistance, real: Tensor, fake: Tensor) -> MetricValue:
    from genpr.metrics.kernel import SUBSET_SIZE

    size = distance.subset_size
    variant = None if size == SUBSET_SIZE else f"subsets of {size:,} images"
    metric = MetricValue(distance.mean, None, variant=variant)
    if size == len(real) == len(fake):  # every subset is the whole of both sets
        return metric
    return replace(metric, spread=distance.std, spread_over="subsets")


def _of_equally_many(value: float, real: Tensor, fake: Tensor) -> MetricValue:
    size = min(len(real), len(fake))
    variant = None if len(real) == len(fake) else f"{size:,} images of each side"
    return MetricValue(value, None, variant=variant)


_frechet = _with_influence("frechet", "frechet_influence", lower=0.0)
_cmmd = _with_influence("kernel", "cmmd_influence", lower=0.0)
_kernel = _with_influence("kernel", "kernel_influence", described=_of_subsets)
_mind = _with_influence("mind", "mind_influence", lower=0.0, described=_of_equally_many)


def _frechet_infinity(real: Tensor | Gaussian, fake: Tensor, options: DistributionOptions) -> MetricValue:
    from genpr.metrics.frechet import frechet_infinity

    return MetricValue(frechet_infinity(real, fake, device=options.device), None)


def _vendi(_real: object, fake: Tensor, options: DistributionOptions) -> MetricValue:
    from genpr.metrics.fakes_only import vendi_score

    return MetricValue(vendi_score(fake, device=options.device), None)


def _inception_score(_real: object, fake: Tensor, options: DistributionOptions) -> MetricValue:
    from genpr.metrics.fakes_only import inception_score_influence
    from genpr.metrics.influence import with_interval

    size, interval_seed = options.inception_score_split_size, options.interval_seed
    score, influence = inception_score_influence(
        fake,
        split_size=size,
        seed=2020 if size is None else None,
        device=options.device,
        has_influence=interval_seed is not None,
    )
    metric = MetricValue(score.mean, None)
    if size is not None:
        metric = replace(metric, variant=f"{size:,} images per part, in order")
    if size is None or len(fake) > size:
        metric = replace(metric, spread=score.std, spread_over="parts")
    influence = influence and influence.of_groups(*options.groups)
    return with_interval(metric, influence, seed=interval_seed or 0, lower=1.0)


def _copying(
    train: Tensor, held_out: Tensor, fake: Tensor, *, device: torch.device, progress: PairProgress | None
) -> MetricValue | None:
    from genpr.metrics.realism import ct_z

    z = ct_z(train, held_out, fake, device=device, progress=progress)
    return MetricValue(z, None, null=0.0, null_source="closed form") if math.isfinite(z) else None


def _distance(
    name: str, meaning: str, reference: str, compute: Callable[..., MetricValue], **fields: object
) -> DistributionMetric:
    """A distance, whose unbiased estimates may be negative."""
    return DistributionMetric(
        name=name,
        meaning=meaning,
        reference=reference,
        compute=compute,
        kind="distance",
        better="lower",
        lower=None,
        upper=None,
        uses_moments=compute in (_frechet, _frechet_infinity),
        samples_subsets=compute is _kernel,
        **fields,  # type: ignore[arg-type]
    )


C_T = HeldOutMetric(
    name="c_t",
    meaning="z of distances to reals, against held-out reals",
    compute=_copying,
    lower=None,
    upper=None,
    reference="Meehan et al. 2020, arXiv:2004.05675",
    better="at null",
)

INCEPTION_SCORE = DistributionMetric(
    name="is",
    meaning="Inception Score: sharp and varied classes",
    kind="fakes-only",
    reference="Salimans et al. 2016, arXiv:1606.03498",
    extractor="inception-softmax",
    least=10,
    upper=None,
    compute=_inception_score,
)
VENDI = DistributionMetric(
    name="vendi",
    meaning="effective number of different fakes",
    kind="fakes-only",
    upper=None,
    reference="Friedman and Dieng 2023, arXiv:2210.02410",
    compute=_vendi,
)

DISTRIBUTION_METRICS: list[Metric] = [
    C_T,
    _distance("fid", "Fréchet distance of Inception features", _HEUSEL, _frechet, extractor="inception"),
    _distance(
        "sfid",
        "Fréchet distance of Inception feature maps",
        "Nash et al. 2021, arXiv:2103.03841",
        _frechet,
        extractor="inception-spatial",
    ),
    _distance("kid", "kernel distance of Inception features", _BINKOWSKI, _kernel, extractor="inception"),
    _distance(
        "fd_dinov2", "Fréchet distance of DINOv2 features", _STEIN, _frechet, extractor="dinov2-vitl14"
    ),
    _distance(
        "cmmd",
        "kernel distance of CLIP embeddings, x 1000",
        _JAYASUMANA,
        _cmmd,
        extractor="clip-vit-l-14-336",
    ),
    _distance("fd", "Fréchet distance of the chosen features", _HEUSEL, _frechet),
    _distance(
        "fd_infinity",
        "the same, extrapolated to infinitely many fakes",
        _CHONG,
        _frechet_infinity,
        least=3,
    ),
    _distance("kd", "kernel distance of the chosen features", _BINKOWSKI, _kernel),
    _distance("mind", "sliced Wasserstein distance of the chosen features", _BERTHET, _mind),
    INCEPTION_SCORE,
    VENDI,
]
"""In display order."""


def _by_name(metrics: Sequence[Metric], kind: type[M]) -> Mapping[str, M]:
    """Those of a kind, by name."""
    return MappingProxyType({metric.name: metric for metric in metrics if isinstance(metric, kind)})


METRICS: Mapping[str, Metric] = _by_name([*NEIGHBOR_METRICS, *DISTRIBUTION_METRICS], Metric)
"""Those computed from features alone, by name, in display order."""

_RECONSTRUCTED, _DIVERSITY = "reconstruction.", "diversity."
_SIGNED = {f"{_RECONSTRUCTED}{name}" for name in ("ssim", "clip_i", "dino_i")}  # from -1 to 1
_UNBOUNDED = {f"{_RECONSTRUCTED}{name}" for name in ("psnr", "lpips", "rfid")} | {"alignment.clip_score"}
_UNBOUNDED |= {f"{_DIVERSITY}lpips", f"{_DIVERSITY}cosine_distance"}
_LOWER = {"entity.failure_rate", "reconstruction.lpips", "reconstruction.rfid", "diversity.ms_ssim"}

Row = tuple[str, str, str]  # name, meaning and reference


def _ranked(prefix: str, found: str, pool: str) -> list[Row]:
    name = f"retrieval.{prefix}"
    return [
        (f"{name}r_precision", f"{found} ranked first of the pool {pool}", _R_PRECISION),
        *((f"{name}hit_{k}", f"{found} among the first {k} {pool}", _RANKS) for k in (1, 5, 10)),
        (f"{name}mrr", f"mean of 1 / rank of {found} {pool}", _RANKS),
        (f"{name}ndcg", f"discounted gain of {found} {pool}", _NDCG),
        (f"{name}map", f"mean average precision {pool}", _RANKS),
    ]


_ROWS: list[Row] = [
    ("label.gan_test", "accuracy on fakes of a classifier of reals (fidelity)", _GAN_TEST),
    ("label.gan_train", "accuracy on reals of a classifier of fakes (diversity)", _GAN_TRAIN),
    ("label.accuracy", "share of images recognized as the requested class", _LABELS),
    ("label.macro_precision", "precision of a class, averaged over classes", _LABELS),
    ("label.macro_recall", "recall of a class, averaged over classes", _LABELS),
    ("label.macro_f1", "F1 of a class, averaged over classes", _LABELS),
    *_ranked("", "own prompt", "(image to text)"),
    *_ranked("t2i_", "own image", "(text to image)"),
    ("alignment.clip_score", "2.5 cos of image and prompt, at least 0", _CLIP_SCORE),
    ("entity.recall", "share of an image's expected entities found", _ENTITIES),
    ("entity.micro_recall", "share of expected entities found, pooled", _ENTITIES),
    ("entity.macro_recall", "share of an entity's images with it, by entity", _ENTITIES),
    ("entity.all_found", "share of images with all entities right", "Ghosh et al. 2023, arXiv:2310.11513"),
    ("entity.precision", "share of an image's found entities expected", _ENTITIES),
    ("entity.micro_precision", "share of found entities expected, pooled", _ENTITIES),
    ("entity.macro_precision", "share of an entity's finds expected, by entity", _ENTITIES),
    ("entity.failure_rate", "share of unreadable answers", "this package"),
    (f"{_RECONSTRUCTED}psnr", "10 log10(255^2 / MSE) of a pair, in dB", "Wang et al. 2004"),
    (f"{_RECONSTRUCTED}ssim", "structural similarity of a pair", "Wang et al. 2004, 10.1109/TIP.2003.819861"),
    (f"{_RECONSTRUCTED}lpips", "distance of a pair in a network", "Zhang et al. 2018, arXiv:1801.03924"),
    (f"{_RECONSTRUCTED}rfid", "Fréchet distance of all pairs' features", _HEUSEL),
    (f"{_RECONSTRUCTED}clip_i", "cosine of a pair's CLIP embeddings", _DREAMBOOTH),
    (f"{_RECONSTRUCTED}dino_i", "cosine of a pair's DINO embeddings", _DREAMBOOTH),
    (f"{_DIVERSITY}lpips", "mean LPIPS of pairs in a group", "Zhu et al. 2017, arXiv:1711.11586"),
    (f"{_DIVERSITY}ms_ssim", "mean MS-SSIM of pairs in a group", "Odena et al. 2017, arXiv:1610.09585"),
    (f"{_DIVERSITY}cosine_distance", "mean 1 - cosine of pairs in a group", "this package"),
]


CONDITIONAL: Mapping[str, Metric] = _by_name(
    [
        Metric(
            name=name,
            meaning=meaning,
            kind="conditional",
            better="lower" if name in _LOWER else "higher",
            reference=reference,
            lower=-1.0 if name in _SIGNED else 0.0,
            upper=None if name in _UNBOUNDED else 1.0,
        )
        for name, meaning, reference in _ROWS
    ],
    Metric,
)
"""Those that compare images with the labels, prompts, entities or originals that they were generated from.

Families are never averaged: `recall` is a share of the reals' variety, `label.macro_recall` of requested classes,
`entity.recall` of named objects.
"""

ALL_METRICS: Mapping[str, Metric] = MappingProxyType({**METRICS, **CONDITIONAL})
"""Every metric that results can contain."""

NEIGHBORS: Mapping[str, NeighborMetric] = _by_name(NEIGHBOR_METRICS, NeighborMetric)
"""Those that count neighbors."""

BALLS: Mapping[str, BallMetric] = _by_name(NEIGHBOR_METRICS, BallMetric)
"""Those that follow from ball memberships."""

PAIRWISE: Mapping[str, PairwiseMetric] = _by_name(NEIGHBOR_METRICS, PairwiseMetric)
"""Those with a separate search."""

HELD_OUT = frozenset(_by_name(DISTRIBUTION_METRICS, HeldOutMetric))
"""Those that compare with reals that were held out of training."""

DISTRIBUTIONS: Mapping[str, DistributionMetric] = _by_name(DISTRIBUTION_METRICS, DistributionMetric)
"""Those of two distributions, or of the fakes alone, without neighbors."""

MOMENTS = frozenset(name for name, metric in DISTRIBUTIONS.items() if metric.uses_moments)
"""Those that need only mean and covariance of the reals."""

DEFAULT_METRICS = tuple(name for name, metric in METRICS.items() if metric.is_default)
"""The calibrated pair, precision, recall, density and coverage."""


_CALLED_OTHERWISE = {
    "cov": "coverage",
    "memorization": "authenticity c_t",
    "mifid": "fid authenticity c_t",
    "mmd": "kid kd cmmd",
    "prdc": "precision recall density coverage",
}


def similar_metrics(name: object, known: Collection[str]) -> str:
    """As `similar`, also for names of metrics and of groups of metrics in other packages."""
    names = [each for each in _CALLED_OTHERWISE.get(str(name).casefold(), "").split() if each in known]
    return f" (similar: {', '.join(names)})" if names else similar(name, known)


def unknown_metrics(unknown: Sequence[str], known: Collection[str]) -> UsageError:
    """The error for metrics that are unknown, or for none."""
    like = similar_metrics(unknown[0], known) if unknown else ""
    text = f"unknown metrics: {some(unknown) or 'none'}{like}; known: {', '.join(known)}"
    return UsageError(text, code="unknown-metric")


def check_value(name: str, value: float | None, what: str = "value") -> None:
    """Raise unless `value` is None or can be a value of the metric `name`."""
    if value is None:
        return
    low, high = 0.0, 1.0  # also for F-scores in logs
    if name in ALL_METRICS:
        metric = ALL_METRICS[name]
        low = -math.inf if metric.lower is None else metric.lower
        high = math.inf if metric.upper is None else metric.upper
    if not (math.isfinite(value) and abs(value) <= _LARGEST and low <= value <= high + _ROUNDING):
        raise ValueError(f"the {what} of {name} is {value:g}, and must be a number from {low:g} to {high:g}")


def check_interval(name: str, interval: tuple[float, float] | None) -> None:
    """Raise unless `interval` is None or finite, with the lower bound first."""
    if interval is not None and not -_LARGEST <= interval[0] <= interval[1] <= _LARGEST:
        raise ValueError(
            f"the interval of {name} is ({interval[0]:g}, {interval[1]:g}); expected finite bounds, the lower one first"
        )
