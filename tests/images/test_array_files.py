"""Arrays in memory, and .npz and .npy files: read in parts, validated, and never unpickled."""

import io
import os

import numpy as np
import pytest
import torch
from archives import npy_of, zip_of
from image_files import refused_source, stack
from little_memory import little_memory
from raising import raised, raising

from genpr.errors import DataError
from genpr.features.feature_set import load_features
from genpr.features.statistics import read_statistics
from genpr.images import arrays
from genpr.images.arrays import peek_array
from genpr.images.source import open_source

IMAGES = np.random.default_rng(0).integers(0, 256, (23, 5, 6, 3), dtype=np.uint8)


def write_member(path, data: bytes):
    path.write_bytes(zip_of({"arr_0.npy": data}))
    return path


# In memory ---------------------------------------------------------------------------------------------------


def test_arrays_and_tensors_give_their_images():
    source = open_source(IMAGES)
    assert source.name == "<array>"
    assert len(source) == 23
    np.testing.assert_array_equal(stack(source), IMAGES)
    tensor = torch.from_numpy(IMAGES).permute(0, 3, 1, 2)
    for given in (tensor, tensor.contiguous()):
        source = open_source(given)
        assert (source.name, len(source)) == ("<tensor>", 23)
        np.testing.assert_array_equal(stack(source), IMAGES)
    assert open_source(IMAGES, name="<fake images>").name == "<fake images>"


@pytest.mark.parametrize(
    ("array", "code", "fix"),
    [
        (np.zeros((2, 4, 4, 3)), "array-dtype", "(x * 255).round().astype(np.uint8)"),
        (np.zeros((2, 4, 4, 3), np.int64), "array-dtype", "0..255"),
        (np.zeros((2, 4, 4, 3), bool), "array-dtype", "0..255"),
        (np.zeros((2, 4, 4, 3), object), "array-dtype", "got object"),
        (np.zeros((2, 3, 4, 5), np.uint8), "array-shape", "x.transpose(0, 2, 3, 1)"),
        (np.zeros((2, 4, 4), np.uint8), "array-shape", "gray"),
        (np.zeros((4, 4, 3), np.uint8), "array-shape", "first axis"),
        (np.zeros((2, 4, 4, 4), np.uint8), "array-shape", "alpha"),
        (np.zeros((2, 4, 0, 3), np.uint8), "array-shape", "(2, 4, 0, 3)"),
        (np.zeros((0, 4, 4, 3), np.uint8), "no-images", "(0, 4, 4, 3)"),
        (np.zeros((2, 4, 4, 3), np.float16), "array-dtype", "((x.astype(np.float32) + 1) * 127.5)"),
        (np.ma.masked_equal(IMAGES, 7), "masked-array", "x.filled(value)"),
        (torch.zeros(2, 3, 4, 4), "array-dtype", "(x * 255).round().to(torch.uint8)"),
        (torch.zeros(2, 3, 4, 4).bfloat16(), "array-dtype", "((x.float() + 1) * 127.5).round()"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.int64), "array-dtype", "0..255"),
        (torch.zeros(2, 4, 5, 3, dtype=torch.uint8), "array-shape", "x.permute(0, 3, 1, 2)"),
        (torch.zeros(2, 2, 4, 5, dtype=torch.uint8), "array-shape", "gray"),
        (torch.zeros(0, 3, 4, 5, dtype=torch.uint8), "no-images", "(0, 3, 4, 5)"),
    ],
)
def test_invalid_arrays_are_errors_that_name_the_fix(array, code, fix):
    error = refused_source(array)
    assert error.code == code
    assert fix in str(error)


# npz --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("per_batch", [1, 2, 22, 23, 24])
def test_npz_yields_every_image_once_in_order_for_any_batch_size(tmp_path, monkeypatch, save, per_batch):
    save(tmp_path / "x.npz", IMAGES, np.arange(23))
    monkeypatch.setattr(arrays, "_BATCH_BYTES", per_batch * IMAGES[0].nbytes + 7)
    source = open_source(tmp_path / "x.npz")
    assert len(source) == 23
    np.testing.assert_array_equal(stack(source), IMAGES)
    np.testing.assert_array_equal(stack(source), IMAGES)


