"""Pages of sets that nobody planned for: links and devices to write to, reals that are all one, a handful of images."""

from __future__ import annotations

import os
import shutil
import stat

import numpy as np
import pytest
from PIL import Image

import genpr
from genpr.cli.page_options import write_score_page
from genpr.cli.score_run import ScoreRun
from genpr.errors import DataError, UsageError
from genpr.images.policy import DecodePolicy
from genpr.report.pages.album import Album
from genpr.report.pages.evidence_page import evidence_report
from genpr.report.pages.mode_picks import mode_picks
from genpr.report.pages.page_file import write_page
from genpr.report.pages.picks import hub_picks, realism_picks
from genpr.report.pages.score_page import html_report
from genpr.report.plots.page_plots import histogram
from genpr.storage import check_place


def test_a_device_is_no_place_for_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="device or a pipe") as caught:
        check_place(pipe)
    assert caught.value.code == "not-a-file"


def test_what_a_link_points_to_is_replaced_and_the_link_stays(tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "page.html", tmp_path / "latest.html"
    target.write_text("old")
    link.symlink_to(target)
    check_place(link)
    write_page(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) & 0o444
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["page.html"]


def test_a_link_into_a_missing_folder_is_refused(tmp_path):
    link = tmp_path / "latest.html"
    link.symlink_to(tmp_path / "gone" / "page.html")
    with pytest.raises(UsageError, match="does not exist"):
        check_place(link)


def test_large_pictures_do_not_stay_in_memory(tmp_path):
    rng = np.random.default_rng(0)
    for row in range(8):
        Image.fromarray(rng.integers(0, 256, (300, 600, 3), dtype=np.uint8)).save(tmp_path / f"{row}.png")
    evidence = genpr.Evaluator(tmp_path, extractor="gabor", control=False).evidence(tmp_path)
    album = Album.of(evidence, {"real": tmp_path, "fake": None}, DecodePolicy())
    album.read([("real", row) for row in range(8)])
    assert {pixels.shape for pixels in album.pixels.values()} == {(64, 128, 3)}


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """A folder that is gone after it was scored, and what was found out."""
    folder = tmp_path_factory.mktemp("scored")
    rng = np.random.default_rng(0)
    for row in range(12):
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / f"{row:02}.png")
    return folder, genpr.Evaluator(folder, extractor="pixels", control=False).evidence(folder)


def test_a_page_goes_on_without_an_image_that_is_gone(scored, tmp_path):
    folder, evidence = scored
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    (moved / "03.png").unlink()
    page = evidence_report(evidence, moved, moved)
    assert "Enlarge: 02.png" in page
    assert "Enlarge: 03.png" not in page
    assert "could not be read again" in page


def test_labels_by_place_of_a_shorter_array_are_refused():
    images = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)
    evidence = genpr.Evaluator(images, extractor="pixels", control=False, max_images=20).evidence(images)
    with pytest.raises(DataError, match=r"not in .* any more") as caught:
        evidence_report(evidence, images[:15], images, real_labels=[0] * 15, fake_labels=[0] * 30)
    assert caught.value.code == "changed"


@pytest.mark.parametrize("left", ["nothing", "an empty folder"])
def test_a_score_has_its_page_though_the_images_are_gone(scored, tmp_path, capsys, left):
    folder, evidence = scored
    source, page = tmp_path / "source", tmp_path / "page.html"
    if left == "an empty folder":
        source.mkdir()
    run = ScoreRun([evidence.result], evidence=evidence)
    write_score_page(page, run, (str(source), str(folder)), {}, policy=DecodePolicy(10**6), quiet=False)
    assert '<h2 id="numbers-title">' in page.read_text()
    told = capsys.readouterr().err
    assert "the page has no pictures: " in told
    assert f"wrote {page}" in told


@pytest.mark.parametrize(("count", "least", "most"), [(12, 6, 6), (13, 7, 6), (60, 24, 24)])
def test_no_fake_is_among_the_least_and_the_most_realistic(count, least, most):
    real, fake = np.random.default_rng(0).normal(size=(2, 60, 4))
    evidence = genpr.Evaluator(real, control=False, intervals=False).evidence(fake[:count])
    shown = [{pick.image for pick in selection.picks} for selection in realism_picks(evidence)]
    assert [len(each) for each in shown] == [least, most]
    assert not shown[0] & shown[1]


def test_reals_that_are_all_one_are_not_so_many_radii_away():
    same = np.zeros((30, 4))
    evidence = genpr.Evaluator(same, protocol="prdc", control=False).evidence(same)
    captions = [pick.caption for pick in mode_picks(evidence)[0].picks]
    assert captions[0] == "row 0: 0.00 radii away"


def test_fakes_have_one_colour_in_every_figure():
    values = np.arange(9.0)
    alone, beside = (
        histogram(samples, name="x", x_label="x")
        for samples in ([("fakes", values)], [("reals", values), ("fakes", values)])
    )
    assert "var(--control)" in alone
    assert "var(--this)" not in alone
    assert "var(--this)" in beside


WIDE_NAMES = ("precision", "recall", "complement_precision", "witnessed_diversity")


@pytest.mark.parametrize(
    ("width", "medium"), [(330, "screen"), (700, "screen"), (840, "screen"), (960, "screen"), (688, "print")]
)
def test_a_page_is_never_wider_than_the_screen_or_paper(opened, width, medium):
    opened.set_viewport_size({"width": width, "height": 900})
    opened.emulate_media(media=medium)
    assert opened.evaluate("document.documentElement.scrollWidth") <= width


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    chromium = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
    if chromium is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api")
    real, fake = np.random.default_rng(0).normal(size=(2, 200, 4))
    page = tmp_path_factory.mktemp("page") / "page.html"
    page.write_text(html_report(genpr.score(real, fake, metrics=WIDE_NAMES)), encoding="utf-8")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=120_000)
        shown = browser.new_page()
        shown.goto(page.as_uri())
        yield shown
        browser.close()


@pytest.mark.parametrize(
    ("fakes", "limit"), [(12, "vouches for more than 10."), (60, "vouches for more than 10 times as many.")]
)
def test_who_vouches_for_many_is_told_by_the_limit_that_was_used(fakes, limit):
    real, fake = np.random.default_rng(0).normal(size=(2, 90, 4))
    evidence = genpr.Evaluator(real, control=False, intervals=False).evidence(fake[:fakes])
    assert evidence.real.n_fakes.max() <= 10
    assert hub_picks(evidence).sentence.endswith(limit)
