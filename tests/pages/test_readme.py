"""What the README shows is what happens."""

import re
from pathlib import Path

import click
import numpy as np
import pytest
import torch

from genpr.cli.main import cli, run
from genpr.metrics.registry import DEFAULT_METRICS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_python_lines_run(write_images, rng, monkeypatch):
    pixels = rng.integers(0, 256, (2, 20, 8, 8, 3), dtype=np.uint8)
    real = write_images("real", pixels[0])
    write_images("fake", pixels[1])
    monkeypatch.chdir(real.parent)
    (code,) = blocks("python")
    assert code.count('"fake/")') == code.count('Evaluator("real/")') == 1
    code = code.replace('"fake/")', '"fake/", extractor="gabor")')  # the published weights are not in reach
    code = code.replace('Evaluator("real/")', 'Evaluator("real/", extractor="gabor")')
    names = {
        "samples": torch.from_numpy(pixels[1]).permute(0, 3, 1, 2),
        "real_features": rng.normal(size=(30, 4)),
        "fake_features": rng.normal(size=(30, 4)),
    }
    exec(compile(code, "README.md", "exec"), names)
    assert names["inside"].shape == (30,)
    assert 0 <= names["precision"] <= 1
    assert names["result"]["recall"] >= 0


@pytest.mark.parametrize("page", ["README.md", "docs/cli.md"])
def test_the_options_it_names_exist(page):
    context = click.Context(cli)
    commands = (cli.get_command(context, name) for name in cli.list_commands(context))
    options = [each for command in commands for each in command.get_params(context)]
    known = {flag for each in options for flag in (*each.opts, *each.secondary_opts)}
    known |= {"--nproc-per-node"}  # torchrun's
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", (ROOT / page).read_text()))
    assert named - known == set()


def test_the_demo_output_is_real(capsys):
    assert run(["demo", "--device", "cpu"]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    numbers = {row[0]: row[1:] for row in shown if len(row) == 6 and row[1].startswith(("0.", "1."))}
    printed = [line.split() for line in blocks("console")[0].splitlines()]
    in_readme = {row[0]: row[1:] for row in printed if len(row) == 6 and row[1].startswith(("0.", "1."))}
    assert set(numbers) == set(in_readme) == {*DEFAULT_METRICS}
    for name, values in numbers.items():
        for value, expected in zip(values, in_readme[name], strict=True):
            assert abs(float(value) - float(expected)) <= 0.02  # other processors round features differently
