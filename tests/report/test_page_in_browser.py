"""The page in a real browser: nothing fetched, nothing complained of, usable by keyboard, on a phone and in the dark.

Needs Debian's `chromium` (or Google's) and the dev extra; skipped, visibly, without them.
"""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from compare_results import a_scored
from page_results import HOSTILE, a_result, picture

from genpr.comparison import compare
from genpr.report.compare_page import compare_report
from genpr.report.gallery import Gallery, Picture
from genpr.report.page import html_report

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
if CHROMIUM is None:
    pytest.skip("no chromium on this machine: apt-get install chromium", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

DESKTOP, PHONE = {"width": 1200, "height": 900}, {"width": 375, "height": 800}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    rng = np.random.default_rng(0)
    result = a_result(
        {"precision": 1.0, "recall": 0.6, "density": 1.0, "coverage": 0.7},
        codes=["missing-kinds", "shrinkage", "small-sample"],
    )
    pictures = tuple(Picture(picture(seed=i), name, picture("JPEG"), name) for i, name in enumerate(HOSTILE))
    page = html_report(
        result,
        [Gallery("Off the manifold", "The farthest first.", pictures)],
        earlier={HOSTILE[0]: a_result(n=500)},
        realism=rng.gamma(20, 0.05, 50),
        real_radii=rng.gamma(9, 1, 50),
    )
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=120_000)
        yield browser
        browser.close()


class Opened:
    """A page with everything that it asked for and said."""

    def __init__(self, browser, address, viewport, scheme):
        self.page = browser.new_context(viewport=viewport, color_scheme=scheme).new_page()
        self.page.set_default_timeout(120_000)
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)

    @property
    def fetched(self):
        return [url for url in self.asked if not url.startswith("data:")]


@pytest.fixture(scope="module")
def opened(browser, address):
    views = {
        name: Opened(browser, address, viewport, scheme)
        for name, viewport, scheme in (
            ("light", DESKTOP, "light"),
            ("dark", DESKTOP, "dark"),
            ("phone", PHONE, "light"),
        )
    }
    yield views
    for view in views.values():
        view.page.context.close()


@pytest.mark.parametrize("name", ["light", "dark", "phone"])
def test_nothing_is_fetched_complained_of_or_too_wide(opened, address, name):
    view = opened[name]
    assert view.fetched == [address]
    assert view.said == []
    assert view.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert view.page.evaluate("[...document.images].every((image) => image.naturalWidth > 0)")


@pytest.mark.parametrize("name", ["light", "dark", "phone"])
def test_axe_finds_nothing_by_wcag_aa(opened, name):
    page = opened[name].page
    rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
    # The policy forbids strange scripts, so axe is evaluated by the debugger and not put into the page.
    found = axe.Axe().run(page, options=rules).response
    assert [each["id"] for each in found["violations"]] == []
    assert "color-contrast" in [each["id"] for each in found["passes"]]


def test_light_and_dark_differ(opened):
    backgrounds = {
        name: opened[name].page.evaluate("getComputedStyle(document.body).backgroundColor")
        for name in ("light", "dark")
    }
    assert backgrounds == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}


def test_everything_is_reached_and_worked_by_keyboard(opened):
    page = opened["dark"].page
    wanted = page.evaluate("document.querySelectorAll('a[href], button.enlarge, summary').length")
    reached = set()
    page.evaluate("document.activeElement.blur()")
    for _ in range(wanted + 3):
        page.keyboard.press("Tab")
        mark = page.evaluate(
            "(() => { const all = [...document.querySelectorAll('a[href], button.enlarge, summary')];"
            " return all.indexOf(document.activeElement); })()"
        )
        reached.add(mark)
    assert reached - {-1} == set(range(wanted))

    first = page.locator("button.enlarge").first
    first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.getElementById('large').open")
    assert page.evaluate("document.querySelectorAll('#large-pictures img').length") == 2
    page.keyboard.press("ArrowRight")
    assert "=cmd()" in page.inner_text("#large-caption")
    page.keyboard.press("Escape")
    assert not page.evaluate("document.getElementById('large').open")
    assert "=cmd()" in page.evaluate("document.activeElement.getAttribute('aria-label')")


def test_print_unfolds_everything_in_light_colours(opened):
    page = opened["dark"].page
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") > 0
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") == 0
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.emulate_media(media="screen")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") > 0


def test_strange_scripts_would_be_stopped(opened):
    """The policy is at work, were escaping ever to fail."""
    page = opened["phone"].page
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.harm = 1'}))"
    )
    assert page.evaluate("window.harm") is None


@pytest.fixture(scope="module")
def compared(browser, tmp_path_factory):
    """The page of three results and six metrics, some better, some worse, some not told apart, with pictures."""
    names = ["precision", "recall", "density", "coverage", "clipped_density", "f8"]
    labels = [*HOSTILE[:2], HOSTILE[-1]]
    levels = [(0.5, 0.5), (0.4, 0.5), (0.6, 0.6)]
    results = {
        label: a_scored(
            {name: pair[place % 2] for place, name in enumerate(names)},
            seed=seed,
            nulls=dict.fromkeys(names, 0.9),
            codes=["shrinkage"],
        )
        for seed, (label, pair) in enumerate(zip(labels, levels, strict=True))
    }
    rows = tuple(Picture(picture(seed=i), labels[i % 3], group=HOSTILE[i // 3]) for i in range(6))
    path = tmp_path_factory.mktemp("page") / "compare.html"
    path.write_text(
        compare_report(compare(results), [Gallery("Side by side", "Rows.", rows)]), encoding="utf-8"
    )
    views = {
        name: Opened(browser, path.as_uri(), viewport, scheme)
        for name, viewport, scheme in (("dark", DESKTOP, "dark"), ("phone", PHONE, "light"))
    }
    yield views
    for view in views.values():
        view.page.context.close()


@pytest.mark.parametrize("name", ["dark", "phone"])
def test_a_comparison_fetches_nothing_fits_and_passes_axe(compared, name):
    view = compared[name]
    assert len(view.fetched) == 1
    assert view.said == []
    verdicts = set(view.page.locator(".verdict").all_inner_texts())
    assert {"higher (better)", "lower (worse)", "not distinguishable"} <= verdicts
    assert view.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert view.page.evaluate("[...document.images].every((image) => image.naturalWidth > 0)")
    rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
    found = axe.Axe().run(view.page, options=rules).response
    assert [each["id"] for each in found["violations"]] == []
    assert "color-contrast" in [each["id"] for each in found["passes"]]


def test_a_comparison_is_worked_by_keyboard(compared):
    page = compared["dark"].page
    page.locator(".wide").focus()
    page.keyboard.press("ArrowRight")
    for _ in range(50):
        if page.evaluate("document.querySelector('.wide').scrollLeft") > 0:
            break
        page.wait_for_timeout(20)
    assert page.evaluate("document.querySelector('.wide').scrollLeft") > 0
    page.locator("button.enlarge").first.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")
    assert "=cmd()" in page.inner_text("#large-caption")
    page.keyboard.press("Escape")


def test_a_comparison_fits_its_paper(compared):
    page = compared["dark"].page
    page.set_viewport_size({"width": 688, "height": 1000})  # A4 without its margins
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate(
        "[...document.querySelectorAll('.results td')].every((cell) => cell.scrollWidth <= cell.clientWidth + 1)"
    )
    page.emulate_media(media="screen")
