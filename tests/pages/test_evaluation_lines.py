"""docs/protocols.md: every command runs, on small files and with small random networks."""

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from toy_networks import WIDTH, use_toy_networks, write_statistics

from genpr.cli.main import run
from genpr.evaluation import protocols
from genpr.features.representations import FDR6

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs" / "protocols.md").read_text().partition("| verified how |")[2].partition("\n\n")[0]
ROWS = re.findall(r"^\| .+ \|$", TABLE, re.MULTILINE)
LINES = re.findall(r"`(genpr [^`]+)`", TABLE)
N = 10


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    use_toy_networks(monkeypatch, captions=N)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """All files that the commands name."""
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    copies = {"real": "adm10k imagenet-val-prc train50k val2014 train val", "samples": "recon"}
    pixels = {}
    for name, most in (("real", 256), ("samples", 220)):
        pixels[name] = rng.integers(0, most, (N, 16, 16, 3), dtype=np.uint8)
        (folder / name).mkdir()
        for row, image in enumerate(pixels[name]):
            Image.fromarray(image).save(folder / name / f"{row:05d}.png")
        for copy in copies[name].split():
            shutil.copytree(folder / name, folder / copy)
    write_statistics(folder, pixels["real"])
    np.savez(folder / "samples.npz", arr_0=pixels["samples"])
    for name in ("real", "fake"):
        np.save(folder / f"{name}.npy", rng.normal(size=(N, WIDTH)))
    shutil.make_archive(str(folder / "data"), "zip", folder / "real")
    (folder / "captions.txt").write_text("".join(f"{'abcdef'[row % 6]} {row}\n" for row in range(N)))
    return folder


@pytest.mark.parametrize("line", LINES)
def test_command_for_a_repository_runs(line, files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    arguments = shlex.split(line)[1:]
    assert run([*arguments, "--json"]) == 0, capsys.readouterr().err
    result = json.loads(capsys.readouterr().out)
    if arguments[0] == "stats":
        assert {moments["dim"] for moments in result["moments"]} == {WIDTH}
        assert result["n"] == N
        return
    for found in result.get("results", {"": result}).values():  # of a panel, or the only one
        assert all(np.isfinite(metric["value"]) for metric in found["metrics"].values())
        if "--protocol" in arguments and "--metrics" not in arguments and arguments[0] == "score":
            name = arguments[arguments.index("--protocol") + 1]
            needed = set(protocols.find_protocol(name).metrics)
            assert needed == found["metrics"].keys()


def test_every_repository_has_a_command_and_a_verification():
    assert len(ROWS) >= 17
    for row in ROWS:
        assert re.match(r"\| [^|]+ \| `.+ \| `genpr .+ \| a", row), row


def test_files_of_fdr6_equal_those_on_its_page():
    page = (ROOT / "docs" / "representations.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| ([\d.]+) \| `([^`]+)` \|$", page, re.MULTILINE)
    assert [(name, of, float(fd), file) for name, of, fd, file in rows] == [
        (each.name, each.extractor, each.validation_fd, each.statistics) for each in FDR6
    ]