def test_npz_is_never_completely_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "_BATCH_BYTES", 2**20)
    np.savez_compressed(tmp_path / "x.npz", np.zeros((400, 256, 256, 3), np.uint8))
    assert (tmp_path / "x.npz").stat().st_size < 2**20
    with little_memory(5 * 2**20):
        assert sum(1 for _ in open_source(tmp_path / "x.npz")) == 400


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("key", ["samples", "images", "x_train", "arr_3"])
def test_only_array_of_images_in_an_npz_is_read_under_any_key(tmp_path, save, key):
    others = {"label": np.arange(23), "z": np.zeros((23, 4, 4, 3), np.float32), "mask": IMAGES[..., 0]}
    others["names"] = np.array([None, "a"])  # pickled, and not loaded
    save(tmp_path / "x.npz", **others, **{key: IMAGES})
    np.testing.assert_array_equal(stack(open_source(tmp_path / "x.npz")), IMAGES)
    save(tmp_path / "y.npz", **others, **{key: IMAGES}, arr_0=IMAGES[::-1])
    np.testing.assert_array_equal(stack(open_source(tmp_path / "y.npz")), IMAGES[::-1])


def test_npz_without_one_array_of_images_lists_its_keys(tmp_path):
    several = {"x_train": IMAGES, "x_test": IMAGES, "y_train": np.arange(23)}
    many = {f"k{number}": np.arange(2) for number in range(100)}
    for arrays_, keys in (
        (several, ["x_train uint8", "x_test uint8"]),
        (
            {"images": IMAGES[..., 0], "labels": np.arange(23)},
            [f"images uint8 {IMAGES.shape[:3]}", "labels int64"],
        ),
        ({"images": IMAGES / 255}, ["images float64"]),
        (many | {"images": IMAGES}, ["k0, k1", "100"]),  # the headers of so many are not read
    ):
        np.savez(tmp_path / "x.npz", **arrays_)
        error = refused_source(tmp_path / "x.npz")
        assert error.code == "npz-key"
        assert all(key in str(error) for key in keys)


def test_channels_first_and_forged_arrays_under_another_key_are_errors(tmp_path):
    np.savez(tmp_path / "x.npz", samples=np.ascontiguousarray(IMAGES.transpose(0, 3, 1, 2)), label=[1])
    assert refused_source(tmp_path / "x.npz").code == "array-shape"
    for data in (BROKEN["images"], BROKEN["nested"], BROKEN["text"]):
        (tmp_path / "x.npz").write_bytes(zip_of({"samples.npy": data, "label.npy": npy_of(np.arange(2))}))
        assert refused_source(tmp_path / "x.npz").code == "array-damaged"


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("suffix", ["npz", "npy"])
def test_object_arrays_are_errors_and_their_code_is_never_executed(tmp_path, suffix):
    data = npy_of(np.array([Trap(tmp_path / "sprung")], dtype=object))
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(data) if suffix == "npy" else write_member(path, data)
    error = refused_source(path)
    assert error.code == "array-pickle"
    assert peek_array(path) == ((1,), np.dtype(object))
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("suffix", ["npz", "npy"])
def test_array_files_in_fortran_order_are_errors(tmp_path, suffix):
    path, data = tmp_path / f"x.{suffix}", npy_of(np.asfortranarray(IMAGES))
    path.write_bytes(data) if suffix == "npy" else write_member(path, data)
    assert refused_source(path).code == "array-shape"


def lying_header(claimed: tuple[int, ...], data: bytes) -> bytes:
    file = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": claimed}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + data


