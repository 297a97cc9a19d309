"""Features that other programs wrote: arrays, and safetensors without what genpr records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import torch
from torch import Tensor

from genpr.errors import FeatureError, some
from genpr.images.archive import DAMAGE
from genpr.images.arrays import read_array, read_npy
from genpr.memory import fits, float_rows


def load_array(path: Path) -> Tensor:
    """The array of a `.npy` or `.npz` file, as float32 if it has two dimensions.

    Raises:
        FeatureError: The file is damaged ("file-damaged"), or holds something other than floats ("feature-shape").
    """
    try:
        if path.suffix.lower() == ".npy":
            array = read_npy(path, mapped=not fits(path.stat().st_size))
        else:
            with ZipFile(path) as archive:
                array = read_array(archive, _only_array(archive.namelist()))
    except (*DAMAGE, KeyError, OSError) as error:
        raise FeatureError(
            f"{path} is not a readable array file ({error}); was it cut short, or does it hold pickled objects?",
            code="file-damaged",
            path=str(path),
        ) from error
    if array.dtype.kind != "f" or not array.ndim:
        raise FeatureError(
            f"{path} holds {array.dtype} of shape {array.shape}; features are a 2-D array of floats, (images, dimensions)",
            code="feature-shape",
            path=str(path),
        )
    return float_rows(array) if array.ndim == 2 else torch.from_numpy(array.astype(np.float32))


def _only_array(members: list[str]) -> str:
    """`arr_0`, or the single array under another name."""
    if "arr_0.npy" not in members and len(members) != 1:
        found = some([member.removesuffix(".npy") for member in members], 5) or "none"
        raise ValueError(f"needed arr_0 or exactly one array, found {found}")
    return "arr_0.npy" if "arr_0.npy" in members else members[0]


def only_matrix(tensors: Mapping[str, Tensor], path: Path) -> Tensor:
    """The features among the tensors of a safetensors file.

    Raises:
        FeatureError: Which they are is not clear ("feature-shape").
    """
    if "features" in tensors and tensors["features"].ndim and not tensors["features"].is_complex():
        return tensors["features"].float()
    matrices = [tensor for tensor in tensors.values() if tensor.ndim == 2 and tensor.is_floating_point()]
    if len(matrices) != 1:
        raise FeatureError(
            f"{path} holds {some(sorted(tensors), 5) or 'nothing'}; needed a tensor named 'features', or exactly one 2-D tensor of floats",
            code="feature-shape",
            path=str(path),
        )
    return matrices[0].float()
