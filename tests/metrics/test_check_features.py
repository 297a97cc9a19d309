import numpy as np
import pytest
import torch
from raising import raising
from special_tensors import SPECIAL, special

from genpr.errors import DataError, FeatureError
from genpr.metrics.manifold import manifold_metrics
from genpr.validation import check_features


@pytest.fixture
def features(rng):
    """Multiples of 1/8, which all smaller types represent exactly."""
    return (rng.integers(-100, 100, (40, 6)) / 8).astype(np.float32)


def _memory_map(tmp_path, array):
    path = tmp_path / "features.npy"
    np.save(path, array)
    return np.load(path, mmap_mode="r")


def _read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


_FORMS = {
    "float16": lambda x, _: x.astype(np.float16),
    "float64": lambda x, _: x.astype(np.float64),
    "longdouble": lambda x, _: x.astype(np.longdouble),
    "big-endian": lambda x, _: x.astype(">f4"),
    "every second row": lambda x, _: x.repeat(2, axis=0)[::2],
    "reversed": lambda x, _: x[::-1].copy()[::-1],
    "columns first": lambda x, _: np.asfortranarray(x),
    "read-only": lambda x, _: _read_only(x),
    "memory map": lambda x, tmp_path: _memory_map(tmp_path, x),
    "float16 memory map": lambda x, tmp_path: _memory_map(tmp_path, x.astype(np.float16)),
    "tensor": lambda x, _: torch.from_numpy(x.copy()),
    "half tensor": lambda x, _: torch.from_numpy(x).half(),
    "bfloat16 tensor": lambda x, _: torch.from_numpy(np.round(x)).bfloat16(),
    "double tensor": lambda x, _: torch.from_numpy(x).double(),
    "transposed tensor": lambda x, _: torch.from_numpy(x).T.contiguous().T,
    "tensor in a graph": lambda x, _: torch.from_numpy(x.copy()).requires_grad_() * 1,
    "parameter": lambda x, _: torch.nn.Parameter(torch.from_numpy(x.copy())),
    "int8": lambda x, _: np.round(x).astype(np.int8),
    "uint16": lambda x, _: np.round(x + 20).astype(np.uint16),
    "int64": lambda x, _: np.round(x).astype(np.int64),
    "integer tensor": lambda x, _: torch.from_numpy(np.round(x)).int(),
    "negative bit": lambda x, _: torch._neg_view(-torch.from_numpy(x)),
    "conjugate": lambda x, _: torch.complex(torch.from_numpy(x), torch.zeros(x.shape)).conj().real,
    "imaginary part": lambda x, _: torch.complex(torch.zeros(x.shape), -torch.from_numpy(x)).conj().imag,
    "subclass": lambda x, _: torch.from_numpy(x).as_subclass(Subclass),
}


class Subclass(torch.Tensor):
    """As of torchvision and fastai."""


def _numpy_copy(features):
    if isinstance(features, torch.Tensor):
        return features.detach().resolve_neg().double().numpy().copy()
    return np.array(features, dtype=np.float64)


@pytest.mark.parametrize("form", _FORMS)
def test_every_form_equals_a_contiguous_float32_copy(features, form, tmp_path):
    given = _FORMS[form](features, tmp_path)
    before = _numpy_copy(given)
    plain = before.astype(np.float32)
    checked = check_features(given, "real")
    assert (checked.dtype, type(checked)) == (torch.float32, torch.Tensor)
    assert checked.is_contiguous()
    assert not checked.requires_grad
    assert checked.tolist() == plain.tolist()
    other = plain[::-1] + np.float32(0.125)
    assert manifold_metrics(given, other) == manifold_metrics(plain, other)
    assert manifold_metrics(other, given) == manifold_metrics(other, plain)
    assert (_numpy_copy(given) == before).all()


def test_float32_is_not_copied(features, tmp_path):
    read_only = _read_only(features)
    mapped = _memory_map(tmp_path, features)
    for given in (features, read_only, mapped):
        assert check_features(given, "real").data_ptr() == given.__array_interface__["data"][0]
    tensor = torch.from_numpy(features)
    assert check_features(tensor, "real").data_ptr() == tensor.data_ptr()
    assert not read_only.flags.writeable


