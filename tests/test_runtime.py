"""Devices, folders, and restored global state."""

# ruff: noqa: NPY002 - the global state of users' code is what is tested
import itertools
import operator
import os
import random
import stat
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from raising import raising

import genpr
from genpr.errors import ResourceError, UsageError
from genpr.runtime import private_folder, resolve_device, state_guard

REDUCTIONS = [
    f"cuda.matmul.allow_{name}"
    for name in ("fp16_accumulation", "fp16_reduced_precision_reduction", "bf16_reduced_precision_reduction")
]
SPLIT_K = f"{REDUCTIONS[2]}_split_k"
SWITCHES = ["cuda.matmul.allow_tf32", "cudnn.allow_tf32", "cudnn.benchmark", "cudnn.deterministic"]
FAMILIES = ["fp32_precision", "cudnn.fp32_precision", "mkldnn.fp32_precision"]
PRECISIONS = [
    f"{name}.fp32_precision"
    for name in ("cuda.matmul", "cudnn.conv", "cudnn.rnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn")
]
HAS_PRECISIONS = hasattr(torch.backends.cudnn, "conv")  # from torch 2.9 on


def value_of(name):
    """A setting of torch, or the error of reading it."""
    try:
        return operator.attrgetter(name)(torch.backends)
    except (AttributeError, RuntimeError) as error:
        return type(error)


def change(name, value):
    owner, _, attribute = name.rpartition(".")
    setattr(operator.attrgetter(owner)(torch.backends) if owner else torch.backends, attribute, value)


def global_state():
    """All effective settings, and those of single operations without the global ones."""
    found = [value_of(name) for name in (*SWITCHES, *REDUCTIONS, SPLIT_K, *FAMILIES, *PRECISIONS)]
    for name in FAMILIES if HAS_PRECISIONS else ():
        change(name, "none")
    found += [value_of(name) for name in PRECISIONS]
    found += [torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()]
    states = torch.random.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())
    return (*found, torch.get_num_threads(), np.geterr(), *states)


USERS = {
    "nothing": {},
    "switches": {"cuda.matmul.allow_tf32": True, "cudnn.benchmark": True},
    "no TF32": {"cuda.matmul.allow_tf32": False, "cudnn.allow_tf32": False},
    "high": {"": "high"},
    "medium": {"": "medium"},
    "sums": dict.fromkeys(REDUCTIONS[1:], False),
    "split sums": {REDUCTIONS[2]: (False, False)},
    "all": dict.fromkeys(FAMILIES, "tf32"),
    "products": {"cuda.matmul.fp32_precision": "tf32", "mkldnn.matmul.fp32_precision": "bf16"},
    "convolutions": dict.fromkeys(["cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision"], "ieee"),
}


@pytest.fixture
def choose():
    """Change settings of torch as a user does, from a fixed initial state."""

    def choose(user):
        for name in (*FAMILIES, *PRECISIONS) if HAS_PRECISIONS else ():
            change(name, "none")
        torch.set_float32_matmul_precision("highest")
        usual = {SWITCHES[1]: True, SWITCHES[2]: False, REDUCTIONS[1]: True, REDUCTIONS[2]: True}
        for name, value in (*usual.items(), *USERS[user].items()):
            if name:
                change(name, value)
            else:
                torch.set_float32_matmul_precision(value)

    yield choose
    choose("nothing")


class ChangingExtractor:
    """An extractor that records the settings of torch and changes them, as the code of StyleGAN does."""

    dim = 3

    def __call__(self, images):
        x = torch.full((64, 4096), 1 + 2**-12)  # rounds to 1 in bfloat16 and in TF32
        assert (x @ x.T)[0, 0].item() == pytest.approx(4096 * (1 + 2**-12) ** 2, rel=1e-6)
        off = {value_of(name) for name in (*SWITCHES[:3], *REDUCTIONS)}
        assert off <= {False, AttributeError}
        assert {value_of(name) for name in PRECISIONS} <= {"ieee", AttributeError}
        assert torch.get_float32_matmul_precision() == "highest"
        with torch.backends.cudnn.flags(enabled=True):
            torch.rand(3)
        assert torch.get_default_dtype() == torch.float32
        for name in SWITCHES:
            change(name, True)
        torch.set_default_dtype(torch.float16)
        torch.set_num_threads(3)
        np.seterr(all="ignore")
        np.random.seed(1)
        random.seed(1)
        return images.float().mean((2, 3))


@pytest.mark.parametrize("user", USERS)
def test_networks_compute_in_float32_and_settings_are_restored(choose, user):
    if ("fp32" in str(USERS[user]) and not HAS_PRECISIONS) or (
        user == "split sums" and value_of(SPLIT_K) is AttributeError
    ):
        pytest.skip("this torch has no such setting")
    choose(user)
    before = global_state()
    choose(user)
    genpr.embed(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), ChangingExtractor(), batch_size=1)
    assert global_state() == before


def test_flushed_subnormal_numbers_change_no_count(rng):
    tiny = (rng.normal(size=(2, 60, 4)) * 1e-41).astype(np.float32)
    plain = genpr.manifold_metrics(*tiny)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush")
    try:
        assert genpr.manifold_metrics(*tiny) == plain
        assert sys.float_info.min / 2 == 0, "the setting is restored"
    finally:
        torch.set_flush_denormal(False)


