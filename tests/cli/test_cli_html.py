"""`genpr score --html`."""

from __future__ import annotations

GABOR = ("--extractor", "gabor", "--device", "cpu", "--no-intervals", "--no-control")


def test_a_page_is_written_beside_the_table_and_shows_earlier_results(genpr, folders, tmp_path):
    old, page = tmp_path / "old.json", tmp_path / "page.html"
    old.write_text(genpr("score", *folders, *GABOR, "--json")[1])
    code, out, err = genpr("score", *folders, *GABOR, "--html", page, "--earlier", old)
    assert code == 0
    assert out.startswith("metric")
    assert f"wrote {page}" in err
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "old.json" in text


def test_what_cannot_be_written_is_refused_before_scoring(genpr, tmp_path):
    missing = (tmp_path / "no-real", tmp_path / "no-fake", "--extractor", "gabor")
    code, _, err = genpr("score", *missing, "--html", tmp_path / "nowhere" / "page.html")
    assert code == 2
    assert "does not exist" in err
    assert "nowhere" in err
    assert genpr("score", *missing, "--html", tmp_path)[0] == 2


def test_one_page_is_of_one_score(genpr, folders, tmp_path):
    code, _, err = genpr(
        "score",
        *folders,
        *GABOR,
        "--protocol",
        "genpr",
        "--protocol",
        "prdc",
        "--html",
        tmp_path / "page.html",
    )
    assert (code, "--html shows one score" in err) == (2, True)
    code, _, err = genpr("score", *folders, *GABOR, "--earlier", tmp_path / "old.json")
    assert (code, "--html FILE, which is missing" in err) == (2, True)
    assert (
        genpr("score", *folders, *GABOR, "--html", tmp_path / "p.html", "--earlier", tmp_path / "old.json")[0]
        == 2
    )
