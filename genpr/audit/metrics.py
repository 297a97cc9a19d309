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
from genpr.metrics.registry import BALLS, PAIRWISE, needed_balls
from genpr.runtime import expanded, torch_threads

Features = NDArray[np.float32]
Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Family:
    """Metrics that are computed together.

    Attributes:
        kinds: What each of its metrics claims to measure.
        function: From reals and fakes, which it must not change, to the values by name.
    """

    kinds: Mapping[str, Kind]
    function: Callable[[Features, Features], Values]


_K = 5
_OTHER_K = {precision.name: 3, recall.name: 3}


def _counted(names: tuple[str, ...], real: Features, fake: Features) -> Values:
    """Everything that is counted in balls around reals and around fakes."""
    from genpr.metrics.manifold import ball_scores
    from genpr.metrics.real_manifold import RealManifold

    ks = {name: _OTHER_K.get(name, _K) for name in names}
    with torch_threads(1):  # two would wait for each other on sets this small
        side = RealManifold.fit(real, balls=needed_balls(ks)[0], device="cpu")
        return ball_scores(side, fake, ks=ks)


def _probabilistic(_names: tuple[str, ...], real: Features, fake: Features) -> Values:
    """Both, whichever is requested: they share their scan."""
    from genpr.metrics.probabilistic import probabilistic_precision_recall

    with torch_threads(1):
        values = probabilistic_precision_recall(real, fake, device="cpu")
    return {f"p_{name}": value for name, value in values._asdict().items()}


def _witnessed(_names: tuple[str, ...], real: Features, fake: Features) -> Values:
    """All four, for the same reason."""
    from genpr.metrics.witnessed import witnessed

    with torch_threads(1):
        values = witnessed(real, fake, device="cpu")
    return {f"witnessed_{name}": value for name, value in values._asdict().items()}


_SHIPPED = (
    ({name: metric.measures for name, metric in BALLS.items()}, _counted),
    ({name: metric.measures for name, metric in PAIRWISE.items() if name.startswith("p_")}, _probabilistic),
    (
        {name: metric.measures for name, metric in PAIRWISE.items() if name.startswith("witnessed_")},
        _witnessed,
    ),
)
"""Metrics in display order with the function that computes those that are named; None for other kinds of metrics."""


def shipped_kinds() -> dict[str, Kind]:
    """What each shipped metric claims to measure, in display order."""
    return {name: kind for kinds, _ in _SHIPPED for name, kind in kinds.items() if kind is not None}


def families_of(names: Iterable[str]) -> tuple[Family, ...]:
    """The named metrics in their families; nothing that no other metric of a family needs is computed for one.

    Raises:
        UsageError: A name is unknown ("unknown-metric").
    """
    requested, known = set(names), shipped_kinds()
    if unknown := sorted(requested - set(known)):
        raise UsageError(
            f"unknown metrics: {some(unknown)}; the audit knows {', '.join(known)}, and functions of your own",
            code="unknown-metric",
        )
    families = []
    for kinds, function in _SHIPPED:
        found = {name: known[name] for name in kinds if name in requested}
        if found:
            families.append(Family(found, partial(function, tuple(found))))
    return tuple(families)


_CODE = "user-function"


class UserFunction:
    """A function in a file, which other processes load again by its name.

    Args:
        spec: "path/to/file.py:function".

    Raises:
        UsageError: There is no such file or function, or the file does not run ("user-function").
    """

    def __init__(self, spec: str) -> None:
        self.spec = spec
        target, _, self.name = spec.rpartition(":")
        path = expanded(target)
        if not target or not self.name:
            raise UsageError(f"function {spec!r}: expected path/to/file.py:function", code=_CODE)
        if not path.is_file():
            raise UsageError(f"function {spec!r}: there is no file {path}", code=_CODE, path=str(path))
        try:
            with running_file(path) as (module, _):
                self._function = getattr(module, self.name, None)
        except Exception as error:
            text = f"function {spec!r}: {path} fails with {type(error).__name__}: {error}"
            raise UsageError(text, code=_CODE, path=str(path)) from error
        if not callable(self._function):
            text = f"function {spec!r}: {path} has no function {self.name!r}"
            raise UsageError(text, code=_CODE, path=str(path))

    def __reduce__(self) -> tuple[type[UserFunction], tuple[str]]:
        return UserFunction, (self.spec,)

    def __call__(self, real: Features, fake: Features) -> Values:
        """The value for reals (n, d) and fakes (m, d), which are copied, by name.

        Raises:
            UsageError: The function raises, or returns something else than one number.
        """
        try:
            value = self._function(real.copy(), fake.copy())  # type: ignore[misc]
        except Exception as error:
            text = f"function {self.spec!r} raised {type(error).__name__}: {' '.join(str(error).split())}"
            raise UsageError(text, code=_CODE) from error
        try:
            return {self.name: float(value)}
        except (TypeError, ValueError) as error:
            text = f"function {self.spec!r} must return one number, not {type(value).__name__}"
            raise UsageError(text, code=_CODE) from error


def user_family(spec: str, kind: Kind) -> Family:
    """The function of `spec` as a metric that claims to measure `kind`. Errors are those of `UserFunction`."""
    function = UserFunction(spec)
    return Family({function.name: kind}, function)
