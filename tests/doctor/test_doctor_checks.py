"""Each check of `genpr doctor` on machines that are described, or whose folders are made for the purpose."""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path

import pytest
import torch

from genpr.doctor.checks import (
    check_cache_folder,
    check_cached_features,
    check_environment,
    check_machine,
    check_weights,
    mounted_as,
)
from genpr.doctor.libraries import (
    _least_versions,
    broken_among,
    check_gpus,
    check_libraries,
    check_torch_pair,
    numbers,
    probe,
    usual_torchvision,
)
from genpr.storage import save_tensors

TORCH = {
    "version": "2.6.0+cu124",
    "warnings": [],
    "cuda_build": "12.4",
    "hip_build": None,
    "driver_cuda": None,
    "is_available": False,
    "devices": [],
}
VISION = {"version": "0.21.0+cu124", "warnings": [], "cuda_build": 12040, "requires": "==2.6.0"}
ABSENT = {"error": "ModuleNotFoundError: No module named 'it'", "is_absent": True}


def only(findings):
    (found,) = findings
    return found


@pytest.mark.parametrize(
    ("torch_facts", "vision_facts", "state", "said"),
    [
        ({}, {}, "ok", "2.6.0+cu124 with torchvision 0.21.0+cu124"),
        ({"version": "2.7.0+cu124"}, {}, "warn", "made for torch ==2.6.0"),
        ({}, {"requires": ">=2.5,<2.7"}, "ok", ""),
        ({}, {"requires": ">=2.6"}, "ok", ""),
        ({}, {"requires": ">=2.14.0"}, "warn", "made for torch >=2.14.0"),
        ({}, {"requires": ">=2.5,<2.6"}, "warn", "made for torch >=2.5,<2.6"),
        ({}, {"requires": None}, "ok", ""),
        ({}, {"requires": None, "version": "0.22.1"}, "warn", "another torch"),
        ({"version": "2.30.0"}, {"requires": None, "version": "0.99"}, "ok", "2.30.0"),
        ({}, {"cuda_build": None}, "warn", "one built for CUDA and the other for CPUs only"),
        ({"cuda_build": None, "version": "2.6.0"}, {}, "warn", "2.6.0 (CPU build) with"),
        ({}, ABSENT, "broken", "without torchvision"),
        (
            {},
            {"error": "RuntimeError: operator torchvision::nms\ndoes not exist", "is_absent": False},
            "broken",
            "nms does",
        ),
    ],
)
def test_torch_and_torchvision(torch_facts, vision_facts, state, said):
    vision = vision_facts if "error" in vision_facts else {**VISION, **vision_facts}
    found = only(check_torch_pair({"torch": {**TORCH, **torch_facts}, "torchvision": vision}))
    assert found.state == state
    assert said in found.text
    assert bool(found.remedy) == (state != "ok")
    if state != "ok":
        build = {**TORCH, **torch_facts}["version"].partition("+")[2]
        again = "" if vision is ABSENT else " --force-reinstall"
        index = f" --index-url https://download.pytorch.org/whl/{build}" if build else ""
        assert found.remedy == f"pip install{again} torch torchvision{index}"


def test_releases_that_came_together():
    assert usual_torchvision("2.6.0+cu124") == "0.21"
    assert usual_torchvision("2.13.1") == "0.28"
    assert usual_torchvision("2.14.0") is None
    assert usual_torchvision("3.0.0") is None


DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build\n"
GPU = {"device": "NVIDIA H200", "capability": "9.0", "free": 140 * 10**9, "total": 141 * 10**9}


@pytest.mark.parametrize(
    ("facts", "driver", "hidden", "state", "said"),
    [
        ({}, None, None, "ok", "no NVIDIA driver"),
        ({"cuda_build": None}, None, None, "ok", "CPU build"),
        ({"cuda_build": None}, DRIVER, None, "warn", "driver 550.54.15 is here, but torch is a CPU build"),
        ({}, DRIVER, "", "ok", "CUDA_VISIBLE_DEVICES='' hides all"),
        ({}, DRIVER, None, "warn", "torch sees no GPU"),
        ({"warnings": ["The NVIDIA driver on your system is too old (found version 11040)."], "driver_cuda": 11040}, DRIVER, None, "warn", "too old for this torch (CUDA 12.4 build), and knows CUDA 11.4 at most"),
        ({"is_available": True, "devices": [GPU]}, DRIVER, None, "ok", "NVIDIA H200, 140.0 of 141.0 GB free, driver 550.54.15"),
        ({"is_available": True, "devices": [{"error": "no kernel image"}]}, DRIVER, None, "broken", "no kernel image"),
    ],
)  # fmt: skip
def test_gpus(tmp_path, monkeypatch, facts, driver, hidden, state, said):
    file = tmp_path / "version"
    if driver:
        file.write_text(driver)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    found = only(check_gpus({"torch": {**TORCH, **facts}}, driver_file=file))
    assert found.state == state
    assert said in found.text
    assert bool(found.remedy) == (state != "ok")


