"""Files of reference statistics: published formats, and pickles that are never executed."""

import datetime
import hashlib
import json
import os
import pickle
from contextlib import nullcontext, suppress
from dataclasses import asdict

import numpy as np
import pytest
from little_memory import little_memory
from raising import raising

from genpr.errors import DataError, UsageError
from genpr.features import plain_pickle, statistics
from genpr.features.extractor import ExtractorInfo
from genpr.features.plain_pickle import read_plain_pickle
from genpr.features.statistics import find_statistics, holds_statistics, read_statistics

D = 8
ROWS = np.random.default_rng(1).normal(size=(50, D)) + 3
MU, SIGMA = ROWS.mean(axis=0), np.cov(ROWS, rowvar=False)
STATISTICS = {"mu": MU, "sigma": SIGMA, "mu_s": np.arange(2.0), "sigma_s": np.eye(2)}
EDM2 = {
    "num_images": 50,
    "fid": {"mu": MU, "sigma": np.asfortranarray(SIGMA)},
    "fd_dinov2": {"mu": MU[:3].astype(">f4"), "sigma": SIGMA[:3, :3].astype(">f8")},
}


def saved(tmp_path, save=np.savez, **arrays):
    save(tmp_path / "x.npz", **arrays)
    return tmp_path / "x.npz"


def pickled(tmp_path, data):
    (tmp_path / "x.pkl").write_bytes(data)
    return tmp_path / "x.pkl"


def moments(found):
    return {each.key: (each.mean, each.covariance) for each in found.moments}


@pytest.mark.parametrize("kind", ["<f8", "<f4", ">f8", ">f4", "F"])
@pytest.mark.parametrize(("save", "prefix"), [(np.savez, ""), (np.savez_compressed, "ref_")])
def test_moments_round_trip(tmp_path, save, prefix, kind):
    mu, sigma = (np.asfortranarray(x) if kind == "F" else x.astype(kind) for x in (MU, SIGMA))
    extra = {"mu_clip": np.zeros(3), "labels": np.arange(4)}
    path = saved(tmp_path, save, **{f"{prefix}mu": mu, f"{prefix}sigma": sigma}, **extra)
    found = read_statistics(path)
    [(mean, covariance)] = moments(found).values()
    np.testing.assert_array_equal(mean, mu)
    np.testing.assert_array_equal(covariance, sigma)
    assert (mean.dtype, covariance.dtype) == (np.float64, np.float64)
    assert covariance.flags.c_contiguous
    assert (found.known, found.count) == (None, None)
    assert holds_statistics(path)


def test_files_may_also_contain_spatial_moments_and_images(tmp_path):
    path = saved(tmp_path, arr_0=np.zeros((2, 4, 4, 3), np.uint8), **STATISTICS)
    found = read_statistics(path)
    assert not holds_statistics(path)
    assert moments(found).keys() == {"mu", "mu_s"}
    np.testing.assert_array_equal(moments(found)["mu_s"][1], np.eye(2))
    only_images = saved(tmp_path, arr_0=np.zeros((2, 4, 4, 3), np.uint8))
    assert find_statistics(only_images) is None
    with raising(DataError, "no-statistics"):
        read_statistics(only_images)
    with raising(DataError, "no-statistics"):  # ambiguous
        read_statistics(saved(tmp_path, **{"a/mu": MU, "a/sigma": SIGMA, "b/mu": MU, "b/sigma": SIGMA}))


def record(**changes):
    """The record that `genpr stats` writes for moments of unknown features."""
    facts = {"count": 50, "extractors": {"mu": None}, "decoder": {}, "images_sha256": None}
    return {"genpr": np.array(json.dumps({"format": "genpr.statistics/1"} | facts | changes))}


def of(name, dim=D):
    return {"mu": asdict(ExtractorInfo(name, dim, "x", None, comparable=True))}


