"""Named protocols: the features, metrics, k, ties and numbers of images of a score.

The choices of a protocol are fixed, so that two scores with the same protocol were computed in the same way. Only the
default, `genpr`, may be changed, and its results record the changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import Literal

from genpr.errors import UsageError, similar, some
from genpr.features.representations import FDR6
from genpr.metrics.metric import MetricValue, plain_name
from genpr.metrics.registry import (
    CONDITIONAL,
    DEFAULT_METRICS,
    DISTRIBUTIONS,
    HELD_OUT,
    METRICS,
    MOMENTS,
    NEIGHBORS,
    unknown_metrics,
)
from genpr.validation import Ties, check_k

Statistics = Literal["with images", "published"]

CLIP_SCORE_PREFIX = "A photo depicts "
"""The prefix of every prompt in CLIPScore (Hessel et al. 2021, arXiv:2104.08718)."""


def _ks(number: int) -> Mapping[str, int]:
    return MappingProxyType(dict.fromkeys(NEIGHBORS, number))


@dataclass(frozen=True, kw_only=True)
class EvaluationProtocol:
    """The fixed choices of a score."""

    name: str  # shown with every score
    extractor: str = "inception"  # features of the metrics without fixed features
    metrics: tuple[str, ...]  # default metrics
    panel: Mapping[str, str] = field(default_factory=dict)  # extractors by name, if there are several
    k: Mapping[str, int] = field(
        default_factory=partial(_ks, 3)
    )  # k by metric; an image is never its own neighbor
    ties: Ties = "closed"  # whether balls contain their boundary ("closed") or not ("strict")
    n_real: int | None = None  # required number of real images
    n_fake: int | None = None  # required number of fake images
    max_real: int | None = None  # maximum number of real images, without a required number
    max_fake: int | None = None  # maximum number of fake images, without a required number
    # maximum number of images of each set in neighbor searches, which then have equal numbers
    max_rows: int | None = None
    # mean and covariance in Fréchet distances: "with images", those in the .npz files of images; "published", those of reals
    # from a file, whose absence is a deviation; None, those of the images
    reference_statistics: Statistics | None = None
    extractors: Mapping[str, str] = field(default_factory=dict)  # features by metric, if not the default
    # features of published moments by metric, if they differ from the features of the images
    statistics_of: Mapping[str, str] = field(default_factory=dict)
    inception_score_split_size: int | None = None  # images per part of the Inception Score, in order
    prepare: str | None = None  # preparation of decoded images; None allows any
    clip: str | None = None  # extractor of `genpr align`; None without prompts
    # choices that may be changed: "extractor", "metrics", "k", "ties", "sizes"
    free: frozenset[str] = field(default_factory=frozenset)
    equals: str = ""  # the reproduced values, and known differences
    measured: bool = True  # whether values were compared with those of `equals`
    reference: str = ""  # the reproduced paper or code

    @cached_property
    def allowed_metrics(self) -> tuple[str, ...]:
        """All metrics that the protocol allows."""
        if self.panel:
            return tuple(filter(_is_on_own_features, METRICS))
        return tuple(METRICS) if "metrics" in self.free else self.metrics

    def choose_metrics(
        self, metrics: Sequence[str] | None = None, *, held_out: bool = False
    ) -> tuple[str, ...]:
        """The requested metrics and those of held-out reals, in display order."""
        requested = self.metrics if metrics is None else (metrics,) if isinstance(metrics, str) else metrics
        names = set(map(plain_name, requested))
        if names == {"all"}:
            names = {name for name in self.allowed_metrics if _is_on_own_features(name)}
        if found := sorted(names & CONDITIONAL.keys()):
            raise UsageError(
                f"{some(found)} cannot be computed from features alone: label.* come with labels (--labels), retrieval.* and "
                "alignment.* with prompts (genpr align), entity.* with entities (genpr entities), reconstruction.* with pairs "
                "(genpr reconstruct), diversity.* with groups (genpr diversity)",
                code="metric-of-other-family",
            )
        if not names or names - METRICS.keys():
            raise unknown_metrics(sorted(names - METRICS.keys()), METRICS)
        needing = HELD_OUT.intersection(names if not held_out else self.allowed_metrics)
        if needing and not held_out:
            raise UsageError(
                f"{min(needing)} needs reals that were held out of training; give them as held_out (--held-out)",
                code="held-out-missing",
            )
        if held_out and not needing:
            text = f"protocol {self.name} has no metric that uses held-out reals; use --protocol genpr"
            raise UsageError(text, code="protocol-pinned")
        names |= needing
        if foreign := names.difference(self.allowed_metrics):
            raise UsageError(
                f"{some(sorted(foreign))} is not part of protocol {self.name}, which has {', '.join(self.metrics)}; "
                "use --protocol genpr for others",
                code="protocol-pinned",
            )
        return tuple(sorted(names, key=list(METRICS).index))

    def choose_ks(self, metrics: Sequence[str], k: int | None = None) -> dict[str, int]:
        """K of each of `metrics` that counts neighbors; `k` overrides that of the protocol if this is allowed."""
        k = None if k is None else check_k(k)
        ks, is_used = {}, False
        for name in filter(NEIGHBORS.__contains__, metrics):
            if NEIGHBORS[name].k_is_fixed:
                ks[name] = NEIGHBORS[name].k
                continue
            ks[name] = self.k[name] if k is None else k
            is_used = True
            if ks[name] != self.k[name] and "k" not in self.free:
                raise self._pinned("k", k, self.k[name])
        if k is not None and not is_used:
            raise UsageError(f"k = {k} was given, but {', '.join(metrics)} has no k", code="k-unused")
        return ks

    def choose_ties(self, ties: Ties) -> Ties:
        """The requested rule, if it is allowed."""
        if ties != self.ties and "ties" not in self.free:
            raise self._pinned("ties", ties, self.ties)
        return ties

    def choose_prepare(self, prepare: str | None) -> str | None:
        """The requested preparation of images, if it is allowed; else that of the protocol."""
        if self.prepare is not None and prepare not in {None, self.prepare}:
            raise self._pinned("prepare", prepare, self.prepare)
        return self.prepare or prepare

    def check_extractor(self, name: str, *, built_in: bool = True) -> None:
        """Raise an error for another extractor than that of the protocol, including custom ones of the same name."""
        pinned = (*self.panel.values(),) or (self.extractor,)
        if "extractor" not in self.free and (name not in pinned or not built_in):
            found = f"a custom {name!r}" if name in pinned else name
            raise self._pinned("extractor", found, some(pinned, 6, longest=200))

    def check_prompts(self, extractor: object, prefix: str) -> None:
        """Raise an error for another extractor or prefix of prompts than that of the protocol."""
        if extractor != self.clip:
            raise self._pinned("extractor", extractor, self.clip)
        if prefix != CLIP_SCORE_PREFIX:
            raise self._pinned("prefix", repr(prefix), repr(CLIP_SCORE_PREFIX))

    def deviations(
        self,
        n_real: int | None,
        n_fake: int,
        metrics: Mapping[str, MetricValue] = MappingProxyType({}),
        given: Collection[str] = (),
    ) -> tuple[str, ...]:
        """Descriptions of deviations: numbers of images (of reals unless None), and features and statistics of the metrics.

        `given` are the metrics whose moments of the reals come from a file.
        """
        found = []
        for role, n, needed in (("real", n_real, self.n_real), ("fake", n_fake, self.n_fake)):
            if n is not None and needed is not None and n != needed:
                found.append(f"{n:,} {role} images where {self.name} needs {needed:,}")
        if "metrics" in self.free:
            return tuple(found)
        if "extractor" not in self.free and any(metric.extractor is None for metric in metrics.values()):
            found.append(f"features of unknown origin where {self.name} needs {self.extractor}")
        if self.reference_statistics == "published":
            found += [
                f"{name} from real images where {self.name} needs published statistics (--reference-statistics)"
                for name in metrics
                if name in MOMENTS and name not in given
            ]
        for name, value in metrics.items():
            if name in DISTRIBUTIONS and DISTRIBUTIONS[name].samples_subsets and value.variant is not None:
                found.append(f"{name} on {value.variant} where {self.name} needs 1,000")
        return tuple(found)

    def _pinned(self, what: str, requested: object, own: object) -> UsageError:
        text = f"protocol {self.name} requires {what} = {own}, but {requested} is requested; leave it out, or score without --protocol {self.name}"
        return UsageError(text, code="protocol-pinned")


def _is_on_own_features(metric: str) -> bool:
    """Whether a metric needs only reals and fakes in the features of the score."""
    return METRICS[metric].extractor is None and metric not in HELD_OUT


_PR = ("precision", "recall")
_PRDC = (*_PR, "density", "coverage")
_EDM2_DINO = "dinov2-vitl14@torch-bicubic-antialias"

_ALL = (
    EvaluationProtocol(
        name="genpr",
        metrics=DEFAULT_METRICS,
        k=MappingProxyType({name: metric.k for name, metric in NEIGHBORS.items()}),
        free=frozenset({"extractor", "metrics", "k", "ties"}),
        equals="the definitions, exactly; k and ties of the papers",
        reference="this package",
    ),
    EvaluationProtocol(
        name="kynkaanniemi2019",
        extractor="vgg16",
        metrics=_PR,
        n_real=50_000,
        n_fake=50_000,
        equals="the paper's definition exactly, where its code rounds distances to float32; torchvision's VGG16 stands "
        "for the authors' pickled one, whose resize cannot be seen",
        reference="Kynkäänniemi et al. 2019, arXiv:1904.06991",
    ),
    EvaluationProtocol(
        name="adm",
        metrics=("precision", "recall", "fid", "sfid", "is"),
        n_real=10_000,
        n_fake=50_000,
        reference_statistics="with images",
        inception_score_split_size=5_000,
        equals="guided-diffusion's evaluator but for its float16 distances, with which precision and recall of its example are "
        "0.0010 and 0.0024 higher",
        measured=False,
        reference="Dhariwal and Nichol 2021, arXiv:2105.05233; openai/guided-diffusion/evaluations",
    ),
    EvaluationProtocol(
        name="mar",
        metrics=(*_PR, "fid", "is"),
        n_real=10_000,
        n_fake=50_000,
        reference_statistics="published",
        equals="LTH14's fork of torch-fidelity (input1 = real, Inception features) up to its float32 distances",
        measured=False,
        reference="Li et al. 2024, arXiv:2406.11838; LTH14/mar, precision and recall as in its issue 91",
    ),
    EvaluationProtocol(
        name="jit",
        metrics=("fid", "is"),
        n_fake=50_000,
        reference_statistics="published",
        equals="LTH14's fork of torch-fidelity, by the statistics of the same file",
        measured=False,
        reference="Li and He 2025, arXiv:2511.13720; LTH14/JiT",
    ),
    EvaluationProtocol(
        name="edm2",
        metrics=("fid", "fd_dinov2"),
        n_fake=50_000,
        reference_statistics="published",
        extractors=MappingProxyType({"fd_dinov2": _EDM2_DINO}),
        equals="calculate_metrics.py by its img64.pkl or img512.pkl; papers state the least of three sets of 50,000",
        measured=False,
        reference="Karras et al. 2024, arXiv:2312.02696; NVlabs/edm2",
    ),
    EvaluationProtocol(
        name="guidance-interval",
        extractor="dinov2-vitl14",
        metrics=(*_PR, "fid", "fd_dinov2"),
        n_real=50_000,
        n_fake=50_000,
        reference_statistics="published",
        statistics_of=MappingProxyType({"fd_dinov2": _EDM2_DINO}),
        equals="the distances of calculate_metrics.py; precision and recall as its first author describes them, of which no "
        "code was published",
        measured=False,
        reference="Kynkäänniemi et al. 2024, arXiv:2404.07724; kynkaat/guidance-interval and its issue 4",
    ),
    EvaluationProtocol(
        name="stylegan3",
        extractor="vgg16",
        metrics=_PR,
        max_real=200_000,
        n_fake=50_000,
        equals="pr50k3_full to about 2 decimals: it rounds features and distances to float16, and its VGG16 is NVIDIA's own file",
        measured=False,
        reference="Karras et al. 2021, arXiv:2106.12423; NVlabs/stylegan3",
    ),
    EvaluationProtocol(
        name="torch-fidelity",
        extractor="vgg16",
        metrics=("precision", "recall", "fid", "kid", "is"),
        equals="torch-fidelity 0.4 (input1 = fake, input2 = real) up to its float32 distances",
        reference="toshas/torch-fidelity 0.4.0",
    ),
    EvaluationProtocol(
        name="prdc",
        extractor="vgg16",
        metrics=_PRDC,
        k=_ks(5),
        ties="strict",
        free=frozenset({"extractor", "k"}),
        equals="prdc 0.2 on the same features, to the last count",
        reference="Naeem et al. 2020, arXiv:2002.09797; clovaai/generative-evaluation-prdc",
    ),
    EvaluationProtocol(
        name="dgm-eval",
        extractor="dinov2-vitl14",
        metrics=(*_PRDC, "fd", "fd_infinity", "kd", "vendi"),
        k=_ks(5),
        ties="strict",
        max_real=50_000,
        max_fake=50_000,
        max_rows=10_000,
        equals="dgm-eval's counts on the same rows; its random subset of 10,000 is another one",
        reference="Stein et al. 2023, arXiv:2306.04675; layer6ai-labs/dgm-eval",
    ),
    EvaluationProtocol(
        name="coco30k",
        extractor="inception@pil-bicubic-float",
        metrics=("fid",),
        n_real=40_504,
        n_fake=30_000,
        prepare="square-crop:256",
        clip="clip-vit-b-32",
        equals="GigaGAN's FID and CLIP score on COCO 2014 (the latter is alignment.clip_score / 2.5), up to one pixel where the "
        "middle of an image is cropped; no other definition of COCO-30k",
        measured=False,
        reference="Kang et al. 2023, arXiv:2303.05511; mingukkang/GigaGAN/evaluation",
    ),
    EvaluationProtocol(
        name="fdr6",
        metrics=("fd",),
        panel=MappingProxyType({each.name: each.extractor for each in FDR6}),
        n_fake=50_000,
        reference_statistics="published",
        prepare="center-crop:256",
        equals="FDr6 of FD-loss and DiffusionBench to about 3 digits: they compute in bfloat16; FD-loss' Inception differs",
        measured=False,
        reference="Yang et al. 2026, arXiv:2604.28190; Jiawei-Yang/FD-loss",
    ),
    EvaluationProtocol(
        name="mind6",
        metrics=("mind",),
        panel=MappingProxyType({each.name: each.extractor for each in FDR6}),
        n_real=50_000,
        n_fake=50_000,
        prepare="center-crop:256",
        equals="the six values of fd_evaluator's mind6 to about 3 digits: it computes in bfloat16. REAL are ImageNet's validation images",
        measured=False,
        reference="Berthet et al. 2026, arXiv:2605.06797; End2End-Diffusion/diffusionbench-evals",
    ),
)

PROTOCOLS: Mapping[str, EvaluationProtocol] = MappingProxyType({protocol.name: protocol for protocol in _ALL})


def find_protocol(name: str) -> EvaluationProtocol:
    """The protocol with a name."""
    if not isinstance(name, str) or name not in PROTOCOLS:
        text = f"unknown protocol {name!r}{similar(name, PROTOCOLS)}; known: {', '.join(PROTOCOLS)}"
        raise UsageError(text, code="unknown-protocol")
    return PROTOCOLS[name]
