"""The notebooks of the documentation run, and their stored outputs are what the code prints."""

import json
import re
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "quickstart.ipynb"
NUMBER = re.compile(r"-?\d+\.\d+")
# Halves of the reals are drawn by the bits of their features, which are others on other processors.
CONTROL = re.compile(r"\d+\.\d+ \(\d+\.\d+\)$", re.MULTILINE)


def stored_text(cell):
    return "".join("".join(each["text"]) for each in cell["outputs"] if each["output_type"] == "stream")


@pytest.fixture
def _plots(monkeypatch):
    mpl.use("agg")
    monkeypatch.setattr(plt, "show", lambda: None)  # which warns where there is no display
    yield
    plt.close("all")


@pytest.mark.usefixtures("_plots")
def test_quickstart_prints_the_outputs_that_it_stores(capsys):
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    namespace = {}
    for cell in cells:
        code = re.sub(r"^(\s*)%.*$", r"\1pass", "".join(cell["source"]), flags=re.MULTILINE)
        exec(compile(code, NOTEBOOK.name, "exec"), namespace)
        printed = capsys.readouterr().out
        stored = stored_text(cell)
        assert printed.count("\n") == stored.count("\n")
        texts = [CONTROL.sub("", text) for text in (printed, stored)]
        found, expected = (list(map(float, NUMBER.findall(text))) for text in texts)
        assert found == pytest.approx(expected, abs=0.02)  # other processors round features differently
    assert sum(bool(stored_text(cell)) for cell in cells) >= 4
