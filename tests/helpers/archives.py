"""Archives and array files as bytes."""

import io
import tarfile
import zipfile
from typing import Any

import numpy as np


def zip_of(members: Any, method: int = zipfile.ZIP_STORED) -> bytes:
    """A reproducible zip archive of contents by names or headers, as a dict or as pairs."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for member, data in members.items() if isinstance(members, dict) else members:
            info = zipfile.ZipInfo(member) if isinstance(member, str) else member
            archive.writestr(info, data, compress_type=method)
    return file.getvalue()


def tar_of(members: Any) -> bytes:
    """A tar archive of the same."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for member, data in members.items() if isinstance(members, dict) else members:
            info = tarfile.TarInfo(member) if isinstance(member, str) else member
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def npy_of(array: np.ndarray) -> bytes:
    """A .npy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()
