"""Features that other programs wrote: arrays, and safetensors without what genpr records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray
from torch import Tensor

from genpr.errors import FeatureError
from genpr.memory import fits, float_rows


def load_array(path: Path) -> Tensor:
    """The array of a `.npy` or `.npz` file, as float32 if it has two dimensions.

    Raises:
        FeatureError: The file is damaged ("file-damaged"), or holds something other than floats ("feature-shape").
    """
    try:
        if path.suffix.lower() == ".npy" and not fits(path.stat().st_size):
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            with path.open("rb") as file:  # numpy would leave a damaged .npz open
                loaded = np.load(file, allow_pickle=False)
                array = loaded if isinstance(loaded, np.ndarray) else _only_array(loaded)
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise FeatureError(
            f"{path} is not a readable array file ({error}); was it cut short, or does it hold pickled objects?",
            code="file-damaged",
            path=str(path),
        ) from error
    if array.dtype.kind != "f":
        raise FeatureError(
            f"{path} holds {array.dtype} of shape {array.shape}; features are a 2-D array of floats, (images, dimensions)",
            code="feature-shape",
            path=str(path),
        )
    return float_rows(array) if array.ndim == 2 else torch.from_numpy(array.astype(np.float32))


def _only_array(archive: NpzFile) -> NDArray[Any]:
    """`arr_0`, or the single array under another name."""
    if "arr_0" not in archive.files and len(archive.files) != 1:
        raise ValueError(f"needed arr_0 or exactly one array, found {archive.files}")
    array: NDArray[Any] = archive["arr_0" if "arr_0" in archive.files else archive.files[0]]
    return array


def only_matrix(tensors: Mapping[str, Tensor], path: Path) -> Tensor:
    """The features among the tensors of a safetensors file.

    Raises:
        FeatureError: Which they are is not clear ("feature-shape").
    """
    if "features" in tensors:
        return tensors["features"].float()
    matrices = [tensor for tensor in tensors.values() if tensor.ndim == 2 and tensor.is_floating_point()]
    if len(matrices) != 1:
        raise FeatureError(
            f"{path} holds {sorted(tensors)}; needed a tensor named 'features', or exactly one 2-D tensor of floats",
            code="feature-shape",
            path=str(path),
        )
    return matrices[0].float()
