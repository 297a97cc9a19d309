"""The numbers in docs/differences.md are those that other packages and genpr give on its inputs."""

import re
import tomllib
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from differences import ROWS

from genpr.metrics.kernel import cmmd

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "differences.md").read_text()
LINES = {
    cells[0].strip("`* "): [cells[4], cells[5]]
    for line in re.findall(r"^\| (`.*) \|$", PAGE, re.MULTILINE)
    if len(cells := line.split(" | ")) == 7
}
"""The texts of both numbers by row."""


def rounds_to(text):
    """A number that has the text when it is rounded to as many digits."""
    digits = len(text.partition(".")[2])
    return pytest.approx(float(text), abs=0.501 * 10.0**-digits, nan_ok=True)


def test_page_has_every_row():
    assert list(LINES) == list(ROWS)


def test_stars_mark_rows_whose_packages_the_development_extra_installs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = project["dependencies"] + project["optional-dependencies"]["dev"]
    installed = {re.match(r"[\w-]+", line)[0].lower() for line in lines}
    expected = {
        name
        for name, row in ROWS.items()
        if {each.partition("==")[0] for each in row.requirements} <= installed
    }
    assert set(re.findall(r"^\| `([\w-]+)` \* \|", PAGE, re.MULTILINE)) == expected


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ROWS)
def test_both_numbers_are_those_of_the_page(name):
    row = ROWS[name]
    if missing := row.missing():
        pytest.skip(f"needs {' '.join(missing)}")
    assert row.compute() == tuple(map(rounds_to, LINES[name]))


def test_authors_expression_of_cmmd_in_float32_has_multiples_of_a_step():
    step = 1000 * 2.0**-23
    for seed in range(4):
        random = torch.Generator().manual_seed(seed)
        real, fake = (F.normalize(torch.randn(200, 64, generator=random) + 1) for _ in range(2))
        kernels = (
            torch.exp(-((a[:, None] - b) ** 2).sum(dim=2) / 200)
            for a, b in ((real, real), (fake, fake), (real, fake))
        )
        within_real, within_fake, between = (kernel.mean() for kernel in kernels)
        theirs, ours = float(1000 * (within_real + within_fake - 2 * between)), cmmd(real, fake)
        assert theirs / step == pytest.approx(round(theirs / step), abs=1e-3)
        assert abs(ours / step - round(ours / step)) > 1e-3
        assert ours == pytest.approx(theirs, abs=4 * step)
