"""The page in a real browser: nothing fetched, nothing complained of, usable by keyboard, on a phone and in the dark.

Needs Debian's `chromium` (or Google's) and the dev extra; skipped, visibly, without them.
"""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest
from compare_results import a_scored
from page_results import HOSTILE, MAP_COLORS, a_map, a_result, an_asked_result, picture

from genpr.evaluation.compare import compare
from genpr.report.compare_page import compare_report
from genpr.report.gallery import Gallery, Picture
from genpr.report.score_page import html_report
from genpr.report.text import shown

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
        set_map=a_map(),
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

    def __init__(self, browser, address, viewport, scheme, **options):
        self.page = browser.new_context(viewport=viewport, color_scheme=scheme, **options).new_page()
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


def violations(page):
    """What axe finds by WCAG 2.1 AA; it must have checked the contrast.

    The page's policy forbids other scripts, so axe is evaluated by the debugger and not put into the page.
    """
    rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
    found = axe.Axe().run(page, options=rules).response
    assert "color-contrast" in [each["id"] for each in found["passes"]]
    return [each["id"] for each in found["violations"]]


def check_view(view):
    """Nothing is fetched, reported or too wide, every image is drawn, and axe finds nothing."""
    assert len(view.fetched) == 1
    assert view.said == []
    assert view.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert view.page.evaluate("[...document.images].every((image) => image.naturalWidth > 0)")
    assert violations(view.page) == []