WRONG_ARRAYS = {
    "shape": {"mu": np.zeros(7)},
    "row": {"mu": np.zeros((1, D))},
    "empty": {"mu": np.zeros(0), "sigma": np.zeros((0, 0))},
    "spatial": {"sigma_s": np.eye(3)},
    "nan": {"mu": np.array([0.0] * 7 + [np.nan])},
    "inf": {"sigma": np.diag([np.inf] * D)},
    "asymmetric": {"sigma": np.eye(D) + np.eye(D, k=2) / 8},
    "negative": {"sigma": np.diag([1.0, 1, -2, 1, 1, 1, 1, 1])},
    "complex": {"sigma": SIGMA.astype(complex)},
    "integers": {"mu": np.zeros(D, int)},
    "half": {"mu": np.zeros(D, np.float16)},
    "objects": {"sigma": np.full((D, D), None)},
    "bomb": {"sigma": np.zeros((6000, 6000), np.float32)},
    "json": {"genpr": np.array("{")},
    "later": {"genpr": np.array('{"format": "genpr.statistics/9"}')},
    "floats": {"genpr": np.zeros(3)},
    "long": {"genpr": np.array(f"{record()['genpr']}{' ' * 2**16}")},
    "count": record(count=-5),
    "dim": record(extractors=of("gabor", 7)),
    "variant": record(extractors=of("inception@x")),
    "no name": record(extractors=of("")),
    "missing": record(extractors={"mu": None, "y/mu": None}),
    "twice": record(extractors=of("x") | {"mu_s": of("x", 2)["mu"]}),
}


@pytest.mark.parametrize("name", WRONG_ARRAYS)
def test_invalid_statistics_are_errors(tmp_path, name):
    path = saved(tmp_path, np.savez_compressed, **(STATISTICS | WRONG_ARRAYS[name]))
    with raising(DataError, "statistics-damaged"):
        read_statistics(path)


def test_record_of_unknown_features_is_read(tmp_path):
    """The valid record that the invalid ones above are variants of."""
    found = read_statistics(saved(tmp_path, **STATISTICS, **record()))
    assert (list(moments(found)), found.count) == (["mu"], 50)
    other = read_statistics(saved(tmp_path, mu=MU, sigma=2 * SIGMA))
    assert other.content != found.content == read_statistics(saved(tmp_path, mu=MU, sigma=SIGMA)).content


def test_file_truncated_at_any_position_is_an_error(tmp_path):
    path = saved(tmp_path, **STATISTICS)
    data = path.read_bytes()
    for end in range(0, len(data) - 1, 97):
        path.write_bytes(data[:end])
        with raising(DataError, "statistics-damaged"):
            read_statistics(path)


def test_sources_that_are_not_statistics_are_usage_errors(tmp_path):
    np.save(tmp_path / "x.npy", MU)
    os.mkfifo(tmp_path / "pipe.npz")
    for source, code in (
        (tmp_path / "pipe.npz", "source-kind"),
        (tmp_path / "x.npy", "source-kind"),
        (tmp_path / "none.npz", "path-not-found"),
        (3, "source-kind"),
    ):
        with raising(UsageError, code):
            read_statistics(source)


