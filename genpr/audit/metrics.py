"""The metrics that are audited: those of genpr, in families that share their computation, and functions of the user.

The settings are those of the published audit: k = 3 for improved precision and recall, k = 5 for all others that count
balls, of which the covers draw theirs to the 15th neighbor, and k = 4 with scale 1.2 for the probabilistic pair. Balls
are closed. For density and coverage, 5 is the smallest k that gives a perfect generator a coverage above .95 at 1000
reals and 1000 fakes; it stays 5 where a check varies their numbers. (Chosen anew for each number of fakes, coverage
would meet both demands on ball and torus, which it is published to miss.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from genpr.audit.criteria import Kind
from genpr.errors import UsageError, some
from genpr.features.user_code import running_file
from genpr.metrics.ball_metrics import precision, recall
from genpr.metrics.metric import Metric
from genpr.metrics.registry import BALLS, PAIRWISE, needed_balls
from genpr.runtime import expanded, torch_threads

Features = NDArray[np.float32]
Function = Callable[[Features, Features], float]
"""A metric of reals (n, d) and fakes (m, d)."""


@dataclass(frozen=True, slots=True)
class Family:
    """Metrics that are computed together.

    Attributes:
        kinds: What each of its metrics claims to measure.
        function: From reals and fakes, which it must not change, to the values by name.
    """

    kinds: Mapping[str, Kind]
    function: Callable[[Features, Features], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class AuditedMetric:
    """One metric of the user's own.

    Attributes:
        name: What the matrix calls it.
        kind: Whether fidelity or diversity is demanded of it.
        function: From reals (n, d) and fakes (m, d), float32, standardised by the reals, to a number.
    """

    name: str
    kind: Kind
    function: Function

    @property
    def family(self) -> Family:
        """The metric as a family of one."""
        return Family({self.name: self.kind}, self._values)

    def _values(self, real: Features, fake: Features) -> dict[str, float]:
        return {self.name: float(self.function(real.copy(), fake.copy()))}


_K = 5
_OTHER_K = {precision.name: 3, recall.name: 3}


@dataclass(frozen=True, slots=True)
class _Shipped:
    """Metrics that can be computed together.

    Attributes:
        kinds: What each of them claims to measure.
        function: From the names of those that are wanted, reals and fakes to their values, and perhaps others.
    """

    kinds: Mapping[str, Kind]
    function: Callable[[tuple[str, ...], Features, Features], Mapping[str, float]]


def _counted(names: tuple[str, ...], real: Features, fake: Features) -> Mapping[str, float]:
    """Everything that is read off balls around reals and around fakes."""
    from genpr.metrics.manifold import ball_scores
    from genpr.metrics.real_side import RealSide

    ks = {name: _OTHER_K.get(name, _K) for name in names}
    with torch_threads(1):  # two would wait for each other on sets this small
        side = RealSide.fit(real, balls=needed_balls(ks)[0], device="cpu")
        return ball_scores(side, fake, ks=ks)


def _probabilistic(names: tuple[str, ...], real: Features, fake: Features) -> Mapping[str, float]:
    """Both, whichever is requested: they share their scan."""
    from genpr.metrics.probabilistic import probabilistic_precision_recall

    with torch_threads(1):
        values = probabilistic_precision_recall(real, fake, device="cpu")
    return {f"p_{name}": value for name, value in values._asdict().items()}


def _witnessed(names: tuple[str, ...], real: Features, fake: Features) -> Mapping[str, float]:
    """All four, for the same reason."""
    from genpr.metrics.witnessed import witnessed

    with torch_threads(1):
        values = witnessed(real, fake, device="cpu")
    return {f"witnessed_{name}": value for name, value in values._asdict().items()}


def _kinds_of(metrics: Mapping[str, Metric], prefix: str = "") -> Mapping[str, Kind]:
    return {
        name: metric.measures
        for name, metric in metrics.items()
        if metric.measures is not None and name.startswith(prefix)
    }


_SHIPPED = (
    _Shipped(_kinds_of(BALLS), _counted),
    _Shipped(_kinds_of(PAIRWISE, "p_"), _probabilistic),
    _Shipped(_kinds_of(PAIRWISE, "witnessed_"), _witnessed),
)
"""Everything that ships and claims to measure fidelity or diversity, in display order."""


def shipped_kinds() -> dict[str, Kind]:
    """What each shipped metric claims to measure, in display order."""
    return {name: kind for shipped in _SHIPPED for name, kind in shipped.kinds.items()}


def families_of(names: Iterable[str]) -> tuple[Family, ...]:
    """The named metrics in their families; nothing that no other metric of a family needs is computed for one.

    Raises:
        UsageError: A name is unknown ("unknown-metric").
    """
    wanted, known = set(names), shipped_kinds()
    if unknown := sorted(wanted - set(known)):
        raise UsageError(
            f"unknown metrics: {some(unknown)}; the audit knows {', '.join(known)}, and functions of your own",
            code="unknown-metric",
        )
    families = []
    for shipped in _SHIPPED:
        kinds = {name: kind for name, kind in shipped.kinds.items() if name in wanted}
        if kinds:
            families.append(Family(kinds, partial(shipped.function, tuple(kinds))))
    return tuple(families)


_CODE = "user-function"


class UserFunction:
    """A function in a file, which other processes load again by its name.

    Args:
        spec: "path/to/file.py:function".

    Raises:
        UsageError: There is no such file or function, or the file does not run.
    """

    def __init__(self, spec: str) -> None:
        self.spec = spec
        target, _, self.name = spec.rpartition(":")
        self._path = expanded(target)
        if not target or not self.name:
            raise UsageError(f"function {spec!r}: expected path/to/file.py:function", code=_CODE)
        if not self._path.is_file():
            raise UsageError(
                f"function {spec!r}: there is no file {self._path}", code=_CODE, path=str(self._path)
            )
        self._function = self._load()

    def __reduce__(self) -> tuple[type[UserFunction], tuple[str]]:
        return UserFunction, (self.spec,)

    def __call__(self, real: NDArray[np.float32], fake: NDArray[np.float32]) -> float:
        """The value for reals (n, d) and fakes (m, d).

        Raises:
            UsageError: The function raises, or returns something else than one number.
        """
        try:
            value = self._function(real, fake)  # type: ignore[operator]
        except Exception as error:
            text = f"function {self.spec!r} raised {type(error).__name__}: {' '.join(str(error).split())}"
            raise UsageError(text, code=_CODE) from error
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            text = f"function {self.spec!r} must return one number, not {type(value).__name__}"
            raise UsageError(text, code=_CODE) from error

    def _load(self) -> object:
        try:
            with running_file(self._path) as (module, _):
                function = getattr(module, self.name, None)
        except Exception as error:
            text = f"function {self.spec!r}: {self._path} fails with {type(error).__name__}: {error}"
            raise UsageError(text, code=_CODE, path=str(self._path)) from error
        if not callable(function):
            raise UsageError(
                f"function {self.spec!r}: {self._path} has no function {self.name!r}",
                code=_CODE,
                path=str(self._path),
            )
        return function


def user_metric(spec: str, kind: Kind) -> AuditedMetric:
    """The function of `spec` as a metric that claims to measure `kind`. Errors are those of `UserFunction`."""
    function = UserFunction(spec)
    return AuditedMetric(function.name, kind, function)
