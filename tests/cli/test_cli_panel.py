"""`genpr score` with several extractors."""

import json


def test_several_extractors_give_a_panel(genpr, folders, tmp_path):
    real, fake = folders
    page = tmp_path / "panel.html"
    how = ("--extractor", "pixels", "--extractor", "gabor", "--device", "cpu")
    code, out, err = genpr("score", real, fake, *how, "--html", page)
    lines = out.splitlines()
    assert code == 0, err
    assert "note [not-comparable]: gabor: values from gabor features" in err
    assert err.count("[small-sample]") == 1
    assert lines[1].split()[:3] == ["representation", "precision", "recall"]
    assert [line.split()[0] for line in lines[3::3][:2]] == ["pixels", "gabor"]
    assert page.read_text().startswith("<!doctype html>")
    code, out, _ = genpr("score", real, fake, *how, "--json", "--held-out", real, "--fail-over", "fd=-1")
    panel = json.loads(out)
    assert code == 5
    assert list(panel["results"]) == ["pixels", "gabor"] == list(panel["held_out"])
    alone = json.loads(genpr("score", real, fake, *how[:2], *how[4:], "--metrics", "recall,fd", "--json")[1])
    assert alone["metrics"]["fd"] == panel["results"]["pixels"]["metrics"]["fd"]


def test_options_that_need_one_extractor_are_errors_with_several(genpr, folders):
    both = ("--extractor", "pixels", "--extractor", "gabor")
    for more in (
        "--csv a.csv",
        "--per-class",
        "--labels",
        "--protocol prdc --protocol genpr",
        " ".join(both),
    ):
        code, _, err = genpr("score", *folders, *both, *more.split())
        assert code == 2, more
        assert err.startswith("error: ")
