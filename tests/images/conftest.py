"""Fixtures that write archives and array files."""

import io
import tarfile
import zipfile

import numpy as np
import pytest
from image_files import encode


@pytest.fixture
def make_zip(tmp_path):
    def write(members, *, name="set.zip", compression=zipfile.ZIP_STORED):
        path = tmp_path / name
        with zipfile.ZipFile(path, "w", compression) as archive:
            for member, data in members.items() if isinstance(members, dict) else members:
                archive.writestr(member, data)
        return path

    return write


@pytest.fixture
def make_tar(tmp_path):
    def write(members, *, name="set.tar"):
        path = tmp_path / name
        with tarfile.open(path, "w") as archive:
            for member, data in members.items() if isinstance(members, dict) else members:
                info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(member)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return path

    return write


@pytest.fixture
def make_source(tmp_path, make_zip, make_tar):
    """Write images (n, h, w, 3) as a folder of files called 00000.png and so on, or as a file with that suffix."""

    def write(kind, images):
        files = {f"{number:05d}.png": encode(image) for number, image in enumerate(images)}
        if kind in {"zip", "tar"}:
            return (make_zip if kind == "zip" else make_tar)(files)
        path = tmp_path / (kind if kind == "folder" else f"set.{kind}")
        if kind == "folder":
            path.mkdir()
            for name, data in files.items():
                (path / name).write_bytes(data)
        else:
            (np.save if kind == "npy" else np.savez_compressed)(path, images)
        return path

    return write