def test_settings_are_restored_after_the_last_of_overlapping_guards(choose):
    choose("high")
    before = global_state()
    choose("high")
    guards = [state_guard() for _ in range(3)]  # as in threads
    for guard in guards:
        guard.__enter__()
    for guard in (guards[1], guards[0], guards[2]):
        assert torch.get_float32_matmul_precision() == "highest"
        guard.__exit__(ValueError, ValueError(), None)
    assert global_state() == before


def test_devices_are_resolved():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type in {"cpu", "cuda"}
    for name in ("gpu", "mps", "cuda:x", None, 0, b"cpu", torch.device("meta")):
        with raising(UsageError, "unknown-device"):
            resolve_device(name)


@pytest.mark.parametrize("number", [torch.cuda.device_count(), 127, 128, 256, 99_999])
def test_absent_cuda_device_is_an_error(number):
    with raising(ResourceError, "no-cuda"):
        resolve_device(f"cuda:{number}")


@pytest.fixture
def failing_gpu(monkeypatch):
    """A GPU with a unique index whose kernels raise the errors in a list, in order, and then compute."""
    errors, tried, make = [], [], torch.arange
    number = next(GPUS)

    def arange(*args, device=None, **options):
        if torch.device(device or "cpu").type == "cuda":
            tried.append(device)
            if errors:
                raise errors.pop(0)
        return make(*args, **options)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: number + 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: number)
    monkeypatch.setattr(torch, "arange", arange)
    return SimpleNamespace(name=f"cuda:{number}", errors=errors, tried=tried)


GPUS = itertools.count(100)
NO_KERNEL = RuntimeError("CUDA error: no kernel image is available for execution on the device\nCompile with")


def test_gpu_without_kernels_is_not_used(failing_gpu):
    failing_gpu.errors += [torch.OutOfMemoryError("CUDA out of memory."), NO_KERNEL]
    assert resolve_device("auto").type == "cuda", "running out of memory does not make a GPU unusable"
    real = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    result = genpr.score(real, real[::-1] + 1, k=3)
    (notice,) = (item for item in result.notices if item.code == "gpu-unusable")
    assert "no kernel image is available" in notice.message
    assert resolve_device("auto").type == "cpu"
    for name in (failing_gpu.name, "cuda"):
        with raising(ResourceError, "gpu-unusable"):
            resolve_device(name)
    assert len(failing_gpu.tried) == 2


def test_gpu_that_rounds_factors_is_not_used(failing_gpu, monkeypatch):
    product = torch.Tensor.__matmul__

    def rough(x, y):
        return product(x.bfloat16().to(x.dtype) if x.dtype == torch.float32 else x, y)

    monkeypatch.setattr(torch.Tensor, "__matmul__", rough)
    assert resolve_device("auto").type == "cpu"
    with raising(ResourceError, "gpu-unusable"):
        resolve_device(failing_gpu.name)


def test_private_folder_is_private(tmp_path):
    folder = private_folder(tmp_path / "a" / "b", "c", "d")
    for each in (folder, folder.parent, tmp_path / "a" / "b"):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700
    (tmp_path / "file").write_text("")
    with raising(ResourceError, "cache-unusable"):
        private_folder(tmp_path / "file" / "b")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_folder_of_another_user_is_an_error(tmp_path):
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 12345, 12345)
    (tmp_path / "theirs" / "ours").mkdir()
    (tmp_path / "ours" / "theirs").mkdir(parents=True)
    os.chown(tmp_path / "ours" / "theirs", 12345, 12345)
    for parts in (("theirs",), ("theirs", "ours"), ("theirs", "ours", "new"), ("ours", "theirs", "new")):
        with raising(ResourceError, "cache-unusable"):
            private_folder(tmp_path / parts[0], *parts[1:])
    assert not list(tmp_path.rglob("new"))


@pytest.mark.parametrize(
    ("mode", "parts"),
    [(0o770, ("cache",)), (0o702, ("cache", "features")), (0o1777, ("cache", "features", "toy"))],
)
def test_folder_that_others_can_write_to_is_an_error(tmp_path, mode, parts):
    tmp_path.joinpath(*parts).mkdir(parents=True)
    tmp_path.joinpath(*parts).chmod(mode)
    with pytest.raises(ResourceError) as caught:
        private_folder(tmp_path / "cache", "features", "toy")
    assert caught.value.code == "cache-unusable"
    assert caught.value.path == str(tmp_path.joinpath(*parts))
    tmp_path.joinpath(*parts).chmod(0o755)
    assert private_folder(tmp_path / "cache", "features", "toy").is_dir()


def test_folder_that_others_can_replace_is_an_error(tmp_path):
    everyones, cache = tmp_path / "everyones", tmp_path / "everyones" / "mine" / "cache"
    everyones.mkdir()
    everyones.chmod(0o777)
    (tmp_path / "link").symlink_to(cache)
    for place in (cache, tmp_path / "link"):
        with raising(ResourceError, "cache-unusable"):
            private_folder(place)
    everyones.chmod(0o1777)  # as /tmp is: only the owner of a folder can move it
    for place in (cache, tmp_path / "link"):
        assert private_folder(place) == place
