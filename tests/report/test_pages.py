"""Pages of every kind: valid, self-contained, limited in size, and safe with hostile names."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from functools import cache
from html import unescape

import pytest
from page_results import (
    HOSTILE,
    a_conditional_result,
    a_result,
    a_scored,
    a_side,
    elements,
    parsed,
    picture,
    section,
    text_of,
)
from rich.cells import cell_len

import genpr
from genpr.errors import UsageError
from genpr.evaluation.compare import compare, load_results
from genpr.evaluation.panel import PanelResult
from genpr.evaluation.result import result_of
from genpr.notices import Notice
from genpr.report.compare_page import compare_report, panel_report
from genpr.report.page import Gallery, Picture
from genpr.report.score_page import html_report, metric_rows
from genpr.report.score_tables import class_table, detail_tables, result_text


@cache
def full_score():
    """The page of a score with every section."""
    values = {"precision": 1.0, "recall": 0.6, "density": 1.0, "coverage": 0.7}
    result = a_result(
        values,
        codes=["missing-modes", "small-sample"],
        real=a_side(HOSTILE[0]),
        fake=replace(a_side(HOSTILE[5]), skipped=((HOSTILE[0], "truncated"),)),
    )
    result = replace(result, notices=(*result.notices, Notice("x", "warning", HOSTILE[0], HOSTILE[2])))
    named = tuple(Picture(picture(), name, picture("JPEG"), "near.png", name) for name in HOSTILE)
    grouped = (Picture(picture(), "a", group="ships"), Picture(picture(), "b", group="cats"))
    return html_report(
        result, [Gallery(HOSTILE[0], HOSTILE[5], named), Gallery("Missed", "By mode.", grouped, more=7)]
    )


@cache
def full_comparison():
    """Twelve results, eight of them of hostile names, with warnings."""
    names = [*HOSTILE, *(f"step-{step:05d}.json" for step in range(400, 2000, 400))]
    results = {
        name: a_scored(
            {"precision": 0.5 + 0.04 * index, "recall": 0.8},
            seed=index,
            real=a_side(HOSTILE[0]),
            fake=a_side(name),
            notices=(Notice("x", "warning", name, name), *[Notice("y", "note", "all have this")] * 2),
        )
        for index, name in enumerate(names)
    }
    return compare_report(compare(results))


PAGES = {
    "score": full_score,
    "comparison": full_comparison,
    "labels": lambda: html_report(a_conditional_result(HOSTILE[0])),
    "labels with images": lambda: html_report(a_conditional_result(HOSTILE[7], mixed=True)),
    "panel": lambda: panel_report(PanelResult({name: a_result(codes=["shrinkage"]) for name in HOSTILE}, {})),
    "bare": lambda: html_report(a_result({"coverage": 1.0}, arm=None, control=False)),
}


@pytest.fixture(scope="module", params=PAGES)
def page(request):
    return PAGES[request.param]()


def test_the_page_is_valid_html_whose_references_exist(page):
    nodes = [each for each in parsed(page).iter() if isinstance(each.tag, str)]
    ids = [each.get("id") for each in nodes if each.get("id")]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r"url\(#([^)]+)\)", page)) | set(re.findall(r'href="#([^"]+)"', page))
    for attribute in ("aria-labelledby", "aria-describedby"):
        used |= {each.get(attribute) for each in nodes if each.get(attribute)}
    assert used <= set(ids)


def test_page_is_self_contained(page):
    addresses = re.findall(r"(?:src|href|action|data)=\"([^\"]*)\"", page)
    assert all(each.startswith(("data:", "#")) for each in addresses)
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_hostile_names_are_escaped(page):
    nodes = [each for each in parsed(page).iter() if isinstance(each.tag, str)]
    assert not [each for each in nodes if any(name.startswith("on") for name in each.attrib)]
    assert not set(page) & {"\x1b", "\x07", "\u202e"}
    assert "x" * 1001 not in page
    page.encode()


def test_only_the_script_of_the_page_may_run(page):
    (script,) = elements(page, "script")
    (policy,) = [each.get("content") for each in elements(page, "meta") if each.get("http-equiv")]
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_result_can_be_extracted_from_the_page(tmp_path):
    score, comparison = full_score(), full_comparison()
    (record,) = re.findall(r"data:application/json;base64,([A-Za-z0-9+/=]+)", score)
    assert result_of(json.loads(base64.b64decode(record)))["recall"] == pytest.approx(0.54)
    (record,) = re.findall(r'href="data:application/json;base64,([^"]+)"', comparison)
    path = tmp_path / "saved.json"
    path.write_bytes(base64.b64decode(record))
    found = load_results(path)
    assert list(found)[: len(HOSTILE)] == list(HOSTILE)
    assert found[HOSTILE[1]].metrics["recall"].replicates is not None
    assert compare(found).metrics == ("precision", "recall")


@pytest.mark.parametrize("files", [(b"<svg onload=alert(1)>", None), (picture(), b"GIF89a")])
def test_images_are_embedded_as_encoded_files(files):
    with pytest.raises(UsageError) as caught:
        html_report(a_result(), [Gallery("x", "x", (Picture(files[0], "x", partner=files[1]),))])
    assert caught.value.code == "not-a-picture"


def test_details_are_sorted_worst_first():
    tables = {table.title: table for table in detail_tables(a_conditional_result(), on_page=True)}
    assert len(tables) == 5
    assert tables["Classes, worst first"].rows[0][:4] == ["cat", "100", "5", "0.67"]
    misranked = tables["Images that match another prompt better"]
    assert (len(misranked.rows), misranked.rows[0][1]) == (12, "99.5")
    assert "and 28 more (all in --json)" in misranked.lines
    assert detail_tables(a_result()) == []


def test_worst_of_many_classes_are_shown(rng):
    labels = [*(f"class {number % 7}" for number in range(84)), "rare"]
    real, fake = rng.normal(size=(2, 85, 3))
    known = {"real_labels": labels, "fake_labels": labels, "min_per_class": 12}
    scores = genpr.Evaluator(real, control=False, intervals=False).score_classes(fake, **known)
    names, table = [each.label for each in scores.classes], class_table(scores, 4)
    averages = ["macro average", "micro average", "perfect (macro)"]
    assert [row[0] for row in table.rows] == [*names[:4], *averages]
    weights = "its fakes for calibrated_precision, density; its reals for calibrated_recall, coverage"
    assert table.lines[0].startswith("and 3 more")
    assert weights in table.lines[2]
    assert any(line.endswith("(needed: 12): rare (1 reals, 1 fakes)") for line in table.lines)
    assert table.lines[-1] == "real labels: real_labels; fake labels: fake_labels"


@pytest.mark.parametrize("name", [*HOSTILE[:-1], "猫" * 100], ids=range(len(HOSTILE)))
def test_text_of_hostile_names_fits_80_columns(name):
    text = result_text(a_conditional_result(name, mixed=True))
    assert text.replace("\n", "").isprintable()
    assert max(map(cell_len, text.splitlines())) <= 80


def test_page_shows_all_given_images_and_counts_the_others():
    many = tuple(Picture(picture(seed=i), str(i)) for i in range(20))
    made = html_report(
        a_result(), [Gallery("Many", "Similar.", many, more=1200), Gallery("Few", "One.", many[:1])]
    )
    assert len([each for each in elements(made, "img") if each.get("id") is None]) == 21
    assert section(made, "galleries").count("more are not shown") == 1


def test_metrics_of_other_families_have_a_separate_table():
    heads = [text_of(each) for each in elements(html_report(a_conditional_result(mixed=True)), "th")]
    places = [heads.index(each) for each in ("metric", "labels, prompts, entities", "class, worst first")]
    assert places == sorted(places)
    result = a_conditional_result()
    rows = {row["name"]: row for row in metric_rows(result, result.metrics)}
    ranked, test = rows["retrieval.r_precision"], rows["label.gan_test"]
    assert (ranked["pool"], ranked["chance"], ranked["null"]) == ("100", "0.0100", "–")
    assert (test["null"], test["line"][3]) == ("0.9000", 0.9)
    assert rows["entity.failure_rate"]["better"] == "lower"
    assert rows["alignment.clip_score"]["line"] is None
    beyond = html_report(a_result({"density": 3.0}))
    assert '<circle cx="120.0"' in beyond
    assert '<line class="null" x1="100.0"' in beyond
    assert "1,000 images, 1,000 prompts" in unescape(html_report(result))


def test_backticks_of_notices_become_code_elements():
    found = a_result(codes=["missing-modes"])
    hostile = Notice("x", "warning", "`<b>&` and one ` alone", "use `a` or `b`")
    page = html_report(replace(found, notices=(*found.notices, hostile)))
    codes = [text_of(each) for each in elements(page, "code")]
    assert {"genpr modes", "<b>&", "a", "b"} <= set(codes)
    assert section(page, "warnings").count("`") == 1
    assert section(page, "summary").endswith("2 warnings.")
