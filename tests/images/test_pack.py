"""Packing: the pixels of the source to the bit, and a complete file or none."""

import io
import zipfile

import numpy as np
import pytest
from image_files import encode, noise, raised, stack
from PIL import Image

from genpr.errors import BadImagesError, DataError, ResourceError, UsageError
from genpr.images import pack as pack_module
from genpr.images.decode import Decoded
from genpr.images.pack import is_packed_from, pack_source
from genpr.images.policy import BadImagePolicy, DecodePolicy
from genpr.images.source import open_source

IMAGES = np.random.default_rng(0).integers(0, 256, (123, 5, 6, 3), dtype=np.uint8)
FILES = {f"{index:03d}.png": encode(image) for index, image in enumerate(IMAGES)}


@pytest.fixture
def out(tmp_path):
    """A path in an empty folder, which contains only that file, or nothing, after the test."""
    folder = tmp_path / "out"
    folder.mkdir()
    yield folder / "x.npz"
    assert {path.name for path in folder.iterdir()} <= {"x.npz"}


def pack(source, path, on_bad="error", max_bad=0.01):
    bad_images = BadImagePolicy(on_bad, max_bad)
    return pack_source(open_source(source), path, bad_images=bad_images, policy=DecodePolicy())


def packed(path) -> np.ndarray:
    """The array in a packed file, after checks that apply to all packed files."""
    with np.load(path, allow_pickle=False) as file:
        assert file.files == ["arr_0"]
        array = file["arr_0"]
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.getinfo("arr_0.npy").file_size == len(npy(array))
    np.testing.assert_array_equal(stack(open_source(path)), array)
    return array


def npy(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def refused(source, out, kind=DataError, **options):
    error = raised(kind, pack, source, out, **options)
    assert "\n" not in str(error)
    assert not out.exists()
    return error


@pytest.fixture(params=["folder", "zip", "tar", "npy", "npz", "array", "list", "iterable"])
def source(request, make_source):
    """`IMAGES` as a source of every kind."""
    others = {
        "array": IMAGES,
        "list": [Image.fromarray(image) for image in IMAGES],
        "iterable": (IMAGES[start : start + 10] for start in range(0, 123, 10)),
    }
    return others[request.param] if request.param in others else make_source(request.param, IMAGES)


def test_every_source_is_packed_in_order_to_the_bit(source, out):
    assert pack(source, out).n == 123
    np.testing.assert_array_equal(packed(out), IMAGES)
    with zipfile.ZipFile(out) as archive:
        info = archive.getinfo("arr_0.npy")
        assert info.compress_type == zipfile.ZIP_STORED
        assert archive.read(info) == npy(IMAGES), "the member is what numpy.save writes"


# Zip64 and memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [IMAGES, "iterator"])
def test_packed_file_may_exceed_the_limit_of_zip_without_extensions(out, monkeypatch, given):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 1000)
    assert pack(iter([IMAGES]) if given is not IMAGES else IMAGES, out).n == 123
    np.testing.assert_array_equal(packed(out), IMAGES)


# Images that cannot be used ---------------------------------------------------------------------------------


def with_bad(*names):
    return FILES | {name: FILES[name][:40] for name in names}


def test_mixed_sizes_are_an_error_that_names_the_first_different_one(out, make_zip):
    odd = {"050.png": encode(noise(7, 9)), "060.png": encode(noise(2, 2))}
    error = refused(make_zip(FILES | odd), out)
    assert error.code == "mixed-sizes"
    assert error.path == "050.png"
    assert "050.png is 9 x 7 pixels, but 000.png is 6 x 5" in str(error)


@pytest.mark.parametrize("bad", [("000.png",), ("122.png",), ("000.png", "017.png", "122.png")])
def test_skipped_images_are_left_out(out, make_zip, bad):
    source = make_zip(with_bad(*bad))
    for options in ({}, {"on_bad": "skip", "max_bad": 0.005}):
        assert [each.path for each in refused(source, out, BadImagesError, **options).bad] == list(bad)
    found = pack(source, out, on_bad="skip", max_bad=len(bad) / 123)
    kept = [index for index, name in enumerate(FILES) if name not in bad]
    assert found.n == len(kept)
    assert [error.path for error in found.skipped] == list(bad)
    np.testing.assert_array_equal(packed(out), IMAGES[kept])


def test_without_usable_images_no_file_is_written(out, make_zip):
    error = refused(make_zip(with_bad(*FILES)), out, BadImagesError, on_bad="skip", max_bad=1)
    assert len(error.bad) == 123


def test_damaged_source_is_reported_as_such(out, tmp_path):
    np.savez(tmp_path / "x.npz", IMAGES)
    data = bytearray((tmp_path / "x.npz").read_bytes())
    data[len(data) // 2] ^= 0x55
    (tmp_path / "x.npz").write_bytes(data)
    assert refused(tmp_path / "x.npz", out).code == "array-damaged"

    def failing():
        yield IMAGES
        raise OSError(5, "Input/output error")

    assert refused(failing(), out, UsageError).code == "dataset-failed"


# All or nothing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), ZeroDivisionError()], ids=repr)
@pytest.mark.parametrize("before", [None, b"old"])
def test_interruption_keeps_the_previous_file(out, monkeypatch, error, before):
    def interrupted(*_, name, **__):
        if name == "[50]":
            raise error
        return Decoded(IMAGES[0], ())

    monkeypatch.setattr(pack_module, "decode", interrupted)
    if before:
        out.write_bytes(before)
    with pytest.raises(type(error)):
        pack(IMAGES, out)
    assert (out.read_bytes() if out.exists() else None) == before


def test_full_disk_leaves_no_file(out, monkeypatch):
    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pack_module, "_header", full)
    error = refused(IMAGES, out, ResourceError)
    assert error.code == "unwritable"
    assert "No space left on device" in str(error)


def test_packed_files_are_recognized_by_their_source(out):
    np.savez(out, IMAGES)
    assert not is_packed_from("<array>")(out)
    for source, name in ((IMAGES, "<array>"), (iter([IMAGES]), "<iterable>")):  # the latter is written twice
        pack(source, out)
        assert is_packed_from(name)(out)
        assert not is_packed_from("other")(out)