@pytest.mark.parametrize("kind", ["sha256", "git-sha1"])
def test_published_files_are_recognized_by_either_digest(tmp_path, monkeypatch, kind):
    path = saved(tmp_path, mu=MU, sigma=SIGMA)
    digests = {  # of `git hash-object` and `sha256sum`
        "git-sha1": hashlib.sha1(b"blob %d\0" % path.stat().st_size + path.read_bytes()).hexdigest(),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    monkeypatch.setitem(statistics.KNOWN_STATISTICS, f"{kind}:{digests[kind]}", "a file")
    found = read_statistics(path)
    assert found.known == "a file"
    assert found.moments[0].extractor == "inception"
    assert found.sha256 == digests["sha256"]


# Pickles ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickle_of_edm2_is_read_without_executing_it(tmp_path, protocol):
    path = pickled(tmp_path, pickle.dumps(EDM2, protocol=protocol))
    found = read_statistics(path)
    assert holds_statistics(path)
    assert found.count == 50
    names = ["inception", "dinov2-vitl14@torch-bicubic-antialias"]
    assert [each.extractor for each in found.moments] == names
    for key, (mean, covariance) in moments(found).items():
        np.testing.assert_array_equal(mean, EDM2[key]["mu"])
        np.testing.assert_array_equal(covariance, EDM2[key]["sigma"])


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_pickle_equals_the_result_of_pickle(protocol):
    values = {
        "a": 1,
        "b": (1.5, None, True, "x", b"y"),
        "c": {"d": np.int64(7), "e": SIGMA[::2, ::3]},
        "f": -3,
        "g": np.asfortranarray(SIGMA[:3, :5]),
    }
    np.testing.assert_equal(read_plain_pickle(pickle.dumps(values, protocol=protocol)), values)


class Call:
    """Pickled as a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


class Built:
    def __init__(self):
        self.x = 1


MARKED = "executed"
RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n"
EMPTY = RECONSTRUCT + b"(cnumpy\nndarray\nK\0\x85C\1btR"
DTYPE = b"cnumpy\ndtype\n(X\2\0\0\0f8\x89\x88tR(K\3X\1\0\0\0<NNNK\1K\1K\0tb"


def array_of(shape, dtype, data):
    """Opcodes of an array with a given shape, dtype and bytes."""
    sides = b"(" + b"".join(b"J" + side.to_bytes(4, "little") for side in shape) + b"t"
    return b"\x80\3" + EMPTY + b"(K\1" + sides + dtype + b"\x89C" + bytes([len(data)]) + data + b"tb."


LAUGHS = b")" + b"q\0h\0\x86" * 40  # a tuple that stands for 2^40 others
HUGE = (2**40).to_bytes(6, "little")


class Subclass(np.ndarray):
    """A subclass of arrays, whose name is not that of NumPy's."""


def test_opcodes_of_an_array_give_an_array():
    """The valid opcodes that the hostile ones below are variants of."""
    np.testing.assert_array_equal(read_plain_pickle(array_of((2,), DTYPE, np.arange(2.0).tobytes())), [0, 1])


HOSTILE = {
    "GLOBAL": pickle.dumps(Call(os.mkdir, MARKED), 2),
    "STACK_GLOBAL": pickle.dumps(Call(os.mkdir, MARKED), 4),
    "getattr": pickle.dumps(Call(getattr, "x", "upper"), 4),
    "another function of numpy": pickle.dumps(Call(np.fromfile, "x"), 2),
    "BUILD": pickle.dumps(Built(), 4),
    "BUILD of a dict": b"\x80\3}}b.",
    "INST": b"(S'executed'\nios\nmkdir\n.",
    "OBJ": b"(cos\nmkdir\nS'executed'\no.",
    "NEWOBJ": pickle.dumps(datetime.timezone(datetime.timedelta(0)), 4),
    "PERSID": b"Pexecuted\n.",
    "BINPERSID": b"X\1\0\0\0xQ.",
    "EXT": b"\x80\2\x82\1.",
    "REDUCE of no name": b"\x80\3X\1\0\0\0x)R.",
    "a name of another module": array_of((2,), DTYPE, bytes(16)).replace(b"cnumpy\ndtype", b"cevil\ndtype"),
    "objects": pickle.dumps({"fid": {"mu": MU.astype(object), "sigma": SIGMA}}, 4),
    "complex": pickle.dumps({"fid": {"mu": MU.astype(complex), "sigma": SIGMA}}, 4),
    "lists": pickle.dumps({"fid": {"mu": list(MU), "sigma": SIGMA}}, 4),
    "too few bytes": array_of((2,), DTYPE, bytes(8)),
    "too many bytes": array_of((2,), DTYPE, bytes(24)),
    "a huge shape": array_of((2**31 - 1, 2**31 - 1), DTYPE, bytes(8)),
    "a dtype that is none": array_of((1,), b"N", bytes(8)),
    "laughs": b"\x80\3}" + LAUGHS + b"K\1s.",  # as a key, where it would be hashed
    "laughs as a dtype": array_of((1,), b"cnumpy\ndtype\n(" + LAUGHS + b"\x89\x88tR", bytes(8)),
    "laughs as a shape": RECONSTRUCT.join([b"\x80\3", b"(cnumpy\nndarray\n" + LAUGHS + b"C\1btR."]),
    "tuples in tuples": b"\x80\3})" + b"\x85" * 90_000 + b"K\1s.",
    "an index of 2^32 in the memo": b"\x80\3}r\xff\xff\xff\xff\x85R.",
    "a subclass": array_of((2,), DTYPE, bytes(16)).replace(b"cnumpy\nndarray", b"cnumpy\nmatrix"),
    "a subclass of the user": pickle.dumps(np.arange(3.0).view(Subclass), 4),
    "an array of 2^40": RECONSTRUCT.join([b"\x80\3", b"(cnumpy\nndarray\n\x8a\6" + HUGE + b"\x85C\1btR."]),
    "a call of ndarray": b"\x80\3cnumpy\nndarray\n\x8a\6" + HUGE + b"\x85\x85R.",
    "a dtype of objects": b"\x80\3cnumpy\ndtype\nX\1\0\0\0O\x89\x88\x87R.",
    "a dtype of texts": b"\x80\3cnumpy\ndtype\nX\5\0\0\0S9999\x89\x88\x87R.",
    "a dtype with fields": array_of((2,), DTYPE.replace(b"<NNN", b"<N})"), bytes(16)),
    "a list in an array": array_of((2,), DTYPE, bytes(16)).replace(b"C\x10" + bytes(16), b"]"),
    "a state of a function": b"\x80\3" + RECONSTRUCT + b"N}X\14\0\0\0__defaults__K\1s\x86b.",
    "a state of the name of a type": b"\x80\3cnumpy\nndarray\n}X\1\0\0\0xK\1sb.",
    "items of a function": b"\x80\3" + RECONSTRUCT + b"X\1\0\0\0xK\1s.",
    "another encoding": b"\x80\2c_codecs\nencode\nX\1\0\0\0xX\5\0\0\0utf-8\x86R.",
    "a memo of nothing": b"\x80\3h\7.",
    "a group that never began": b"\x80\3K\1t.",
    "an empty stack": b"\x80\3.",
    "a mark in place of a value": b"\x80\3(.",
    "items without a dict": b"\x80\3K\1K\2s.",
    "many opcodes": pickle.dumps({str(number): 0 for number in range(60_000)}, 4),
    "a length of 2^62": b"\x80\4\x8e" + (2**62).to_bytes(8, "little") + b"x.",
    "bytes after its end": pickle.dumps(EDM2, 4) + b"\n",
    "another pickle after its end": 2 * pickle.dumps(EDM2, 4),
    "no pickle": b"\x89PNG\r\n\x1a\n",
}


WRONG = {
    "many axes": array_of((1,) * 40, DTYPE, bytes(8)),
    "keys that are no texts": pickle.dumps({1: EDM2["fid"], "mu": MU}, 4),
    "the name of a type": b"\x80\3cnumpy\nndarray\n.",
    "integers": pickle.dumps({"fid": {"mu": np.arange(D), "sigma": SIGMA}}, 4),
    "nothing": pickle.dumps({"fid": 1}, 4),
    "a frame of 2^62": b"\x80\4\x95" + (2**62).to_bytes(8, "little") + b"}.",
    "dicts in dicts": b"\x80\3" + b"}X\1\0\0\0a" * 30_000 + b"N" + b"s" * 30_000 + b".",
    "no dict": pickle.dumps(MU, 4),
    "a name that is none": pickle.dumps({"inception@x": EDM2["fid"]}, 4),
    "a long name": pickle.dumps({"x" * 10_000: EDM2["fid"]}, 4),
    "one name twice": pickle.dumps({"x": EDM2["fid"], "x.npz": EDM2["fid"]}, 4),
}


@pytest.mark.parametrize("name", HOSTILE | WRONG)
def test_hostile_pickles_are_errors_and_execute_nothing(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    path = pickled(tmp_path, (HOSTILE | WRONG)[name])
    with raising(DataError, "statistics-damaged"):
        read_statistics(path)
    if name in HOSTILE:  # the others are plain, and no statistics
        with pytest.raises(ValueError, match=r"\S"):
            read_plain_pickle(HOSTILE[name])
    assert [each.name for each in tmp_path.iterdir()] == ["x.pkl"]


def test_pickles_leave_dtypes_and_functions_as_they_are():
    """A state for the dtype that all arrays share would change them; `copy` of False requests that one."""
    swapped = DTYPE.replace(b"\x89\x88tR", b"\x89\x89tR").replace(b"<NNN", b">NNN")
    found = read_plain_pickle(array_of((2,), swapped, np.arange(2.0).astype(">f8").tobytes()))
    np.testing.assert_array_equal(found, [0, 1])
    assert np.dtype("f8").byteorder == "="
    before = {
        name: dict(vars(value))
        for name, value in vars(plain_pickle).items()
        if callable(value) and hasattr(value, "__dict__")
    }
    for name in HOSTILE:
        with pytest.raises(ValueError, match=r"\S"):
            read_plain_pickle(HOSTILE[name])
    after = {name: dict(vars(value)) for name, value in vars(plain_pickle).items() if name in before}
    assert after == before
    assert plain_pickle._reconstruct.__defaults__ is None


@pytest.mark.parametrize(
    "name", ["an index of 2^32 in the memo", "a length of 2^62", "a frame of 2^62", "an array of 2^40"]
)
def test_declared_sizes_take_no_memory(name):
    with little_memory(2**24), suppress(ValueError):
        read_plain_pickle((HOSTILE | WRONG)[name])


def test_moments_under_many_names_count_each_time(tmp_path, monkeypatch):
    """One array of a memo, converted to float64 for each of many names, would fill any memory."""
    shared = {key: value.astype(np.float32) for key, value in EDM2["fid"].items()}
    for count in (3, 4):
        path = pickled(tmp_path, pickle.dumps({str(number): shared for number in range(count)}))
        monkeypatch.setattr(statistics, "MAX_BYTES", 3 * SIGMA.nbytes)
        with nullcontext() if count == 3 else raising(DataError, "statistics-damaged"):
            assert len(read_statistics(path).moments) == 3


def test_arrays_of_one_text_count_each_time():
    """Encoded again and again, a kept text of a megabyte would fill any memory."""
    text = b"X" + (2**20).to_bytes(4, "little") + b"a" * 2**20 + b"q\1"
    again = b"0c_codecs\nencode\n(h\1X\6\0\0\0latin1tR"
    with pytest.raises(ValueError, match="more than"):
        read_plain_pickle(b"\x80\2" + text + again.replace(b"0", b"", 1) * 300 + b".")


def test_arrays_of_one_part_count_each_time():
    """Copied again and again, since the byte order is another one, a kept megabyte would fill any memory."""
    part = b"B" + (2**20).to_bytes(4, "little") + bytes(2**20) + b"q\1"
    again = EMPTY + b"(K\1J\0\0\2\0\x85" + DTYPE.replace(b"<NNN", b">NNN") + b"\x89h\1tb"
    with pytest.raises(ValueError, match="more than"):
        read_plain_pickle(b"\x80\3(" + part + again * 300 + b"t.")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickle_truncated_at_any_position_is_an_error(tmp_path, protocol):
    data = pickle.dumps(EDM2, protocol=protocol)
    for end in range(0, len(data) - 1, 97):
        with raising(DataError, "statistics-damaged"):
            read_statistics(pickled(tmp_path, data[:end]))
