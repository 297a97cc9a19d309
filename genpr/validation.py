"""Checks of feature arrays and options at public functions; internal code relies on them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from numbers import Integral
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

import numpy as np

from genpr.errors import FeatureError, GenprError, ResourceError, UsageError, short
from genpr.memory import float_rows
from genpr.runtime import cpu_by_default, is_out_of_memory, resolve_device, usable_device

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

_CHUNK_ELEMENTS = 2**22
_P = ParamSpec("_P")
_R = TypeVar("_R")

Features: TypeAlias = "NDArray[Any] | Tensor"
"""(n, d), one row per image, of any real floating or integer type."""


def entry_point(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a public function independent of torch's default device, and report all out-of-memory errors as one error."""

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            with cpu_by_default():
                return function(*args, **kwargs)
        except Exception as error:
            if isinstance(error, GenprError) or not is_out_of_memory(error):
                raise
            reason = short(" ".join(str(error).split()) or "MemoryError", 160)
            text = f"out of memory ({reason}); free memory, use fewer images, or another device"
            raise ResourceError(text, code="oom") from error

    return call


def check_features(features: object, name: str) -> Tensor:
    """Check features and return them as contiguous float32, without a copy if possible."""
    import torch

    if isinstance(features, torch.Tensor):
        if features.layout != torch.strided:
            raise _shape_error(name, f"a {features.layout} tensor", "call .to_dense() first")
        original: Features = features.detach()
        kind_is_real = not (features.is_complex() or features.dtype == torch.bool or features.is_quantized)
    elif isinstance(features, np.ndarray):
        original, kind_is_real = features, features.dtype.kind in "fiu"
    else:
        came = f"a {type(features).__name__}"
        raise _shape_error(name, came, "embed images first, or convert with numpy.asarray")
    came = f"{original.dtype} of shape {tuple(original.shape)}"
    if not kind_is_real:
        raise _shape_error(name, came, "objects, booleans and complex numbers are not features")
    if original.ndim != 2 or original.shape[1] == 0:
        raise _shape_error(name, came, _likely_cause(tuple(original.shape)))
    converted = float_rows(original)
    step = max(1, _CHUNK_ELEMENTS // converted.shape[1])
    for start in range(0, len(converted), step):
        bad = ~converted[start : start + step].isfinite()
        if bad.any():
            row, column = bad.nonzero()[0].tolist()
            raise _non_finite(converted, original, name, (start + row, column))
    return converted


def check_same_width(x: Tensor, y: Tensor, *, names: tuple[str, str] = ("real", "fake")) -> None:
    """Refuse feature sets of different width."""
    if x.shape[1] != y.shape[1]:
        raise FeatureError(
            f"{names[0]} has {x.shape[1]} features per image but {names[1]} has {y.shape[1]}; "
            "embed both with the same extractor",
            code="width-mismatch",
        )


def check_rows(features: Tensor, name: str, *, k: int) -> None:
    """Refuse sets in which a row has no k-th neighbor; k = 0 requires one row, k = 1 two rows."""
    if len(features) < k + 1:
        why = f"at least k + 1 = {k + 1} rows" if k > 1 else ("at least 1 row", "at least 2 rows")[k]
        remedy = "use more images" + " or a smaller k" * (k > 1)
        text = f"{name} needs {why}, found {len(features)}; {remedy}"
        raise FeatureError(text, code="too-few")


def check_k(k: object) -> int:
    """Check a number of neighbors, the row itself not counted."""
    if isinstance(k, bool) or not isinstance(k, Integral) or k < 1:
        text = f"k must be an integer of at least 1 (the image itself is not counted), not {k!r}"
        raise UsageError(text, code="bad-k")
    return int(k)


def check_ties(ties: object) -> None:
    """Refuse anything but "closed" and "strict"."""
    if ties not in ("closed", "strict"):
        text = f"ties must be 'closed' (points on the sphere are inside) or 'strict' (outside), not {ties!r}"
        raise UsageError(text, code="bad-ties")


def choose_device(features: object, device: str | torch.device) -> torch.device:
    """The device to compute on: for "auto" the GPU of the features if they are on one, else the best device."""
    import torch

    if device == "auto" and isinstance(features, torch.Tensor) and features.is_cuda:
        return usable_device(features.device)
    return resolve_device(device)


def _shape_error(name: str, came: str, cause: str) -> FeatureError:
    text = (
        f"{name} must be a 2-D array (n, d) of floats or integers, one row per image, but is {came}; {cause}"
    )
    return FeatureError(text, code="feature-shape")


def _likely_cause(shape: tuple[int, ...]) -> str:
    if len(shape) == 4 and shape[2:] == (1, 1):
        return "flatten [n, d, 1, 1] to [n, d] first"
    return "these look like images: use genpr.score" if len(shape) == 4 else "one vector per image is needed"


def _non_finite(converted: Tensor, original: Features, name: str, first: tuple[int, int]) -> FeatureError:
    """The error for NaN or infinite features; `first` is the first row and column with one."""
    value = original[first].item()
    is_overflow = bool(converted[first].isinf()) and abs(value) < float("inf")
    cause = "overflows float32, in which genpr computes" if is_overflow else "is not a finite number"
    text = f"{name} features must be finite, but {value} in row {first[0]}, column {first[1]} (counted from 0) {cause}"
    return FeatureError(text, code="non-finite")


def check_count(value: object, name: str, *, minimum: int, maximum: int | None = None) -> int:
    """Check that an integer option is within its range."""
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer or value < minimum or (maximum is not None and value > maximum):  # type: ignore[operator]
        upper = "" if maximum is None else f" and at most {maximum}"
        text = f"{name} must be an integer of at least {minimum}{upper}, not {value!r}"
        raise UsageError(text, code="bad-option")
    return int(value)  # type: ignore[call-overload, no-any-return]
