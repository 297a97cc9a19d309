"""`genpr doctor` on this machine, with broken libraries and with simulated wrong results."""

import json
import sys
from importlib import metadata
from itertools import count
from types import SimpleNamespace

import pytest
import torch

import genpr
from genpr import doctor
from genpr.cli import main

SELF_TEST = ("directions", "exactness")


def only(findings):
    (found,) = findings
    return found


def run_doctor(capsys, *options):
    """Exit code and stdout of `genpr doctor`."""
    code = main.run(["doctor", *options])
    return code, capsys.readouterr().out


def test_machine_that_runs_these_tests_is_healthy(tmp_path, capsys):
    code, out = run_doctor(capsys, "--json", "--cache-dir", str(tmp_path / "cache"))
    assert code == 0, out
    record = json.loads(out)
    assert record["healthy"] is True
    found = {finding["name"]: finding for finding in record["findings"]}
    assert all(found[name]["state"] == "ok" for name in ("libraries", "machine", "cache", *SELF_TEST))
    assert found["libraries"]["facts"]["genpr"] == genpr.__version__
    assert not (tmp_path / "cache").exists()


def test_broken_libraries_are_reported_with_a_command_and_others_are_checked(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "faiss", None)
    code, out = run_doctor(capsys, "--cache-dir", str(tmp_path))
    assert code == 4
    text = " ".join(out.split())
    assert "broken torchvision cannot be imported (ModuleNotFoundError" in text
    assert "fix: pip install --force-reinstall faiss-cpu" in text
    assert "ok environment" in text


def test_old_libraries_are_reported(monkeypatch):
    right = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "1.25.2" if name == "numpy" else right(name))
    monkeypatch.setitem(sys.modules, "jinja2", None)
    summary, *wrong = doctor.check_libraries("0.1")
    states = {each.name: each.state for each in wrong if each.name != "pillow"}
    assert (summary.facts["numpy"], states) == ("1.25.2", {"numpy": "broken", "jinja2": "warn"})


@pytest.mark.parametrize(("version", "is_warned"), [("11.3.0", True), ("12.3.0", True), ("13.0.0", False)])
def test_pillow_with_which_some_files_are_refused_is_a_warning(version, is_warned, monkeypatch):
    right = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: version if name == "pillow" else right(name))
    found = [each.state for each in doctor.check_libraries("0.1") if each.name == "pillow"]
    assert ("warn" in found) is is_warned


@pytest.mark.parametrize(("driver", "state"), [(None, "ok"), ("550.54.15", "warn")])
def test_reason_for_an_unused_gpu_is_reported(monkeypatch, driver, state):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.utils.collect_env, "get_nvidia_driver_version", lambda _run: driver)
    assert only(doctor.check_gpus()).state == state


def test_suspicious_environment_variables_are_warnings():
    wrong = {"NVIDIA_TF32_OVERRIDE": "1"}
    found = list(doctor.check_environment({**wrong, "HF_TOKEN": "secret", "GENPR_OFFLINE": "1"}))
    assert [each.name for each in found if each.state == "warn"] == [*wrong]
    assert found[0].facts == {**wrong, "GENPR_OFFLINE": "1"}


def test_unusable_and_untrusted_cache_folders_are_warnings(tmp_path, monkeypatch):
    root = tmp_path / "cache"
    assert only(doctor.check_cache_folder(root)).state == "ok"
    root.write_text("a file")
    assert only(doctor.check_cache_folder(root)).state == "warn"
    root.unlink()
    root.mkdir(mode=0o700)
    assert only(doctor.check_cache_folder(root)).state == "ok"
    root.chmod(0o770)
    assert "chmod" in only(doctor.check_cache_folder(root)).text
    root.chmod(0o700)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(free=10**6))
    assert only(doctor.check_cache_folder(root)).state == "warn"


WRONG = {
    "exchanged": lambda call, found: {"precision": found["recall"], "recall": found["precision"]},
    "blind to noise": lambda call, found: found if call != 1 else {**found, "precision": 0.9},
    "blind to lost modes": lambda call, found: found if call != 0 else {**found, "recall": 0.9},
    "not symmetric": lambda call, found: (
        found if call != 2 else {**found, "recall": found["recall"] - 1 / 300}
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_directions_are_detected(monkeypatch, wrong):
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


def float32_distances(_right, manifold, queries):
    """The usual shortcut, |x|² + |y|² - 2xy in float32, loses what features far from the origin differ in."""
    x, y = manifold.features, torch.from_numpy(queries)
    between = (y.square().sum(1)[:, None] + x.square().sum(1) - 2 * y @ x.T).double()
    return (between <= manifold.sq_radii if manifold.ties == "closed" else between < manifold.sq_radii).sum(1)


@pytest.mark.parametrize(
    ("wrong", "found"), [(off_by_one, ["ties", "off-center"]), (float32_distances, ["off-center"])]
)
def test_wrong_counts_are_detected(monkeypatch, wrong, found):
    right = genpr.KNNManifold.count
    monkeypatch.setattr(genpr.KNNManifold, "count", lambda self, queries: wrong(right, self, queries))
    finding = next(iter(doctor.check_exactness()))
    assert (finding.state, finding.facts["wrong"]) == ("broken", found)


@pytest.mark.parametrize(("module", "code"), [("faiss", 4), ("genpr.nonsense", 1)])
def test_error_of_a_failed_import_mentions_the_doctor(monkeypatch, capsys, module, code):
    def broken(**_options):
        raise ImportError("libfaiss.so: undefined symbol", name=module)

    monkeypatch.setattr(main.cli, "main", broken)
    assert main.run(["score", "a", "b", "--json"]) == code
    assert ("genpr doctor" in capsys.readouterr().err) == (code == 4)
