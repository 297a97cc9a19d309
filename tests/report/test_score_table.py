"""Output of `genpr score`: one line per metric, and paragraphs, in 80 columns."""

import builtins
import re

import numpy as np
import pytest
from rich.cells import cell_len

import genpr
from genpr.cli.main import run
from genpr.report.score_tables import label_lines, score_table
from genpr.report.text import Table, cut, interval, percent, plus_minus, wrapped

INTERVAL = re.compile(r"\d\.\d+ (?:to|-) \d\.\d+")


def rows_of(text, names):
    """The line of each metric, which is one, with its whole name."""
    table = text.split("\n\n")[0].splitlines()
    found = {name: [line for line in table if line.split()[:1] == [name]] for name in names}
    assert {name: len(lines) for name, lines in found.items()} == dict.fromkeys(names, 1)
    return {name: lines[0] for name, lines in found.items()}


@pytest.fixture(scope="module")
def result():
    rng = np.random.default_rng(0)
    return genpr.score(rng.normal(size=(61, 4)), 1.2 * rng.normal(size=(50, 4)), metrics="all")


def test_all_metrics_fit_80_columns(result):
    text = score_table(result)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "…" not in text
    for name, row in rows_of(text, result.metrics).items():
        metric = result.metrics[name]
        assert row.split()[1] == f"{metric.value:.{4 if abs(metric.value) < 10 else 2}f}"
        assert bool(INTERVAL.search(row)) == (metric.interval is not None), row
        assert (row.split()[2] == "-") == (metric.interval is None)


def test_columns_match_their_headings(result):
    text = score_table(result)
    rows = rows_of(text, result.metrics)
    precision = result.metrics["precision"]
    low, high = precision.interval
    assert f"{low:.3f}"[:5] in rows["precision"]
    assert f"{high:.3f}"[:5] in rows["precision"]
    assert f"{precision.null:.4f}" in rows["precision"].split()
    assert f"{precision.relative:.0%}" in rows["precision"].split()
    assert "3" in rows["precision"].split()
    control = f"{result.control.values['precision']:.3f} ({result.control.nulls['precision']:.3f})"
    assert rows["precision"].rstrip().endswith(control)
    assert "%" not in rows["fd"], "its null is of other sizes"
    assert rows["fd"].split()[-4:-1] == ["-"] * 3
    assert "31 of the reals against the other 30" in text
    assert re.search("^real +61 ", text, re.MULTILINE)
    assert re.search("^fake +50 ", text, re.MULTILINE)
    assert "value of a perfect generator" in text


def test_threshold_on_an_undefined_metric_is_missed(rng, tmp_path, capsys):
    """Otherwise the worst fakes, which are in no ball, would pass."""
    real, far = str(tmp_path / "real.npy"), str(tmp_path / "far.npy")
    np.save(real, rng.normal(size=(50, 3)))
    np.save(far, 100 + np.zeros((50, 3)) + np.arange(50)[:, None])
    arguments = ["score", real, far, "-q", "--metrics", "precision,rarity"]
    assert run([*arguments, "--fail-under", "precision=0"]) == 0
    assert run([*arguments, "--fail-under", "rarity=1"]) == 5
    assert "missed: rarity" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["文" * 200, "a" + "文" * 200, "文 " * 100, "a文" * 100, "e\u0301" * 200], ids=range(5)
)
def test_width_is_counted_in_terminal_columns(name):
    lines = wrapped(name).splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert max(map(cell_len, lines)) >= 39
    assert "".join(line.strip() for line in lines).replace(" ", "") == name.replace(" ", "")


@pytest.mark.parametrize("name", ["文" * 30, "n" * 31, "文n" * 20, "a\nb" * 20, "e\u0301" * 31], ids=range(5))
@pytest.mark.parametrize("width", [6, 7, 30], ids=str)
def test_truncated_name_fits_and_keeps_both_ends(name, width):
    found = cut(name, width)
    assert cell_len(found) <= width
    assert found[0] == name[0]
    assert "…" in found
    assert found.isprintable()


def test_numbers_are_whole_and_names_are_shortened():
    rows = [["n" * 200, "0.1234 ±0.0123"], ["\x1b[31m", "1"]]
    lines = str(Table("", ["name", "value"], rows)).splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert sum("0.1234 ±0.0123" in line for line in lines) == 1
    assert lines[2].startswith("n" * 20 + "…")
    assert "\\x1b[31m" in lines[-1]


def test_numbers_that_do_not_fit_are_in_a_second_part_with_the_rows_that_have_some():
    heads = ["name", *(f"number {index}" for index in range(9))]
    rows = [["all", *["0.5"] * 9], ["first", *["0.5"] * 5, *["-"] * 4], ["none", *["-"] * 9]]
    parts = [part.splitlines() for part in str(Table("", heads, rows)).split("\n\n")]
    assert [name for lines in parts for name in lines[0].split()[2::2]] == list("012345678")
    assert [[line.split()[0] for line in lines[2:]] for lines in parts] == [["all", "first", "none"], ["all"]]


def test_columns_without_values_are_left_out():
    found = Table.of("", [{"name": "a", "x": "-", "y": "-"}, {"name": "b", "x": "-", "y": "1"}])
    assert (found.heads, found.rows) == (["name", "y"], [["a", "-"], ["b", "1"]])


def test_tables_are_text_in_a_notebook(monkeypatch):
    class ZMQInteractiveShell: ...  # what Jupyter runs, by whose name rich knows it

    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    assert str(Table("", ["name", "value"], [["precision", "0.5"]])).splitlines()[-1].split() == [
        "precision",
        "0.5",
    ]


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((0.00129, 0.00179), "0.0013 - 0.0018"),
        ((-0.0004, 0.0009), "-4.0e-04 - 9.0e-04"),
        ((0.0, 0.0047), "0.000 - 0.005"),
        ((0.0, 0.00004), "0.0000 - 4.0e-05"),
        ((0.0, 0.0), "0.000 - 0.000"),
        ((0.0091, 0.0123), "0.009 - 0.012"),
    ],
)
def test_interval_of_a_small_value_keeps_two_digits(ends: tuple[float, float], text: str) -> None:
    assert interval(ends) == text


def test_numbers_agree_with_their_nouns():
    lines = label_lines({}, {"real": 2000, "fake": 1})
    assert [line.split(" without")[0] for line in lines] == ["2,000 real images", "1 fake image"]


def test_percents_are_round_only_where_they_are_exact_and_half_the_width_is_shown():
    shown = {0: "0 %", 0.004: "less than 1 %", 0.31: "31 %", 0.996: "more than 99 %", 1: "100 %"}
    assert {share: percent(share) for share in shown} == shown
    assert plus_minus(0.5, (0.4, 0.8)) == "0.50 ±0.20"
