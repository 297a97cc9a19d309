"""Fixtures that write archives and array files."""

from __future__ import annotations

import io
import tarfile
import zipfile

import pytest


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
            for member, data in members.items():
                info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(member)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return path

    return write