def test_old_libraries_are_broken():
    assert _least_versions()["torch"] == "2.6"
    found = list(check_libraries({"numpy": {"version": "1.25.2"}, "torch": TORCH, "timm": ABSENT}))
    assert [(each.name, each.state) for each in found] == [
        ("libraries", "ok"),
        ("numpy", "broken"),
        ("timm", "broken"),
    ]
    assert found[1].remedy.startswith("pip install --upgrade 'numpy>=1.26")
    assert found[2].remedy == "pip install timm"


def test_a_package_of_another_installer_is_no_reason_to_fail(monkeypatch):
    from importlib.metadata import PackageNotFoundError

    from genpr.evaluation import result

    def version(package):
        if package == "faiss-cpu":  # conda calls it otherwise
            raise PackageNotFoundError(package)
        return "1"

    monkeypatch.setattr(result, "version", version)
    assert result.package_versions()["faiss-cpu"] == "unknown"
    assert result.package_versions()["genpr"] == "1"


@pytest.mark.parametrize(("module", "code"), [("faiss", 4), ("genpr.nonsense", 1)])
def test_a_command_that_cannot_import_a_library_sends_to_the_doctor(monkeypatch, capsys, module, code):
    from genpr.cli import main

    def broken(**_options):
        raise ImportError("libfaiss.so: undefined symbol", name=module)

    monkeypatch.setattr(main.cli, "main", broken)
    assert main.run(["score", "a", "b", "--json"]) == code
    out, err = capsys.readouterr()
    assert ("broken-library" in out) == (code == 4)
    assert ("genpr doctor" in err) == (code == 4)


def test_versions_are_compared_as_numbers():
    assert numbers("2.15.0+cu132") == (2, 15)
    assert numbers("2.10") > numbers("2.9.1")
    assert numbers("2.7.0rc1") == (2, 7)
    assert numbers("0.4.4") > numbers("0.4")


def test_libraries_that_hang_end_or_are_absent_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "hanging.py").write_text("import time\nprint('not an answer')\ntime.sleep(60)\n")
    (tmp_path / "ending.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    (tmp_path / "leaving.py").write_text("raise SystemExit('bye')\n")
    (tmp_path / "fine.py").write_text("__version__ = '1.2'\nimport warnings\nwarnings.warn('old driver')\n")
    found = probe(["ending", "leaving", "fine", "absent_library"]) | probe(["hanging"], timeout_s=2)
    assert found["ending"]["error"] == "it ends the process (signal 9)"
    assert found["leaving"]["error"] == "SystemExit: bye"
    assert found["fine"] == {"version": "1.2", "warnings": ["old driver"]}
    assert found["absent_library"]["is_absent"]
    assert found["hanging"]["error"].startswith("it hangs: no answer within 2 s")
    assert broken_among(found) == ["ending", "leaving", "absent_library", "hanging"]
    assert "hanging" not in sys.modules


def test_the_environment():
    found = list(check_environment({"HOME": "/root", "OMP_NUM_THREADS": "4096", "HF_TOKEN": "secret"}))
    assert [(each.name, each.state) for each in found] == [("environment", "ok"), ("OMP_NUM_THREADS", "warn")]
    assert "secret" not in repr(found)
    found = list(
        check_environment({"GENPR_CACHEDIR": "/x", "GENPR_OFFLINE": "1", "KMP_DUPLICATE_LIB_OK": "TRUE"})
    )
    assert [each.name for each in found if each.state == "warn"] == ["GENPR_CACHEDIR", "KMP_DUPLICATE_LIB_OK"]
    assert "genpr knows no such variable" in found[1].text
    assert only(check_environment({})).text == "nothing set that matters"


def test_every_variable_that_genpr_reads_is_known():
    import genpr

    files = Path(genpr.__file__).parent.rglob("*.py")
    read = {name for file in files for name in re.findall(r"GENPR_[A-Z]+", file.read_text())}
    assert read == {"GENPR_ALONE", "GENPR_CACHE", "GENPR_DEBUG", "GENPR_OFFLINE"}
    assert only(check_environment(dict.fromkeys(read, "1"))).state == "ok"


def test_memory_is_counted_as_genpr_does(monkeypatch):
    monkeypatch.setattr("genpr.memory.free_memory", lambda: 2 * 10**9)
    monkeypatch.setattr("genpr.runtime.usable_cores", lambda: 3)
    found = only(check_machine())
    assert (found.state, found.facts["free_memory"], found.facts["cores"]) == ("ok", 2 * 10**9, 3)
    assert found.text.endswith("2.0 GB of memory free")
    monkeypatch.setattr("genpr.memory.free_memory", lambda: 10**8)
    assert only(check_machine()).state == "warn"


TABLE = """22 1 0:2 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:3 / /home rw - nfs4 server:/home rw
24 22 0:4 / /home/with\\040space rw - tmpfs tmpfs rw
"""


def test_the_file_system_is_that_of_the_longest_mount_point(tmp_path):
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    assert mounted_as(Path("/home/me/.cache"), table) == "nfs4"
    assert mounted_as(Path("/home/with space/x"), table) == "tmpfs"
    assert mounted_as(Path("/homestead"), table) == "ext4"
    assert mounted_as(Path("/"), tmp_path / "none") is None


def test_a_cache_folder_that_can_be_used(tmp_path):
    root = tmp_path / "cache"
    found = only(check_cache_folder(root))
    assert (found.state, found.facts["exists"]) == ("ok", False)
    assert "not made yet" in found.text
    assert not root.exists()
    root.mkdir(mode=0o700)
    assert only(check_cache_folder(root)).state == "ok"
    assert not list(root.iterdir())


def test_cache_folders_that_cannot_be_used_or_trusted(tmp_path, monkeypatch):
    root = tmp_path / "cache"
    root.write_text("a file")
    found = only(check_cache_folder(root))
    assert found.state == "warn"
    assert "it is no folder" in found.text
    assert "not made yet" not in found.text
    assert only(check_cached_features(root)).state == "ok"  # genpr scores without a cache
    root.unlink()
    root.mkdir()
    root.chmod(0o770)
    found = only(check_cache_folder(root))
    assert (found.name, found.state) == ("cache", "warn")
    assert "chmod" in found.text
    root.chmod(0o700)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: root.stat().st_uid + 1)
        assert "belongs to another user" in only(check_cache_folder(root)).text
    with monkeypatch.context() as patch:
        patch.setattr("genpr.doctor.checks.mounted_as", lambda _path: "nfs4")
        assert "network file system (nfs4)" in only(check_cache_folder(root)).text

    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("tempfile.TemporaryFile", full)
        assert "No space left on device" in only(check_cache_folder(root)).text
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_a_folder_without_rights(tmp_path):
    tmp_path.chmod(0o500)
    try:
        if os.access(tmp_path, os.W_OK):
            pytest.skip("root may write anywhere")
        assert "cannot be written to" in only(check_cache_folder(tmp_path / "cache")).text
    finally:
        tmp_path.chmod(0o700)


