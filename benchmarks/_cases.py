"""Records of a case, its measurement and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Literal, TypeAlias

Ties: TypeAlias = Literal["closed", "strict"]
Status: TypeAlias = Literal["measured", "scaled", "skipped", "not-installed", "failed"]


@dataclass(frozen=True, slots=True)
class Group:
    """One comparison of all tools on the same n reals and n fakes of d features."""

    family: str
    d: int
    n: int

    def __str__(self) -> str:
        return f"{self.family}, n = {self.n:,}, d = {self.d:,}"


@dataclass(frozen=True, slots=True)
class Case:
    """One tool in one group, as the measuring process receives it.

    Attributes:
        tool: A name of `_tools.TOOLS`.
        n: Rows taken from the top of each file.
        real_path: float32 .npy file of the reals.
        fake_path: The same for the fakes.
        k: Neighbors that set a radius, the point itself not counted.
        ties: Tie rules to compute values for; only the first is timed.
        device: "cpu" or "cuda".
        threads: Cores the process may use.
        repeats: Most repeats that are timed.
        repeat_seconds: No further repeat starts once the repeats have taken this long together.
    """

    tool: str
    n: int
    real_path: str
    fake_path: str
    k: int
    ties: list[Ties]
    device: str
    threads: int
    repeats: int
    repeat_seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Values returned by a tool.

    Attributes:
        values: Any of precision, recall, density and coverage.
        phases: Seconds by part, if the tool reports them.
    """

    values: dict[str, float]
    phases: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measurement:
    """Measurement of one case.

    Attributes:
        seconds: Computation alone, one entry per repeat.
        phases: Seconds by part in the fastest repeat.
        peak_bytes: Highest resident memory above the level just before the computation, features loaded.
        cuda_peak_bytes: The same for memory that torch allocated on the GPU.
        values: Metric values by tie rule.
    """

    seconds: list[float]
    phases: dict[str, float]
    peak_bytes: int
    cuda_peak_bytes: int | None
    values: dict[Ties, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Roofline:
    """Time of a case relative to its matrix products alone.

    Attributes:
        gemm_gflops: float32 matrix product rate of this machine, measured just before the group.
        three_pass_seconds: Three n x n products (real-real, fake-fake, real-fake) at that rate.
        two_pass_seconds: Two: the same with each same-side pair computed once.
        over_three_passes: Median time over the first.
        over_two_passes: Median time over the second.
    """

    gemm_gflops: float
    three_pass_seconds: float
    two_pass_seconds: float
    over_three_passes: float
    over_two_passes: float


@dataclass(frozen=True, slots=True)
class Record:
    """Result of one case.

    Attributes:
        group: What was compared.
        tool: Name of the tool.
        ties: The tie rule the tool follows.
        status: "measured"; "scaled" by n^2 from a smaller n; or why there is no value.
        note: Why it is scaled or missing, in words.
        seconds: As in `Measurement`; one scaled entry where scaled.
        phases: As in `Measurement`.
        peak_bytes: As in `Measurement`; of the GPU where that computed.
        values: Metric values under `ties`.
        counts: The integers behind the values.
        differences: Each count minus genpr's under the same tie rule.
        agrees: Whether all differences are small enough; None without a comparison.
        scaled_from: The n that was measured.
        times_genpr: Median time over genpr's in the same group.
        roofline: Time relative to the matrix products.
    """

    group: Group
    tool: str
    ties: Ties
    status: Status
    note: str = ""
    seconds: list[float] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    peak_bytes: int | None = None
    values: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    differences: dict[str, int] = field(default_factory=dict)
    agrees: bool | None = None
    scaled_from: int | None = None
    times_genpr: float | None = None
    roofline: Roofline | None = None

    @property
    def median_seconds(self) -> float | None:
        """Median over the repeats; None if there is no time."""
        return median(self.seconds) if self.seconds else None
