"""A metric of the user's own, from a Python file: `path/to/file.py:function`, called with reals and fakes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from genpr.audit.demands import Kind
from genpr.audit.family import AuditedMetric
from genpr.errors import UsageError
from genpr.features.run_file import running_file
from genpr.runtime import expanded

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
