"""Checks of feature arrays and options at public functions; internal code relies on them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import cache, wraps
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypeGuard, TypeVar, cast

import numpy as np

from genpr.errors import DataError, FeatureError, GenprError, ResourceError, UsageError, short
from genpr.memory import float_rows
from genpr.runtime import is_out_of_memory, plain_state, resolve_device, usable_device

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

_CHUNK_ELEMENTS = 2**22
_EXACT = 2**24  # float32 represents all integers up to here
_KEY_COLUMNS = 16
_MAX_SECONDS = 365 * 86_400
_ASYMMETRY = 1e-6  # of the largest entry; covariances of other tools, in float32, have rounding errors
_P = ParamSpec("_P")
_R = TypeVar("_R")

Features: TypeAlias = "NDArray[Any] | Tensor"
"""(n, d), one row per image, of any real floating or integer type."""
Ties: TypeAlias = Literal["closed", "strict"]
"""Whether a point on the sphere of a ball is inside: "closed" yes, "strict" no."""


def entry_point(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a public function independent of global state, and report all out-of-memory errors as one error."""

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            with plain_state():
                return function(*args, **kwargs)
        except Exception as error:
            if isinstance(error, GenprError) or not is_out_of_memory(error):
                raise
            reason = short(" ".join(str(error).split()) or "MemoryError", 160)
            text = f"out of memory ({reason}); free memory, use fewer images, or another device"
            raise ResourceError(text, code="oom") from error

    return call


def is_plain(value: object) -> TypeGuard[Tensor]:
    """Whether a value is a tensor of numbers in memory: not sparse, nested, quantized, of packed bits, emulated, or without data."""
    import torch

    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_meta:
        return False
    is_on_cpu, own_dispatch = value.device.type == "cpu", type(value).__torch_dispatch__
    is_emulated = is_on_cpu and own_dispatch is not torch.Tensor.__torch_dispatch__
    return not (value.is_nested or value.is_quantized or is_emulated) and _can_convert(value.dtype)


@cache
def _can_convert(dtype: torch.dtype) -> bool:
    """Whether torch converts numbers of a type, which it does not for packed ones."""
    import torch

    try:
        torch.empty(1, dtype=dtype, device="cpu").to(torch.complex64)
    except RuntimeError:
        return False
    return True


def kind_of(value: object) -> str:
    """The type of a value, and what is special about a tensor or array, for messages."""
    kind, array = f"a {type(value).__name__}", cast("Any", value)
    if not hasattr(value, "dtype"):
        return kind
    shape = "nested" if getattr(value, "is_nested", False) else tuple(array.shape)
    facts = {str(getattr(value, name, "cpu")) for name in ("layout", "device")} - {"torch.strided", "cpu"}
    return ", ".join([f"{kind} of {array.dtype} {shape}", *sorted(facts)])


