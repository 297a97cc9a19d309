"""Public functions under `torch.set_default_device`, `torch.set_default_dtype` and autocast: results are the same, and code of the user sees the device.

"meta" represents a GPU that the user chose: tensors that genpr creates there by mistake have no values or another device.
"""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from public_calls import IMAGES, PUBLIC
from raising import raising

import genpr
from genpr.errors import FeatureError
from genpr.integrations.callback import GenprCallback


@contextmanager
def default_dtype(dtype):
    torch.set_default_dtype(dtype)
    try:
        yield
        assert torch.get_default_dtype() == dtype
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", PUBLIC)
def test_default_device_type_and_autocast_change_no_result(name, tmp_path):
    plain = PUBLIC[name]({"device": "cpu"}, tmp_path)
    half, strict = default_dtype(torch.bfloat16), np.errstate(all="raise")
    # "meta" as `torch.set_default_device` does, with an end.
    with torch.device("meta"), torch.autocast("cpu", dtype=torch.bfloat16), half, strict:
        found = PUBLIC[name]({"device": "cpu"}, tmp_path)
        assert torch.empty(0).is_meta
    assert repr(found) == repr(plain)


class DeviceRecorder:
    """An extractor and a generator that record the device of their tensors."""

    dim = 1

    def __init__(self):
        self.seen = []

    def __call__(self, images):
        self.seen.append(torch.zeros(1).device.type)
        return torch.zeros(len(images), 1, device="cpu")

    def draw(self):
        for _ in range(3):
            self.seen.append(torch.zeros(1).device.type)
            yield IMAGES


def test_code_of_the_user_has_the_default_device():
    user = DeviceRecorder()
    with torch.device("meta"):
        genpr.embed(user.draw(), user)
        GenprCallback(IMAGES, lambda _model: user.draw(), extractor="pixels")(0, None)
        with raising(FeatureError, "feature-shape"):
            genpr.vendi_score(IMAGES)
    assert {*user.seen} == {"meta"}
    assert len(user.seen) > 6
    user.seen.clear()
    genpr.embed(user.draw(), user)
    assert {*user.seen} == {"cpu"}


def test_default_dtype_changes_no_ranking(request, tmp_path):
    plain = repr(PUBLIC["ranking"]({"device": "cpu"}, tmp_path))
    request.addfinalizer(lambda: torch.set_default_dtype(torch.float32))
    torch.set_default_dtype(torch.bfloat16)
    assert repr(PUBLIC["ranking"]({"device": "cpu"}, tmp_path)) == plain
