"""What is audited: functions of reals and fakes, and what their values claim to measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genpr.audit.demands import Kind

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
