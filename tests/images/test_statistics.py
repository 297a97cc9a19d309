"""Reference statistics: read as they are or refused with the key named, and never in the way of images."""

from __future__ import annotations

import io
import tracemalloc
import zipfile

import numpy as np
import pytest
from image_files import raised, refused_source, stack

from genpr.errors import DataError
from genpr.images import statistics
from genpr.images.arrays import peek_array
from genpr.images.source import open_source
from genpr.images.statistics import read_statistics

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (23, 5, 6, 3), dtype=np.uint8)
POOLED, SPATIAL = RNG.normal(size=(50, 8)), RNG.normal(size=(50, 6))
STATISTICS = {
    "mu": POOLED.mean(0),
    "sigma": np.cov(POOLED, rowvar=False),
    "mu_s": SPATIAL.mean(0),
    "sigma_s": np.cov(SPATIAL, rowvar=False),
}


def saved(path, *, save=np.savez, **changes):
    arrays = {key: array for key, array in (STATISTICS | changes).items() if array is not None}
    save(path, **arrays)
    return path


def refused(path) -> DataError:
    error = raised(DataError, read_statistics, path)
    assert "\n" not in str(error)
    assert path.name in str(error)
    assert error.path == str(path)
    return error


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("extra", [{}, {"arr_0": IMAGES}, {"arr_0": IMAGES, "arr_1": np.arange(23)}])
def test_statistics_are_read_as_they_were_written(tmp_path, save, extra):
    path = saved(tmp_path / "x.npz", save=save, **extra)
    found = read_statistics(str(path))
    for key, expected in STATISTICS.items():
        array = getattr(found, key)
        assert array.dtype == np.float64
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">f8", "<f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_other_floats_and_orders_become_float64(tmp_path, dtype, order):
    given = {key: np.asarray(array, dtype, order=order) for key, array in STATISTICS.items()}
    found = read_statistics(saved(tmp_path / "x.npz", **given))
    for key in STATISTICS:
        array = getattr(found, key)
        assert array.dtype == np.float64
        assert array.dtype.isnative
        assert array.flags.c_contiguous
        np.testing.assert_array_equal(array, given[key].astype(np.float64))


def test_spatial_statistics_may_be_missing(tmp_path):
    found = read_statistics(saved(tmp_path / "x.npz", mu_s=None, sigma_s=None))
    assert found.mu_s is None
    assert found.sigma_s is None
    np.testing.assert_array_equal(found.mu, STATISTICS["mu"])


def test_files_without_statistics_have_none(tmp_path):
    np.savez(tmp_path / "images.npz", IMAGES)
    saved(tmp_path / "half.npz", sigma=None, arr_0=IMAGES)
    for name in ("images.npz", "half.npz"):
        assert read_statistics(tmp_path / name) is None


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({"mu": np.zeros(7)}, "statistics-shape", "(7,) and (8, 8)"),
        ({"mu": np.zeros((1, 8))}, "statistics-shape", "(1, 8) and (8, 8)"),
        ({"mu": np.zeros(0), "sigma": np.zeros((0, 0))}, "statistics-shape", "(0,) and (0, 0)"),
        ({"sigma_s": np.eye(6)[:5]}, "statistics-shape", "'sigma_s' of (d, d), got (6,) and (5, 6)"),
        ({"sigma_s": None}, "statistics-damaged", "has 'mu_s' but no 'sigma_s'"),
        ({"mu_s": None}, "statistics-damaged", "has 'sigma_s' but no 'mu_s'"),
        ({"mu": np.array([0.0] * 7 + [np.nan])}, "non-finite", "has nan in 'mu' at [7]"),
        ({"sigma": np.diag([1.0] * 5 + [np.inf] * 3)}, "non-finite", "has inf in 'sigma' at [5, 5]"),
        (
            {"sigma": np.eye(8) + np.eye(8, k=2) / 8},
            "statistics-covariance",
            "[0, 2] is 0.125 and [2, 0] is 0",
        ),
        ({"sigma": np.diag([1.0, 1, -2, 1, 1, 1, 1, 1])}, "statistics-covariance", "[2, 2] is -2"),
        ({"sigma": np.where(np.tri(8) > 0, 1e308, -1e308)}, "statistics-covariance", "not symmetric"),
        ({"mu": np.zeros(8, int)}, "statistics-dtype", "needs floats in 'mu', got int64"),
        ({"sigma": np.eye(8) * 1j}, "statistics-dtype", "complex128"),
        ({"sigma": np.full((8, 8), None)}, "statistics-pickle", "Python objects in 'sigma'"),
    ],
)
def test_wrong_statistics_are_refused_with_what_came(tmp_path, changes, code, says):
    error = refused(saved(tmp_path / "x.npz", **changes))
    assert error.code == code
    assert says in str(error)