@pytest.fixture(scope="module")
def opened(browser, address):
    views = {
        name: Opened(browser, address, viewport, scheme, has_touch=viewport is PHONE)
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
def test_a_score_fetches_nothing_fits_and_passes_axe(opened, name):
    check_view(opened[name])


@pytest.mark.parametrize(("width", "medium"), [(330, "screen"), (840, "screen"), (688, "print")])
def test_a_page_with_long_names_is_never_wider_than_screen_or_paper(browser, tmp_path, width, medium):
    names = ("precision", "recall", "complement_precision", "witnessed_diversity")
    path = tmp_path / "page.html"
    path.write_text(html_report(a_result(dict.fromkeys(names, 0.5), nulls=dict.fromkeys(names, 0.9))))
    view = Opened(browser, path.as_uri(), {"width": width, "height": 900}, "light")
    view.page.emulate_media(media=medium)
    assert view.page.evaluate("document.documentElement.scrollWidth") <= width
    view.page.context.close()


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
    # The event of closing, which takes the focus there, comes a moment later.
    page.wait_for_function("document.activeElement.getAttribute('aria-label')?.includes('=cmd()')")


def test_print_unfolds_everything_in_light_colors(opened):
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


def mark_of(page, number):
    """Where a mark of the map is in the window, by the number that its name ends with."""
    (place,) = (
        place
        for place, point in enumerate(a_map().points)
        if int(re.search(r"\d+$", point.caption).group()) == number
    )
    page.evaluate(
        "document.getElementById('map-field').scrollIntoView({block: 'center', behavior: 'instant'})"
    )
    box = page.locator(f"#map-marks > :nth-child({place + 1})").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def chosen_on_map(page):
    """The number that the caption ends with, and the color in the middle of the picture; None if there is none."""
    caption = page.inner_text("#map-caption")
    number = int(re.search(r"\d+(?= \(no picture\)$|$)", caption).group())
    assert caption.startswith("Real" if number < 8 else "Fake")
    assert shown(HOSTILE[number % 8])[:20] in caption
    color = page.evaluate(
        "(() => { const all = document.getElementById('map-picture');"
        " if (getComputedStyle(all).visibility === 'hidden') return null;"
        " const copy = new OffscreenCanvas(all.width, all.height).getContext('2d', {willReadFrequently: true});"
        " copy.drawImage(all, 0, 0);"
        " return [...copy.getImageData(all.width / 2, all.height / 2, 1, 1).data].slice(0, 3); })()"
    )
    assert ("(no picture)" in caption) == (color is None)
    return number, color


def is_color_of(number, color):
    return np.abs(np.array(color) - MAP_COLORS[number]).max() < 12


def test_pointing_at_a_mark_shows_its_picture_and_name(opened):
    page = opened["light"].page
    assert (
        page.locator("#map-marks title").count() == 0
    )  # the browser would show these, too, over other marks
    for number in (0, 7, 8, 14, 5):
        page.mouse.move(*mark_of(page, number))
        found, color = chosen_on_map(page)
        assert found == number
        assert is_color_of(number, color)
        ring, mark = page.locator("#map-ring").bounding_box(), mark_of(page, number)
        assert (ring["x"] + ring["width"] / 2, ring["y"] + ring["height"] / 2) == pytest.approx(mark, abs=0.6)
    page.mouse.move(*mark_of(page, 15))
    assert chosen_on_map(page) == (15, None)
    x, y = mark_of(page, 0)
    page.mouse.move(x + 40, y - 40)  # nothing is near: the last one stays
    assert chosen_on_map(page) == (15, None)


def test_the_map_is_one_stop_and_is_walked_by_keys(opened):
    page = opened["dark"].page
    assert page.locator("#map :is([tabindex], a, button)").count() == 1
    mark_of(page, 0)  # scrolls there at once; to a focus pages scroll smoothly
    page.evaluate("document.getElementById('map-field').focus({preventScroll: true})")
    top = page.evaluate("window.scrollY")
    # Numbers go from left to right and upwards, four in a row.
    for key, number in [
        ("Home", 0),
        ("ArrowRight", 1),
        ("ArrowRight", 2),
        ("ArrowUp", 6),
        ("ArrowUp", 10),
        ("ArrowLeft", 9),
        ("ArrowDown", 5),
        ("ArrowLeft", 4),
        ("ArrowLeft", 4),
        ("PageDown", 8),
        ("PageDown", 12),
        ("PageDown", 1),
        ("PageUp", 12),
        ("End", 15),
        ("PageDown", 15),
    ]:
        page.keyboard.press(key)
        assert chosen_on_map(page)[0] == number
    page.keyboard.press("Home")
    seen = [chosen_on_map(page)[0]]
    for _ in range(15):
        page.keyboard.press("PageDown")
        seen.append(chosen_on_map(page)[0])
    assert sorted(seen) == list(range(16))
    # The browser moves by some pixels where the caption above takes another line; one arrow key would move by 40.
    assert abs(page.evaluate("window.scrollY") - top) < 30
    page.keyboard.press("Tab")
    assert not page.evaluate("document.getElementById('map').contains(document.activeElement)")


def test_a_tap_near_a_mark_is_enough(opened):
    page, said = opened["phone"].page, list(opened["phone"].said)
    for number in (9, 3):
        x, y = mark_of(page, number)
        page.touchscreen.tap(x + 9, y - 9)
        assert chosen_on_map(page)[0] == number
        assert is_color_of(number, chosen_on_map(page)[1])
    picture_box = page.locator("#map-picture").bounding_box()
    assert picture_box["y"] + picture_box["height"] < PHONE["height"]  # in sight beside what was tapped
    assert opened["phone"].said == said
    assert opened["phone"].fetched == [page.url]


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
    check_view(compared[name])
    verdicts = set(compared[name].page.locator(".verdict").all_inner_texts())
    assert {"higher (better)", "lower (worse)", "not distinguishable"} <= verdicts


@pytest.mark.parametrize(
    ("name", "pictured", "scheme", "viewport"),
    [
        (HOSTILE[0], False, "dark", DESKTOP),
        (HOSTILE[0], True, "light", PHONE),
        (HOSTILE[-1], False, "light", PHONE),
        (HOSTILE[-1], True, "dark", DESKTOP),
    ],
    ids=["markup", "markup beside pictures", "long", "long beside pictures"],
)
def test_labels_and_prompts_fit_and_pass_axe(browser, tmp_path, scheme, viewport, name, pictured):
    path = tmp_path / "asked.html"
    pictures = tuple(Picture(picture(seed=i), name, picture("JPEG"), name) for i in range(3))
    gallery = Gallery("Images that fit another prompt better", "The worst first.", pictures, is_wide=True)
    page = html_report(an_asked_result(name, mixed=True), [gallery] if pictured else [])
    path.write_text(page, encoding="utf-8")
    view = Opened(browser, path.as_uri(), viewport, scheme)
    check_view(view)
    view.page.context.close()


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