def write_shards(root, count):
    folder = root / "features" / f"gabor-{'0' * 16}"
    folder.mkdir(parents=True)
    paths = [folder / f"{number:032x}.safetensors" for number in range(count)]
    for number, path in enumerate(paths):
        save_tensors(path, {"features": torch.full((4, 4), float(number))}, {"format": "genpr.cache/1"})
        os.utime(path, (number, number))
    return paths


def test_damaged_features_are_found_in_a_sample_or_in_all(tmp_path):
    assert only(check_cached_features(tmp_path)).text == "no features yet"
    paths = write_shards(tmp_path, 20)
    found = only(check_cached_features(tmp_path))
    assert (found.state, found.facts["files"]) == ("ok", 20)
    assert found.facts["looked_at"] < 10
    data = bytearray(paths[-1].read_bytes())
    data[-1] ^= 1
    paths[-1].write_bytes(data)
    os.utime(paths[-1], (99, 99))
    found = only(check_cached_features(tmp_path))
    assert (found.state, found.facts["damaged"]) == ("warn", [str(paths[-1])]), (
        "the last used one is in the sample"
    )
    os.utime(paths[-1], (17.5, 17.5))
    assert only(check_cached_features(tmp_path)).state == "ok"
    found = only(check_cached_features(tmp_path, full=True))
    assert (found.state, found.facts["looked_at"], found.facts["damaged"]) == ("warn", 20, [str(paths[-1])])
    assert all(path.exists() for path in paths), "nothing is changed"


def test_weights(monkeypatch):
    from genpr.features.weights import known
    from genpr.features.weights.known import WeightsFile, make_weights_folder

    sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"  # of "hello"
    usual = WeightsFile("usual.pth", "https://x.invalid/usual.pth", 5, sha256, "MIT", used_by=("inception",))
    other = WeightsFile("other.pth", "https://x.invalid/other.pth", 5, sha256, "MIT", used_by=("other",))
    monkeypatch.setattr(known, "KNOWN_WEIGHTS", (other, usual))
    found = only(check_weights())
    assert (found.state, found.remedy) == ("warn", "GENPR_OFFLINE=0 genpr weights fetch inception")
    assert found.facts["absent"] == ["inception", "other"]
    monkeypatch.delenv("GENPR_OFFLINE")
    assert only(check_weights()).remedy == "genpr weights fetch inception"
    folder = make_weights_folder()
    (folder / "usual.pth").write_bytes(b"hello")
    found = only(check_weights())
    assert (found.state, found.facts["right"]) == ("ok", ["inception"])
    (folder / "other.pth").write_bytes(b"hallo")
    bad, summary = check_weights()
    assert (bad.name, bad.state, summary.state) == ("other", "broken", "ok")
    assert bad.remedy == f"rm '{folder / 'other.pth'}' && genpr weights fetch other"
    monkeypatch.setattr("genpr.doctor.checks._HASHED_BYTES", 5)
    found = only(check_weights())
    assert found.facts["not_hashed"] == ["other"], "the usual ones come first"
    assert len(list(check_weights(full=True))) == 2