@pytest.mark.parametrize(
    ("given", "came", "cause"),
    [
        (np.zeros(5), r"float64 of shape \(5,\)", "one vector per image"),
        (np.float32(1), r"a float32", "numpy.asarray"),
        (np.zeros((2, 3, 4)), r"float64 of shape \(2, 3, 4\)", "one vector per image"),
        (torch.zeros(7, 5, 1, 1), r"torch.float32 of shape \(7, 5, 1, 1\)", r"flatten \[n, d, 1, 1\]"),
        (np.zeros((7, 8, 8, 3), dtype=np.uint8), r"uint8 of shape", "takes images"),
        (np.zeros((4, 0)), r"float64 of shape \(4, 0\)", "one vector per image"),
        (np.zeros((4, 2), dtype=object), "object of shape", "objects, booleans"),
        (np.zeros((4, 2), dtype=bool), "bool of shape", "objects, booleans"),
        (np.zeros((4, 2), dtype=complex), "complex128 of shape", "objects, booleans"),
        (np.zeros((4, 2), dtype="U3"), "<U3 of shape", "objects, booleans"),
        (torch.zeros(4, 2, dtype=torch.bool), "torch.bool of shape", "objects, booleans"),
        (torch.zeros(4, 2, dtype=torch.cfloat), "torch.complex64 of shape", "objects, booleans"),
        *((special(kind, torch.ones(4, 2)), "a .*Tensor of ", "to_dense") for kind in SPECIAL),
        ([[1.0, 2.0]], "a list", "numpy.asarray"),
        ("fakes/", "a str", "embed images first"),
        (None, "a NoneType", "embed images first"),
    ],
)
def test_invalid_feature_arrays_are_errors(given, came, cause):
    with raising(FeatureError, "feature-shape", rf"fake must be a 2-D array .* but is {came}.*{cause}"):
        check_features(given, "fake")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
def test_first_non_finite_value_is_named(features, bad, convert):
    features[7, 4] = features[7, 5] = features[30, 0] = bad
    with pytest.raises(FeatureError, match=rf"{bad} in row 7, column 4") as error:
        check_features(convert(features), "real")
    assert error.value.code == "non-finite"
    assert "overflow" not in str(error.value)


def test_non_finite_rows_are_found_in_every_chunk(monkeypatch, features):
    monkeypatch.setattr("genpr.validation._CHUNK_ELEMENTS", 12)
    features[11, 3] = features[12, 0] = features[39, 5] = np.nan
    with pytest.raises(FeatureError, match="row 11, column 3"):
        check_features(features, "real")


INTEGERS = [np.int32, np.int64, np.uint32, np.uint64, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_that_float32_does_not_represent_are_errors(dtype):
    convert = np.asarray if isinstance(dtype, type) else torch.tensor
    largest = [[0, 2**24], [2**25 + 4, 3 * 2**29]]
    assert check_features(convert(largest, dtype=dtype), "real").tolist() == largest
    for wrong in (2**24 + 1, 2**26 + 4):
        with raising(FeatureError, "inexact-integers", str(wrong)):
            manifold_metrics(convert([*largest, [wrong, 0]], dtype=dtype), np.zeros((9, 2)), k=1)
    assert check_features(convert([[2**31 - 2**7]], dtype=dtype), "real").item() == 2**31 - 2**7


def test_extreme_integers_are_compared_without_overflow():
    low, high = np.iinfo(np.int64).min, np.iinfo(np.uint64).max
    assert check_features(np.array([[low]]), "real").item() == low
    for extreme in (np.array([[low + 1]]), np.array([[high]], dtype=np.uint64)):
        with raising(FeatureError, "inexact-integers"):
            check_features(extreme, "real")


def test_masked_values_are_errors(features):
    masked = np.ma.masked_greater(features, 5)
    with raising(DataError, "masked-array"):
        check_features(masked, "real")
    plain = np.ma.masked_greater(features, 500)
    assert check_features(plain, "real").tolist() == features.tolist()
