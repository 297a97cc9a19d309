"""Devices, folders, and global state left as found."""

import os
import stat

import pytest
import torch
from raising import raising

from genpr.errors import ResourceError, UsageError
from genpr.runtime import private_folder, resolve_device, state_guard


def global_state():
    return (
        torch.get_float32_matmul_precision(),
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.random.get_rng_state().tolist(),
    )


def precisions():
    """Of float32 products and convolutions, per backend; older torch knows switches for TF32 only."""
    backends = torch.backends
    if hasattr(backends.cudnn, "conv"):
        owners = (backends.cuda.matmul, backends.cudnn.conv, backends.mkldnn.matmul, backends.mkldnn.conv)
        return {owner.fp32_precision for owner in owners}
    return {
        "tf32" if flag else "ieee" for flag in (backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32)
    }


@pytest.fixture
def fast_and_loose():
    """A user's process with every shortcut switched on."""
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.benchmark = True
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.benchmark = False


@pytest.mark.usefixtures("fast_and_loose")
def test_the_guard_computes_in_float32_and_restores_everything():
    before = global_state()
    x = torch.full((64, 4096), 1 + 2**-12)  # 1 + 2^-12 rounds to 1 in bfloat16 and in TF32
    with state_guard():
        torch.rand(3)
        inside = (x @ x.T)[0, 0].item()
        assert precisions() == {"ieee"}
        assert not torch.backends.cudnn.benchmark
    assert inside == pytest.approx(4096 * (1 + 2**-12) ** 2, rel=1e-6)
    assert global_state() == before


def test_devices():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type in {"cpu", "cuda"}
    for name in ("gpu", "mps", "cuda:x"):
        with raising(UsageError, "unknown-device"):
            resolve_device(name)


@pytest.mark.parametrize("number", [torch.cuda.device_count(), 127, 128, 256, 99_999])
def test_absent_cuda_device_is_refused(number):
    with raising(ResourceError, "no-cuda"):
        resolve_device(f"cuda:{number}")


def test_why_a_gpu_cannot_be_used_is_told(monkeypatch):
    def init():
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040).")

    monkeypatch.setattr(torch.version, "cuda", "12.6")
    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ResourceError, match="system is too old") as caught:
        resolve_device("cuda")
    assert caught.value.code == "no-cuda"
    assert resolve_device("auto").type == "cpu"


def test_private_folder_is_private(tmp_path):
    folder = private_folder(tmp_path / "a" / "b", "c", "d")
    for each in (folder, folder.parent, tmp_path / "a" / "b"):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700
    (tmp_path / "file").write_text("")
    with raising(ResourceError, "cache-unusable"):
        private_folder(tmp_path / "file" / "b")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path):
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
def test_a_folder_that_others_can_write_to_is_refused(tmp_path, mode, parts):
    tmp_path.joinpath(*parts).mkdir(parents=True)
    tmp_path.joinpath(*parts).chmod(mode)
    with pytest.raises(ResourceError) as caught:
        private_folder(tmp_path / "cache", "features", "toy")
    assert caught.value.code == "cache-unusable"
    assert caught.value.path == str(tmp_path.joinpath(*parts))
    tmp_path.joinpath(*parts).chmod(0o755)
    assert private_folder(tmp_path / "cache", "features", "toy").is_dir()


def test_a_folder_that_others_can_exchange_is_refused(tmp_path):
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