def check_features(features: object, name: str) -> Tensor:
    """Check features and return them as contiguous float32, without a copy if possible."""
    import torch

    check_unmasked(features, name)
    if isinstance(features, torch.Tensor):
        if not is_plain(features):
            cause = "pass a dense tensor with data (.to_dense(), .dequantize(), or numpy.asarray)"
            raise _shape_error(name, kind_of(features), cause)
        original: Features = features.detach().as_subclass(torch.Tensor).resolve_neg()
        kind_is_real = not (features.is_complex() or features.dtype == torch.bool)
    elif isinstance(features, np.ndarray):
        original, kind_is_real = features, features.dtype.kind in "fiu"
    else:
        came = f"a {type(features).__name__}"
        raise _shape_error(name, came, "embed images first, or convert with numpy.asarray")
    came = f"{original.dtype} of shape {tuple(original.shape)}"
    if not kind_is_real:
        raise _shape_error(name, came, "objects, booleans and complex numbers are not features")
    if original.ndim != 2 or original.shape[1] == 0:
        cause = (
            "flatten [n, d, 1, 1] to [n, d] first"
            if original.shape[2:] == (1, 1)
            else "one vector per image is needed; genpr.score takes images, of other types than uint8 with value_range"
        )
        raise _shape_error(name, came, cause)
    converted = float_rows(original)
    step = max(1, _CHUNK_ELEMENTS // converted.shape[1])
    for start in range(0, len(converted), step):
        chunk = slice(start, start + step)
        check_integers(original[chunk], name)
        some = converted[chunk]
        # NaN is both of these, and float64 holds every difference of finite ones.
        if some.numel() and not math.isfinite(float(some.amax().double() - some.amin())):
            bad = ~some.isfinite()
            row, column = bad.nonzero()[0].tolist()
            value = original[start + row, column].item()
            at = f"row {start + row}, column {column} (counted from 0)"
            text = f"{name} features must be finite in float32, in which genpr computes, but {value} in {at} is not"
            raise FeatureError(text, code="non-finite")
    return converted


def check_unmasked(array: object, name: str) -> None:
    """Refuse masked arrays of NumPy with masked entries, since computations would use these entries."""
    if np.ma.is_masked(array):
        text = f"{name} has masked entries; fill them (x.filled(value)), or leave their rows out"
        raise DataError(text, code="masked-array")


def check_integers(rows: Features, name: str) -> None:
    """Refuse integers that float32, in which features are kept, does not represent exactly; floats are not checked."""
    is_float = rows.dtype.kind == "f" if isinstance(rows, np.ndarray) else rows.is_floating_point()
    if is_float or rows.dtype.itemsize <= 2 or 0 in rows.shape:
        return
    values = rows if isinstance(rows, np.ndarray) else rows.cpu().numpy()
    if int(values.min()) >= -_EXACT and int(values.max()) <= _EXACT:
        return
    with np.errstate(all="ignore"):  # 0 // 0 is 0
        inexact = abs(values // (values & -values)) > _EXACT  # without their trailing zero bits
    if inexact.any():
        text = (
            f"{name} has integers that float32, in which genpr computes, does not represent exactly, such as "
            f"{values[inexact][0]}; subtract a common offset from the features of both sets, or scale them"
        )
        raise FeatureError(text, code="inexact-integers")


def merged_rows(features: Features, converted: Tensor) -> int:
    """Number of different rows (n, d) of 8-byte floats that are equal to another one after their conversion to float32."""
    if features.dtype.itemsize <= 4:
        return 0
    key = converted[:, :: -(-converted.shape[1] // _KEY_COLUMNS)].cpu().numpy() + np.float32(0)  # no -0.0
    key = np.ascontiguousarray(key).view(f"V{4 * key.shape[1]}").ravel()
    _, group, counts = np.unique(key, return_inverse=True, return_counts=True)
    suspects = np.flatnonzero(counts[group] > 1).tolist()
    before, after = (
        len({hashlib.sha256(_float64(rows[index]).tobytes()).digest() for index in suspects})
        for rows in (features, converted)
    )
    return before - after


def _float64(row: Features) -> NDArray[np.float64]:
    return (row if isinstance(row, np.ndarray) else row.cpu().numpy()).astype(np.float64) + 0.0


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


def checked_pair(real: Features, fake: Features, *, k: int) -> tuple[Tensor, Tensor]:
    """Features of reals and of fakes as `check_features` returns them, of one width and more than k rows each."""
    checked = check_features(real, "real"), check_features(fake, "fake")
    check_same_width(*checked)
    check_rows(checked[0], "real", k=k)
    check_rows(checked[1], "fake", k=k)
    return checked


def check_moments(mean: NDArray[np.float64], covariance: NDArray[np.float64]) -> None:
    """Raise a ValueError for what cannot be the mean (d,) and the covariance (d, d) of features."""
    if mean.ndim != 1 or not len(mean) or covariance.shape != mean.shape * 2:
        raise ValueError(f"the shapes must be (d,) and (d, d), not {mean.shape} and {covariance.shape}")
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise ValueError("some values are NaN or infinite")
    allowed = _ASYMMETRY * float(np.abs(covariance).max())
    with np.errstate(over="ignore"):
        skew = np.abs(covariance - covariance.T).max()
    if skew > allowed:
        raise ValueError(f"the covariance must be symmetric, but entries differ by up to {skew:.3g}")
    if covariance.diagonal().min() < -allowed:
        raise ValueError("a variance is negative")


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


def check_flag(value: object, name: str) -> None:
    """Refuse anything but True and False."""
    if not isinstance(value, bool | np.bool_):
        raise UsageError(f"{name} must be True or False, not {value!r:.60}", code="bad-option")


def check_seconds(name: str, seconds: float, *, may_be_zero: bool = False) -> None:
    """Check a time, which the system must be able to wait for."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds <= _MAX_SECONDS or (not seconds and not may_be_zero):
        least = "from 0" if may_be_zero else "above 0 and up"
        text = f"{name} must be a number of seconds {least} to {_MAX_SECONDS:,} (a year), not {seconds!r:.60}"
        raise UsageError(text, code="bad-option")


def check_count(value: object, name: str, *, minimum: int, maximum: int | None = None) -> int:
    """Check that an integer option is within its range."""
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer or value < minimum or (maximum is not None and value > maximum):  # type: ignore[operator]
        upper = "" if maximum is None else f" and at most {maximum}"
        text = f"{name} must be an integer of at least {minimum}{upper}, not {value!r}"
        raise UsageError(text, code="bad-option")
    return int(value)  # type: ignore[call-overload, no-any-return]
