"""Records of an extractor, a peer that computes the same features, and their comparison."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from statistics import median
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["check", "time"]

GENPR = "genpr"
AGREES = 1e-4  # of the range of the features
TELLS_APART = 10 * AGREES


@dataclass(frozen=True, slots=True)
class Peer:
    """Another implementation of the same features.

    Attributes:
        name: Name in tables.
        function: Name of a function of `_extractor_tools`.
        module: Module that must be installed.
        batch_size: Its default.
    """

    name: str
    function: str
    module: str
    batch_size: int

    @property
    def installed(self) -> bool:
        """Whether the module is installed."""
        return find_spec(self.module) is not None


@dataclass(frozen=True, slots=True)
class Comparison:
    """An extractor of genpr and the peer that it is compared with.

    Attributes:
        extractor: As `genpr.load_extractor` takes it.
        peer: None if no other tool computes these features.
        default_on: Whether it runs unless extractors are named.
    """

    extractor: str
    peer: Peer | None = None
    default_on: bool = True

    @property
    def base(self) -> str:
        """The extractor without variants."""
        return self.extractor.partition("@")[0]


_FIDELITY = Peer("torch-fidelity", "torch_fidelity", "torch_fidelity", 64)
_DGM_EVAL = Peer("dgm-eval's loop, timm", "dgm_eval", "timm", 50)

COMPARISONS = (
    Comparison("inception", _FIDELITY),
    Comparison("inception@torch-bilinear", Peer("pytorch-fid", "pytorch_fid", "pytorch_fid", 50)),
    Comparison("vgg16", _FIDELITY),
    Comparison("clip-vit-b-32", Peer("open_clip", "open_clip", "open_clip", 64)),
    Comparison("dinov2-vits14", _DGM_EVAL),
    Comparison("dinov2-vitb14", _DGM_EVAL, default_on=False),
    Comparison("dinov2-vitl14", _DGM_EVAL, default_on=False),
    Comparison("gabor"),
    Comparison("pixels"),
)


@dataclass(frozen=True, slots=True)
class Job:
    """The task of one process.

    Attributes:
        function: Of `_extractor_tools`.
        extractor: Its name at genpr.
        weights: File; None if it has none.
        folder: Images.
        warm_up: A few of them.
        device: "cpu" or "cuda".
        batch_size: Images per forward pass.
        mode: "check" saves the features and measures memory; "time" only embeds.
        features: Where a check writes its features, as .npy.
    """

    function: str
    extractor: str
    weights: str | None
    folder: str
    warm_up: str
    device: str
    batch_size: int
    mode: Mode
    features: str


@dataclass(frozen=True, slots=True)
class Found:
    """Measurement of one process; memory in checks only.

    Attributes:
        seconds: Time from the folder to the features on the CPU, after loading and warm-up.
        peak_bytes: Highest memory of the process and its workers, libraries and network included.
        level_bytes: The same just before.
        cuda_peak_bytes: Highest that torch allocated on the GPU.
    """

    seconds: float
    peak_bytes: int | None = None
    level_bytes: int | None = None
    cuda_peak_bytes: int | None = None


@dataclass(slots=True)
class Side:
    """One tool of a comparison.

    Attributes:
        tool: Its name.
        batch_size: Images per forward pass.
        seconds: One entry per round.
        peak_bytes, level_bytes, cuda_peak_bytes: As in `Found`.
        failure: Reason of a failure, if there was one.
    """

    tool: str
    batch_size: int
    seconds: list[float] = field(default_factory=list)
    peak_bytes: int | None = None
    level_bytes: int | None = None
    cuda_peak_bytes: int | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """Result of one comparison.

    Attributes:
        extractor: genpr's name.
        images: How many.
        sides: genpr, then the peer if there is one.
        difference: Largest difference of a feature, over the range of all features.
        spread: How much features differ between images: median standard deviation, over the same range.
    """

    extractor: str
    images: int
    sides: list[Side]
    difference: float | None = None
    spread: float | None = None

    @property
    def agrees(self) -> bool | None:
        """Whether the features are the same, and those of different images are not; None without two of them."""
        if self.difference is None or self.spread is None:
            return None
        return self.difference <= AGREES and self.spread >= TELLS_APART

    @property
    def has_failure(self) -> bool:
        """Whether a tool failed."""
        return any(side.failure for side in self.sides)

    @property
    def ratios(self) -> list[float]:
        """Images per second over the peer's, round by round."""
        if len(self.sides) < 2:
            return []
        ours, peer = self.sides
        return [theirs / own for own, theirs in zip(ours.seconds, peer.seconds, strict=False)]

    def rates(self, side: Side) -> list[float]:
        """Images per second, round by round."""
        return [self.images / seconds for seconds in side.seconds]

    @property
    def median_ratio(self) -> float | None:
        """Median of the ratios; above 1, genpr is faster."""
        return median(self.ratios) if self.ratios else None