def test_rounding_is_no_asymmetry(tmp_path):
    sigma = STATISTICS["sigma"] * (1 + 1e-8 * RNG.random((8, 8)))
    np.testing.assert_array_equal(read_statistics(saved(tmp_path / "x.npz", sigma=sigma)).sigma, sigma)


def npy(array, shape=None) -> bytes:
    file = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": shape or array.shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + array.tobytes()


def zipped(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, data in members.items():
            archive.writestr(f"{key}.npy", data)
    return path


@pytest.mark.parametrize("data", [npy(STATISTICS["sigma"])[:-8], npy(STATISTICS["sigma"])[:40], b"", b"PK"])
def test_a_cut_key_is_named(tmp_path, data):
    error = refused(zipped(tmp_path / "x.npz", mu=npy(STATISTICS["mu"]), sigma=data))
    assert error.code == "statistics-damaged"
    assert "'sigma'" in str(error)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("key", STATISTICS)
def test_a_flipped_byte_is_found_and_its_key_named(tmp_path, save, key):
    path = saved(tmp_path / "x.npz", save=save)
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(f"{key}.npy")
    data = bytearray(path.read_bytes())
    data[info.header_offset + 60 + info.compress_size - 10] ^= 0x55
    path.write_bytes(data)
    error = refused(path)
    assert error.code == "statistics-damaged"
    assert repr(key) in str(error)


@pytest.mark.parametrize("share", [0, 0.3, 0.9, 0.99])
def test_a_cut_file_is_damaged(tmp_path, share):
    path = saved(tmp_path / "x.npz")
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    assert refused(path).code == "statistics-damaged"


def test_a_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(statistics, "_BYTES_MAX", 10**5)
    bomb = zipped(tmp_path / "x.npz", mu=npy(np.zeros(200)), sigma=npy(np.zeros((200, 200))))
    assert bomb.stat().st_size < 5000
    error = refused(bomb)
    assert error.code == "statistics-bomb"
    assert "'sigma'" in str(error)


def test_the_limit_leaves_room_for_openai_and_stops_gigabytes():
    assert 4 * 8 * 2048**2 <= statistics._BYTES_MAX < 2**28


def test_a_key_that_claims_more_than_it_has_is_damaged(tmp_path):
    error = refused(zipped(tmp_path / "x.npz", mu=npy(np.zeros(8), (4000,)), sigma=npy(np.eye(8))))
    assert error.code == "statistics-damaged"
    assert "'mu'" in str(error)


# Beside images ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_statistics_and_labels_do_not_confuse_images(tmp_path, save):
    path = saved(tmp_path / "x.npz", save=save, arr_1=np.arange(23), arr_0=IMAGES)
    source = open_source(path)
    assert len(source) == 23
    np.testing.assert_array_equal(stack(source), IMAGES)
    assert peek_array(path) == ((23, 5, 6, 3), np.dtype(np.uint8))


def test_statistics_alone_are_no_images_and_the_message_says_so(tmp_path):
    error = refused_source(saved(tmp_path / "x.npz"))
    assert error.code == "npz-key"
    assert "FID statistics" in str(error)


@pytest.mark.parametrize("dtype", ["|u1", "<f8"])
def test_array_headers_of_the_second_format(tmp_path, dtype):
    file = io.BytesIO()
    np.lib.format.write_array(file, IMAGES.astype(dtype), version=(2, 0))
    path = zipped(tmp_path / "x.npz", arr_0=file.getvalue())
    assert peek_array(path) == (IMAGES.shape, np.dtype(dtype))


def test_a_header_that_claims_gigabytes_is_not_read(tmp_path):
    header = b"\x93NUMPY\x02\x00" + (2**31).to_bytes(4, "little") + bytes(2**23)
    path = zipped(tmp_path / "x.npz", arr_0=header)
    tracemalloc.start()
    error = refused_source(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.code == "npz-damaged"
    assert "its header claims 2,147,483,648 bytes" in str(error)
    assert peak < 2**21
