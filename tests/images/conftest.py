"""Fixtures that write images as every kind of file."""

import zipfile

import numpy as np
import pytest
from archives import tar_of, zip_of
from image_files import encode, write_files


@pytest.fixture
def make_zip(tmp_path):
    def write(members, *, name="set.zip", compression=zipfile.ZIP_STORED):
        (tmp_path / name).write_bytes(zip_of(members, compression))
        return tmp_path / name

    return write


@pytest.fixture
def make_tar(tmp_path):
    def write(members, *, name="set.tar"):
        (tmp_path / name).write_bytes(tar_of(members))
        return tmp_path / name

    return write


@pytest.fixture
def pack(tmp_path, make_zip, make_tar):
    """Write files as a folder, a list of those in it, an archive, or a column of a Parquet file."""

    def write(kind, files):
        if kind in {"zip", "tar"}:
            return (make_zip if kind == "zip" else make_tar)(files)
        path = tmp_path / {"folder": "folder", "list": "list.txt", "parquet": "set.parquet"}[kind]
        if kind == "parquet":
            table = pytest.importorskip("pyarrow").table({"image": list(files.values())})
            pytest.importorskip("pyarrow.parquet").write_table(table, path, compression="none")
            return path
        for name, data in files.items():
            write_files(tmp_path / "folder", name, data=data)
        if kind == "list":
            path.write_text("".join(f"folder/{name}\n" for name in files))
        return path

    return write


@pytest.fixture
def make_source(tmp_path, pack):
    """Write images (n, h, w, 3) as files called 00000.png and so on, or as an array."""

    def write(kind, images):
        if kind not in {"npy", "npz"}:
            return pack(kind, {f"{number:05d}.png": encode(image) for number, image in enumerate(images)})
        path = tmp_path / f"set.{kind}"
        (np.save if kind == "npy" else np.savez_compressed)(path, images)
        return path

    return write
