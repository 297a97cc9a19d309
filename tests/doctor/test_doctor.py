"""`genpr doctor` on this machine, on machines that are described, and with libraries that are broken."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from importlib import metadata
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torchvision
from rich.cells import cell_len

import genpr
from genpr import doctor
from genpr.storage import save_tensors

ROOT = Path(genpr.__file__).parent.parent
SELF_TEST = ("directions", "exactness", "decoding", "same features")


def only(findings):
    (found,) = findings
    return found


def run_doctor(cache, *options, broken=None, folder=None):
    """The finished process of `genpr doctor` with libraries that are replaced by `broken` code."""
    paths = [str(ROOT)]
    for name, code in (broken or {}).items():
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(code)
        paths.insert(0, str(folder))
    shown = (
        "CUDA_",
        "GENPR_",
        "HF_",
        "KMP_",
        "LD_PRELOAD",
        "MKL_",
        "OMP_",
        "OPENBLAS_",
        "PYTORCH_",
        "TORCH_",
        "XDG_",
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(shown)}
    environment |= {"PYTHONPATH": os.pathsep.join(paths), "GENPR_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "genpr", "doctor", *options]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, cwd=cache.parent
    )
    assert "Traceback" not in done.stdout + done.stderr
    assert "is a bug" not in done.stderr
    return done


def by_name(done):
    return {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    cache = tmp_path_factory.mktemp("doctor") / "cache"
    return run_doctor(cache, "--json"), cache


def test_a_machine_that_runs_these_tests_is_healthy(healthy):
    import faiss
    import numpy as np

    done, cache = healthy
    assert done.returncode == 0, done.stdout
    record = json.loads(done.stdout)
    assert record["healthy"] is True
    assert record["genpr"] == genpr.__version__
    found = by_name(done)
    assert {"genpr", "environment", "cache", "cached", "weights"} <= set(found)
    assert all(found[name]["state"] == "ok" for name in ("torch", "libraries", "machine", *SELF_TEST))
    assert found["weights"]["state"] == "warn", "those of inception are not here"
    assert found["weights"]["remedy"] == "genpr weights fetch inception"
    assert found["torch"]["facts"]["torch"] == torch.__version__
    assert found["torch"]["facts"]["torchvision"] == torchvision.__version__
    assert found["libraries"]["facts"]["numpy"] == np.__version__
    assert found["libraries"]["facts"]["faiss-cpu"] == faiss.__version__
    assert not cache.exists(), "it leaves no trace"


def test_broken_libraries_are_named_with_a_command(tmp_path):
    """One that is of another torch, one that ends the process, and those that need neither."""
    broken = {
        "torchvision": "raise RuntimeError('operator torchvision::nms does not exist')",
        "faiss": "import os, sys; print('cannot execute', file=sys.stderr, flush=True); os._exit(132)",
    }
    done = run_doctor(tmp_path / "cache", "--json", broken=broken, folder=tmp_path / "broken")
    assert done.returncode == 4
    assert json.loads(done.stdout)["healthy"] is False
    found = by_name(done)
    assert found["torchvision"]["state"] == "broken"
    assert "torchvision::nms" in found["torchvision"]["facts"]["error"]
    assert found["faiss"]["state"] == "broken"
    assert "exit code 132): cannot execute" in found["faiss"]["facts"]["error"]
    assert found["faiss"]["remedy"] == "pip install --force-reinstall faiss-cpu"
    assert found["directions"]["state"] == "warn"
    assert found["decoding"]["state"] == "ok", "what needs neither is checked"


def test_without_torch_and_rich_it_still_answers(tmp_path):
    broken = {
        "torch": "raise OSError('libcudart.so.12: cannot open shared object file')",
        "rich": "raise ImportError('no rich')",
    }
    done = run_doctor(tmp_path / "cache", broken=broken, folder=tmp_path / "broken")
    assert done.returncode == 4
    lines = done.stdout.splitlines()
    assert any(line.startswith("broken torch") and "libcudart" in line for line in lines)
    assert any(line.startswith("broken rich") for line in lines)
    assert any(line.startswith("ok     decoding") for line in lines)


def test_text_fits_a_screen(healthy):
    from genpr.cli.doctor import _text

    record = json.loads(healthy[0].stdout)
    findings = tuple(doctor.Finding(**finding) for finding in record["findings"])
    lines = _text(doctor.Report(record["genpr"], findings, record["seconds"])).splitlines()
    assert max(map(cell_len, lines)) <= 80
    # Paths and variables of the machine that runs the test may be of any length.
    fixed = tuple(finding for finding in findings if finding.name not in ("environment", "cache"))
    assert len(_text(doctor.Report("0", fixed, 1.0)).splitlines()) <= 24
    assert all(any(line[7:].startswith(f"{finding.name} ") for line in lines) for finding in findings)
    broken = doctor.Finding("torch", "broken", "\x1b[31m of another build", "pip install torch")
    lines = _text(doctor.Report("0", (broken,), 1.0)).splitlines()
    assert lines[0] == "broken torch         \\x1b[31m of another build"
    assert lines[1] == "       fix: pip install torch"


@pytest.mark.parametrize(
    ("needs", "cuda", "vision_cuda", "state"),
    [
        ("torch==2.6.0", "12.4", 12040, "ok"),
        ("torch>=2.5,<2.7", "12.4", 12040, "ok"),
        ("torch>=2.14.0", "12.4", 12040, "warn"),
        ("torch>=2.5,<2.6", "12.4", 12040, "warn"),
        ("numpy", "12.4", 12040, "ok"),
        ("torch==2.6.0", "12.4", None, "warn"),
        ("torch==2.6.0", None, 12040, "warn"),
    ],
)
def test_torchvision_must_be_made_for_this_torch(monkeypatch, needs, cuda, vision_cuda, state):
    monkeypatch.setattr(torch, "__version__", "2.6.0+cu124")
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torchvision.version, "cuda", vision_cuda, raising=False)
    monkeypatch.setattr(metadata, "requires", lambda _name: [needs])
    found = only(doctor.check_torch_pair())
    assert found.state == state
    if state != "ok":
        index = "--index-url https://download.pytorch.org/whl/cu124"
        assert found.remedy == f"pip install --force-reinstall torch torchvision {index}"


@pytest.mark.parametrize(
    ("build", "driver", "hidden", "state"),
    [
        ("12.4", None, None, "ok"),
        (None, None, None, "ok"),
        (None, "550.54.15", None, "warn"),
        ("12.4", "550.54.15", "", "ok"),
        ("12.4", "550.54.15", None, "warn"),
    ],
)
def test_why_torch_uses_no_gpu(monkeypatch, build, driver, hidden, state):
    monkeypatch.setattr(torch.version, "cuda", build)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.utils.collect_env, "get_nvidia_driver_version", lambda _run: driver)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    found = only(doctor.check_gpus())
    assert (found.name, found.state, bool(found.remedy)) == ("cuda", state, state != "ok")
    assert found.facts == {"driver": driver, "cuda_build": build}


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a torch without a GPU")
def test_a_gpu_that_does_not_compute_is_broken(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    found = only(doctor.check_gpus())
    assert (found.name, found.state) == ("cuda:0", "broken")


def test_old_and_missing_libraries(monkeypatch):
    right = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "1.25.2" if name == "numpy" else right(name))
    summary, old, broken = doctor.check_libraries({"timm": "ModuleNotFoundError: No module named 'timm'"})
    assert (summary.name, summary.facts["numpy"]) == ("libraries", "1.25.2")
    assert (old.name, old.state) == ("numpy", "broken")
    assert old.remedy.startswith("pip install --upgrade 'numpy>=1.26")
    assert (broken.name, broken.state, broken.remedy) == (
        "timm",
        "broken",
        "pip install --force-reinstall timm",
    )
    summary, old, pages = doctor.check_libraries({"jinja2": "ImportError"})
    assert pages.state == "warn"


def test_a_package_of_another_installer_is_no_reason_to_fail(monkeypatch):
    from genpr.evaluation import result

    def version(package):
        if package == "faiss-cpu":  # conda calls it otherwise
            raise metadata.PackageNotFoundError(package)
        return "1"

    monkeypatch.setattr(result, "version", version)
    result.package_versions.cache_clear()
    versions = result.package_versions()
    result.package_versions.cache_clear()
    assert (versions["faiss-cpu"], versions["genpr"]) == ("unknown", "1")


@pytest.mark.parametrize(("module", "code"), [("faiss", 4), ("genpr.nonsense", 1)])
def test_a_command_that_cannot_import_a_library_names_the_doctor(monkeypatch, capsys, module, code):
    from genpr.cli import main

    def broken(**_options):
        raise ImportError("libfaiss.so: undefined symbol", name=module)

    monkeypatch.setattr(main.cli, "main", broken)
    assert main.run(["score", "a", "b", "--json"]) == code
    out, err = capsys.readouterr()
    assert ("broken-library" in out) == (code == 4)
    assert ("genpr doctor" in err) == (code == 4)


def test_libraries_that_end_the_process_hang_or_are_absent(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "hanging.py").write_text("import time\nprint('text')\ntime.sleep(60)\n")
    (tmp_path / "ending.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    (tmp_path / "failing.py").write_text("raise OSError('no libcudart')\n")
    (tmp_path / "fine.py").write_text("print('text')\n")
    found = doctor.import_errors(["ending", "failing", "fine", "absent_library"])
    assert found["ending"] == "ends the process (exit code -9)"
    assert found["failing"] == "OSError: no libcudart"
    assert found["absent_library"].startswith("ModuleNotFoundError")
    assert "fine" not in found
    assert "no answer within 2 s" in doctor.import_errors(["hanging"], timeout_s=2)["hanging"]


def test_a_check_that_fails_itself_is_a_finding():
    def check():
        raise RecursionError("x" * 500)

    found = only(doctor.run_check("mine", check))
    assert (found.name, found.state) == ("mine", "broken")
    assert len(found.text) < 300
    assert only(doctor.run_check("mine", check, ["torch"], ["torch"])).state == "warn"


def test_the_environment():
    wrong = {"GENPR_CACHEDIR": "/x", "KMP_DUPLICATE_LIB_OK": "TRUE", "OMP_NUM_THREADS": "4096"}
    right = {"HOME": "/root", "HF_TOKEN": "secret", "GENPR_OFFLINE": "1"}
    found = list(doctor.check_environment({**wrong, **right}))
    assert [each.name for each in found if each.state == "warn"] == [*wrong]
    assert found[0].facts == {**wrong, "GENPR_OFFLINE": "1"}
    assert only(doctor.check_environment({})).facts == {}


def test_a_usable_cache_folder(tmp_path, monkeypatch):
    root = tmp_path / "cache"
    found = only(doctor.check_cache_folder(root))
    assert (found.state, found.facts["exists"]) == ("ok", False)
    assert not root.exists()
    root.mkdir(mode=0o700)
    assert only(doctor.check_cache_folder(root)).state == "ok"
    assert not list(root.iterdir())
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(free=10**6))
    assert only(doctor.check_cache_folder(root)).state == "warn"


def test_cache_folders_that_cannot_be_used_or_trusted(tmp_path, monkeypatch):
    root = tmp_path / "cache"
    root.write_text("a file")
    assert only(doctor.check_cache_folder(root)).state == "warn"
    assert only(doctor.check_cached_features(root)).state == "ok"  # genpr scores without a cache
    root.unlink()
    root.mkdir()
    root.chmod(0o770)
    found = only(doctor.check_cache_folder(root))
    assert (found.name, found.state) == ("cache", "warn")
    assert "chmod" in found.text
    root.chmod(0o700)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: root.stat().st_uid + 1)
        assert only(doctor.check_cache_folder(root)).state == "warn"

    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("tempfile.TemporaryFile", full)
        assert "No space left on device" in only(doctor.check_cache_folder(root)).text
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def write_shards(root, count):
    folder = root / "features" / f"gabor-{'0' * 16}"
    folder.mkdir(parents=True)
    paths = [folder / f"{number:032x}.safetensors" for number in range(count)]
    for number, path in enumerate(paths):
        save_tensors(path, {"features": torch.full((4, 4), float(number))}, {"format": "genpr.cache/1"})
        os.utime(path, (number, number))
    return paths


def test_damaged_features_are_found_in_a_sample_or_in_all(tmp_path):
    assert only(doctor.check_cached_features(tmp_path)).facts["files"] == 0
    paths = write_shards(tmp_path, 20)
    found = only(doctor.check_cached_features(tmp_path))
    assert (found.state, found.facts["files"]) == ("ok", 20)
    assert found.facts["checked"] < 10
    data = bytearray(paths[-1].read_bytes())
    data[-1] ^= 1
    paths[-1].write_bytes(data)
    os.utime(paths[-1], (99, 99))
    found = only(doctor.check_cached_features(tmp_path))
    assert (found.state, found.facts["damaged"]) == ("warn", [str(paths[-1])]), "the last used one"
    os.utime(paths[-1], (17.5, 17.5))
    assert only(doctor.check_cached_features(tmp_path)).state == "ok"
    found = only(doctor.check_cached_features(tmp_path, full=True))
    assert (found.state, found.facts["checked"], found.facts["damaged"]) == ("warn", 20, [str(paths[-1])])
    assert all(path.exists() for path in paths), "nothing is changed"


def test_weights(monkeypatch):
    from genpr.features.weights import known
    from genpr.features.weights.known import WeightsFile, make_weights_folder

    sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"  # of "hello"
    usual = WeightsFile("usual.pth", "https://x.invalid/usual.pth", 5, sha256, "MIT", used_by=("inception",))
    other = WeightsFile("other.pth", "https://x.invalid/other.pth", 5, sha256, "MIT", used_by=("other",))
    monkeypatch.setattr(known, "KNOWN_WEIGHTS", (other, usual))
    found = only(doctor.check_weights())
    assert (found.state, found.remedy) == ("warn", "GENPR_OFFLINE=0 genpr weights fetch inception")
    assert found.facts["absent"] == ["inception", "other"]
    monkeypatch.delenv("GENPR_OFFLINE")
    assert only(doctor.check_weights()).remedy == "genpr weights fetch inception"
    folder = make_weights_folder()
    (folder / "usual.pth").write_bytes(b"hello")
    found = only(doctor.check_weights())
    assert (found.state, found.facts["right"]) == ("ok", ["inception"])
    (folder / "other.pth").write_bytes(b"hallo")
    bad, summary = doctor.check_weights()
    assert (bad.name, bad.state, summary.state) == ("other", "broken", "ok")
    assert bad.remedy == f"rm '{folder / 'other.pth'}' && genpr weights fetch other"
    found = only(doctor.check_weights(most_bytes=5))
    assert found.facts["not_hashed"] == ["other"], "the usual ones come first"
    assert len(list(doctor.check_weights(full=True))) == 2


WRONG = {
    "exchanged": lambda call, found: {"precision": found["recall"], "recall": found["precision"]},
    "blind to noise": lambda call, found: found if call != 1 else {**found, "precision": 0.9},
    "blind to lost modes": lambda call, found: found if call != 0 else {**found, "recall": 0.9},
    "not symmetric": lambda call, found: (
        found if call != 2 else {**found, "recall": found["recall"] - 1 / 300}
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_directions_are_found(monkeypatch, wrong):
    import genpr.evaluation.evaluator

    right, calls = genpr.evaluation.evaluator.score, count()

    def score(real, fake, **options):
        found = right(real, fake, **options)
        return WRONG[wrong](next(calls), {name: found[name] for name in ("precision", "recall")})

    monkeypatch.setattr(genpr.evaluation.evaluator, "score", score)
    assert only(doctor.check_directions()).state == "broken"


def off_by_one(right, manifold, queries):
    counts = right(manifold, queries)
    counts[17] += 1
    return counts


def float32_distances(right, manifold, queries):
    """The usual shortcut, |x|² + |y|² - 2xy in float32, loses what features far from the origin differ in."""
    x, y = manifold.features, torch.from_numpy(queries)
    between = (y.square().sum(1)[:, None] + x.square().sum(1) - 2 * y @ x.T).double()
    return (between <= manifold.sq_radii if manifold.ties == "closed" else between < manifold.sq_radii).sum(1)


@pytest.mark.parametrize(
    ("wrong", "found"), [(off_by_one, ["ties", "off-center"]), (float32_distances, ["off-center"])]
)
def test_a_wrong_count_is_found(monkeypatch, wrong, found):
    from genpr.metrics.knn_manifold import KNNManifold

    right = KNNManifold.count
    monkeypatch.setattr(KNNManifold, "count", lambda self, queries: wrong(right, self, queries))
    finding = next(iter(doctor.check_exactness()))
    assert (finding.state, finding.facts["wrong"]) == ("broken", found)


def test_a_codec_that_exchanges_channels_is_found(monkeypatch):
    import genpr.images.decode

    decode = genpr.images.decode.decode

    def exchanged(data, *, name, policy):
        found = decode(data, name=name, policy=policy)
        if name == "made.avif":
            found.pixels[:] = found.pixels[..., ::-1].copy()
        return found

    monkeypatch.setattr(genpr.images.decode, "decode", exchanged)
    found = only(doctor.check_codecs())
    assert (found.state, found.facts["wrong"]) == ("broken", ["AVIF"])


def test_features_that_change_with_the_batch_are_found(monkeypatch):
    import genpr.features.embed

    embed = genpr.features.embed.embed

    def noisy(images, extractor, *, batch_size):
        rows = embed(images, extractor, batch_size=batch_size)
        rows[3, 5] += 1e-6 * (batch_size == 1)
        return rows

    monkeypatch.setattr(genpr.features.embed, "embed", noisy)
    assert only(doctor.check_features()).state == "broken"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gpus_count_as_integers_do():
    found = list(doctor.check_exactness())
    assert len(found) == 1 + torch.cuda.device_count()
    assert {each.state for each in found} == {"ok"}
