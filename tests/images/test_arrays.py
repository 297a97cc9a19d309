"""Arrays and tensors in memory: strict layouts, and the fix in the message."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from image_files import refused_source, stack

from genpr.images.source import open_source

IMAGES = np.random.default_rng(0).integers(0, 256, (23, 5, 6, 3), dtype=np.uint8)


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
        (np.zeros((2, 4, 4, 3), np.float16), "array-dtype", "(x * 255)"),
        (np.zeros((2, 4, 4, 3), np.int64), "array-dtype", "x.astype(np.uint8)"),
        (np.zeros((2, 4, 4, 3), bool), "array-dtype", "* 255"),
        (np.zeros((2, 4, 4, 3), object), "array-dtype", "got object"),
        (np.zeros((2, 3, 4, 5), np.uint8), "array-shape", "x.transpose(0, 2, 3, 1)"),
        (np.zeros((2, 4, 4), np.uint8), "array-shape", "gray"),
        (np.zeros((4, 4, 3), np.uint8), "array-shape", "first axis"),
        (np.zeros((2, 4, 4, 1), np.uint8), "array-shape", "gray"),
        (np.zeros((2, 4, 4, 4), np.uint8), "array-shape", "alpha"),
        (np.zeros((2, 4), np.uint8), "array-shape", "(2, 4)"),
        (np.zeros((2, 4, 0, 3), np.uint8), "array-shape", "(2, 4, 0, 3)"),
        (np.zeros((0, 4, 4, 3), np.uint8), "no-images", "(0, 4, 4, 3)"),
        (torch.zeros(2, 3, 4, 4), "array-dtype", "(x * 255).round().to(torch.uint8)"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.int64), "array-dtype", "x.to(torch.uint8)"),
        (torch.zeros(2, 4, 5, 3, dtype=torch.uint8), "array-shape", "x.permute(0, 3, 1, 2)"),
        (torch.zeros(3, 4, 5, dtype=torch.uint8), "array-shape", "first axis"),
        (torch.zeros(2, 1, 4, 5, dtype=torch.uint8), "array-shape", "gray"),
        (torch.zeros(0, 3, 4, 5, dtype=torch.uint8), "no-images", "(0, 3, 4, 5)"),
    ],
)
def test_other_arrays_are_refused_with_the_fix(array, code, fix):
    error = refused_source(array)
    assert error.code == code
    assert fix in str(error)