BROKEN = {
    "more": lying_header((24, 5, 6, 3), IMAGES.tobytes()),
    "images": lying_header((10**12, 5, 6, 3), IMAGES.tobytes()),
    "sides": lying_header((1, 10**6, 10**6, 3), IMAGES.tobytes()),
    "rest": lying_header((22, 5, 6, 3), IMAGES.tobytes()),
    "negative": lying_header((-1, 5, 6, 3), IMAGES.tobytes()),
    "cut": npy_of(IMAGES)[:20],
    "version": b"\x93NUMPY\x09\x00" + bytes(200),
    "nested": b"\x93NUMPY\1\0\x88\x13" + b"(" * 4999 + b"\n",
    "text": b"no header at all",
    "empty": b"",
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_wrong_and_broken_headers_are_errors_at_opening(tmp_path, data):
    path = write_member(tmp_path / "x.npz", data)
    (tmp_path / "x.npy").write_bytes(data)
    for each in (path, tmp_path / "x.npy"):
        assert refused_source(each).code == "array-damaged"


# npy --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0, 100, -1])
def test_npy_that_is_truncated_while_it_is_read_is_an_error(tmp_path, rng, kept):
    """A mapped file would end the process with a signal."""
    path = tmp_path / "x.npy"
    np.save(path, rng.integers(0, 256, (64, 128, 128, 3), dtype=np.uint8))
    items = iter(open_source(path))
    next(items).read()
    os.truncate(path, kept if kept >= 0 else path.stat().st_size + kept)
    with raising(DataError, "array-damaged"):
        [item.read() for item in items]


@pytest.mark.parametrize("suffix", ["npz", "npy"])
def test_array_file_that_is_written_while_it_is_read_is_an_error(tmp_path, monkeypatch, suffix):
    """A sampler may fill a mapped file, whose last images are zeros until then."""
    monkeypatch.setattr(arrays, "_BATCH_BYTES", 1)
    path = tmp_path / f"x.{suffix}"
    np.save(path, IMAGES) if suffix == "npy" else np.savez(path, IMAGES)
    items = iter(open_source(path))
    next(items).read()
    with path.open("r+b") as file:
        file.seek(-60, os.SEEK_END)
        file.write(b"\1")
    os.utime(path, ns=(0, 0))  # for file systems of coarse times
    assert raised(DataError, next, items).code == "array-damaged"


def test_only_selected_images_of_an_array_file_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "_BATCH_BYTES", 2 * IMAGES[0].nbytes)
    for save, name in ((np.save, "x.npy"), (np.savez_compressed, "x.npz")):
        save(tmp_path / name, IMAGES)
        picked = list(open_source(tmp_path / name).select([0, 5, 6, 7, 22]))
        assert [item.name for item in picked] == ["[0]", "[5]", "[6]", "[7]", "[22]"]
        np.testing.assert_array_equal([item.read() for item in picked], IMAGES[[0, 5, 6, 7, 22]])


# peek -------------------------------------------------------------------------------------------------------


def test_peek_distinguishes_features_from_images(tmp_path):
    features = np.zeros((7, 4), np.float32)
    np.save(tmp_path / "f.npy", features)
    np.save(tmp_path / "i.npy", IMAGES)
    np.savez(tmp_path / "f.npz", features=features)
    np.savez_compressed(tmp_path / "i.npz", IMAGES, np.arange(23))
    expected = {"f": ((7, 4), np.dtype(np.float32)), "i": ((23, 5, 6, 3), np.dtype(np.uint8))}
    for name in ("f.npy", "f.npz", "i.npy", "i.npz"):
        assert peek_array(tmp_path / name) == expected[name[0]]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_npz_of_two_arrays_of_one_name_is_an_error_wherever_it_is_read(tmp_path):
    def written(*arrays):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.npz"
        path.write_bytes(zip_of([(f"{name}.npy", npy_of(array)) for name, array in arrays]))
        return path

    rows, moments = np.ones((9, 2)), [("mu", np.ones(2)), ("sigma", np.eye(2))]
    for read, arrays_, code in (
        (open_source, [("arr_0", IMAGES)] * 2, "array-damaged"),
        (load_features, [("arr_0", rows)] * 2, "file-damaged"),
        (read_statistics, [*moments, moments[0]], "statistics-damaged"),
    ):
        with raising(DataError, code):
            read(written(*arrays_))
