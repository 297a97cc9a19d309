"""The page of a score: whole, self-contained, true to the result, and deaf to hostile names."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from html import unescape

import html5lib
import numpy as np
import pytest
from page_results import HOSTILE, a_result, a_side, picture

from genpr.errors import UsageError
from genpr.evaluation.result import result_of
from genpr.notices import Notice
from genpr.report.pages.gallery import Gallery, Picture, within
from genpr.report.pages.page_file import write_page
from genpr.report.pages.score_page import Figure, html_report
from genpr.report.plots.page_plots import histogram_range
from genpr.report.safe_text import shown
from genpr.storage import check_place


def parsed(page):
    """The document; anything that the HTML standard calls an error is one."""
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)


def texts(page):
    return " ".join("".join(parsed(page).itertext()).split())


def elements(page, name):
    return [
        each
        for each in parsed(page).iter()
        if isinstance(each.tag, str) and each.tag.rsplit("}", 1)[-1] == name
    ]


@pytest.fixture(scope="module")
def full():
    """With everything that a page may hold."""
    rng = np.random.default_rng(0)
    result = a_result(
        {"precision": 1.0, "recall": 0.6, "density": 1.0, "coverage": 0.7},
        codes=["missing-kinds", "small-sample"],
    )
    gallery = Gallery(
        "Off the manifold",
        "The farthest first.",
        tuple(Picture(picture(), name, picture("JPEG"), "near.png") for name in HOSTILE),
    )
    grouped = Gallery(
        "Missed",
        "By kind.",
        (Picture(picture(), "a", group="ships"), Picture(picture(), "b", group="cats")),
        more=7,
    )
    earlier = {"old.json": a_result({"precision": 0.8, "recall": 0.8}), HOSTILE[0]: a_result(n=500)}
    return html_report(
        result,
        [gallery, grouped],
        earlier=earlier,
        realism=[*rng.gamma(20, 0.05, 50), np.inf],
        real_radii=rng.gamma(9, 1, 50),
        fake_radii=rng.gamma(9, 1, 40),
    )


def test_the_page_is_valid_html_with_ids_of_its_own(full):
    ids = [each.get("id") for each in parsed(full).iter() if isinstance(each.tag, str) and each.get("id")]
    assert len(ids) == len(set(ids))
    for each in parsed(full).iter():
        if isinstance(each.tag, str) and (target := each.get("aria-labelledby")):
            assert target in ids
    used = set(re.findall(r"url\(#([^)]+)\)", full)) | set(re.findall(r'href="#([^"]+)"', full))
    assert used <= set(ids)


def test_the_page_needs_nothing_else(full):
    addresses = re.findall(r"(?:src|href|action|data)=\"([^\"]*)\"", full)
    assert all(each.startswith(("data:", "#")) for each in addresses)
    assert "@import" not in full
    assert not re.search(r"url\((?!#)", full)


def test_hostile_names_do_no_harm(full):
    assert len(elements(full, "script")) == 1
    assert not [
        each
        for each in parsed(full).iter()
        if isinstance(each.tag, str) and any(name.startswith("on") for name in each.attrib)
    ]
    assert not set(full) & {"\x1b", "\x07", "\u202e"}
    assert HOSTILE[0] in unescape(full)  # still to be read
    assert "x" * 500 not in full
    full.encode()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_sources_messages_and_results_do_no_harm(name):
    result = a_result(
        real=a_side(name),
        fake=replace(a_side(name), skipped=((name, "truncated"),)),
        notices=(Notice("x", "warning", name, name),),
    )
    gallery = Gallery(name, name, (Picture(picture(), name, picture(), name, group=name),))
    page = html_report(result, [gallery], earlier={name: result})
    assert len(elements(page, "script")) == 1
    assert len(elements(page, "img")) == 2
    page.encode()


def test_only_the_pages_own_script_may_run(full):
    (script,) = elements(full, "script")
    (policy,) = [each.get("content") for each in elements(full, "meta") if each.get("http-equiv")]
    import hashlib

    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_the_table_holds_every_number():
    result = a_result()
    text = texts(html_report(result))
    for name, metric in result.metrics.items():
        assert name in text
        assert f"{metric.value:.4f}" in text
        assert f"{metric.interval[0]:.3f} to {metric.interval[1]:.3f}" in text
    assert text.count("0.880 (null 0.870)") == 4


def test_warnings_come_with_what_to_do():
    text = texts(html_report(a_result(codes=["missing-kinds"])))
    assert "kinds of images that make up 20.0% of the reals" in text
    assert "What to do: check which classes or modes the generator leaves out" in text


def test_the_result_can_be_taken_back_out_of_the_page(full):
    (record,) = re.findall(r"data:application/json;base64,([A-Za-z0-9+/=]+)", full)
    back = result_of(json.loads(base64.b64decode(record)))
    assert back["recall"] == pytest.approx(0.54)
    assert "The generator draws convincing images but misses about two fifths" in texts(html_report(back))


def test_the_same_result_gives_the_same_page():
    assert html_report(a_result()) == html_report(a_result())


def test_earlier_results_are_numbered_and_what_differs_is_said(full):
    text = texts(full)
    assert "1 old.json: precision 0.720, recall 0.720" in text
    assert "2 <script>alert(1)</script>.png: precision 0.900" in text
    assert "not made alike: 500 real images" in text
    assert re.search(r">\s*2\s*</text>", full)


def test_what_is_not_given_is_not_drawn():
    plain = html_report(a_result({"coverage": 1.0}))
    assert "<h3>" not in plain
    assert 'id="galleries"' not in plain
    assert "<dialog" not in plain
    parsed(plain)


def test_histograms_say_what_they_leave_out(full):
    text = texts(full)
    assert "1 equal a real image and have no finite realism" in text
    assert "of the fakes have a realism of 1 or more" in text
    assert histogram_range([np.arange(1001.0)], None) == (5.0, 995.0)
    assert histogram_range([np.array([0.2, 0.3])], 1.0)[1] == 1.0
    low, high = histogram_range([np.ones(5)], None)
    assert low < 1 < high


@pytest.mark.parametrize("bad", [[[1.0]], [], [np.nan, 1.0], ["a"]])
def test_arrays_that_are_no_row_of_numbers_are_refused(bad):
    with pytest.raises(UsageError, match="realism needs one number per image"):
        html_report(a_result(), realism=bad)


def test_radii_are_finite_and_of_the_reals_first():
    with pytest.raises(UsageError, match="real_radii needs finite"):
        html_report(a_result(), real_radii=[1.0, np.inf])
    with pytest.raises(UsageError, match="real_radii, which are missing"):
        html_report(a_result(), fake_radii=[1.0])


def test_a_picture_is_a_file_and_not_pixels():
    with pytest.raises(UsageError, match="JPEG or PNG") as caught:
        Picture(b"<svg onload=alert(1)>", "x")
    assert caught.value.code == "not-a-picture"
    with pytest.raises(UsageError):
        Picture(picture(), "x", partner=b"GIF89a")


def test_a_page_stays_below_its_limit_and_says_what_is_missing():
    gallery = Gallery("Many", "All alike.", tuple(Picture(picture(seed=i), str(i)) for i in range(200)))
    limit = len(html_report(a_result())) + 60_000
    page = html_report(
        a_result(), [gallery, Gallery("Few", "One.", (Picture(picture(), "only one"),))], most_bytes=limit
    )
    images = len(elements(page, "img"))
    assert 10 < images < 201
    assert len(page.encode()) <= limit
    assert f"{201 - images} more are not shown" in texts(page)
    assert "only one" in page


def test_pictures_are_left_out_of_the_longest_galleries_first():
    many, few = (
        Gallery(name, "", tuple(Picture(picture(), "x") for _ in range(n)))
        for name, n in (("many", 50), ("few", 3))
    )
    size = many.pictures[0].size
    kept = within([many, few], 10 * size)
    assert [len(each.pictures) for each in kept] == [7, 3]
    assert [each.more for each in kept] == [43, 0]
    assert within([many, few], 53 * size) == [many, few]


def test_more_figures_enter_as_they_are():
    page = html_report(
        a_result(),
        figures=[
            Figure("Classes <b>", "A map.", '<svg viewBox="0 0 1 1" role="img" aria-label="map"></svg>')
        ],
    )
    assert "Classes &lt;b&gt;" in page
    assert 'aria-label="map"></svg>' in page


def test_text_is_shown_and_not_obeyed():
    assert shown("a\x1bb\udc80") == "a\\x1bb\\udc80"
    assert shown("é, 日本") == "é, 日本"
    assert len(shown("x" * 4000)) == 401


def test_a_page_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "page.html"
    write_page(path, "first é")
    with pytest.raises(UnicodeEncodeError):
        write_page(path, "\udc80")
    assert path.read_text(encoding="utf-8") == "first é"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("place", "code"), [("", "is-a-folder"), ("no/page.html", "path-not-found")])
def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path, place, code):
    with pytest.raises(UsageError) as caught:
        check_place(tmp_path / place)
    assert caught.value.code == code
