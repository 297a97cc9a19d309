"""What docs/clusters.md shows: its scripts run in a shell whose `sbatch` and `srun` only play a scheduler."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from genpr.cli.main import run

PAGE = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text()

# `sbatch` runs the tasks of a script at once, one after another, and knows which jobs there were.
SCHEDULER = r"""
srun() { "$@"; }
sbatch() {
  local first=1 last=1 name depends=''
  while [ "${1#--}" != "$1" ]; do
    case "$1" in --dependency=*) depends=${1#--dependency=afterok} ;; esac
    shift
  done
  for name in ${depends//:/ }; do [ -e "job-$name" ] || return 1; done
  name=$(($(ls | sed -n '/^job-/p' | wc -l) + 1))
  if grep -q '#SBATCH --array' "$1"; then
    last=$(sed -n 's/^#SBATCH --array=1-//p' "$1")
  fi
  for task in $(seq $first $last); do
    SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_COUNT=$last bash -eu "$@" >> "slurm-$task.out" 2>&1 || return 1
  done
  touch "job-$name"
  echo "$name"
}
export -f srun sbatch genpr
"""


@pytest.fixture
def sides(tmp_path, rng):
    """40 images of each side; and the feature files of one run over each."""
    for side in ("real", "fake"):
        (tmp_path / side).mkdir()
        for number, pixels in enumerate(rng.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)):
            Image.fromarray(pixels).save(tmp_path / side / f"{number:02d}.png")
        options = [
            "--extractor",
            "pixels",
            "--device",
            "cpu",
            "--cache-dir",
            str(tmp_path / "other"),
            "--quiet",
        ]
        assert (
            run(["features", str(tmp_path / side), str(tmp_path / f"{side}-whole.safetensors"), *options])
            == 0
        )
    return tmp_path


def script(name):
    """The script that the page calls by a name."""
    (code,) = re.findall(rf"^`{name}`.*?\n```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return code


def for_test(code, folder):
    """With folders that are there, and an extractor that needs no weights."""
    code = code.replace("/data/real", str(folder / "real"))
    code = code.replace("'/data/fake/shard-{000..127}.tar'", f"'{folder}/{{fake}}'".replace("{fake}", "fake"))
    return re.sub(r"(genpr features (?!')[^&\n\\]*)", r"\1 --extractor pixels --device cpu ", code)


def shell(code, folder, genpr):
    """Run bash code in a folder, with a shell function as `genpr`."""
    code = f"set -eu\ngenpr() {{ {genpr}; }}\n{SCHEDULER}\n{code}"
    environment = {**os.environ, "SCRATCH": str(folder), "GENPR_CACHE": str(folder / "cache")}
    done = subprocess.run(
        ["bash", "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def in_this_process(folder, monkeypatch, capsys):
    """Do what was written down instead of run: commands word by word, as the shell expanded them."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GENPR_CACHE", str(folder / "cache"))
    outputs = []
    for line in (folder / "log").read_text().splitlines():
        words = shlex.split(line)
        if words[0] != "weights":  # which are not in reach
            assert run(words) == 0
            outputs.append((words, capsys.readouterr().out))
    return outputs


WRITE_DOWN = 'printf "%q " "$@" >> log; echo >> log'


def values(text):
    return json.loads(text)["metrics"]


def test_the_slurm_recipe_gives_the_score_of_one_run(sides, monkeypatch, capsys):
    monkeypatch.setattr("genpr.images.shards.BLOCK", 4)
    for name in ("embed.sh", "score.sh"):
        (sides / name).write_text(for_test(script(name), sides))
    submit = for_test(script("submit.sh"), sides)
    shell(submit, sides, WRITE_DOWN)
    outputs = in_this_process(sides, monkeypatch, capsys)
    assert [words[0] for words, _ in outputs] == ["features"] * 32 + ["score"]
    shares = [words[words.index("--shard") + 1] for words, _ in outputs[:-1]]
    assert shares == [f"{index}/16" for index in range(1, 17)] * 2
    assert all("--offline" in words for words, _ in outputs[:-1])
    assert run(["score", "real-whole.safetensors", "fake-whole.safetensors", "--json"]) == 0
    assert values(outputs[-1][1]) == values(capsys.readouterr().out)
    assert (sides / "score.json").exists(), "where the score of the page goes"


def one_machine():
    (code,) = re.findall(r"^Four GPUs.*?\n```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return code


def test_the_shell_recipe_gives_the_file_of_one_run(sides, monkeypatch, capsys):
    monkeypatch.setattr("genpr.images.shards.BLOCK", 4)
    code = (
        for_test(one_machine(), sides).replace("rm ", ": ").replace("&\n", "\n")
    )  # in order, as they are written down
    shell(code, sides, WRITE_DOWN)
    in_this_process(sides, monkeypatch, capsys)
    assert (sides / "real.safetensors").read_bytes() == (sides / "real-whole.safetensors").read_bytes()
