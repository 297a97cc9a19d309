"""Pages in a browser: no requests, no errors, usable by keyboard, on a phone and in dark mode.

Needs Debian's `chromium` (or Google's) and the dev extra; the tests are skipped without them.
"""

import shutil

import pytest
from page_results import HOSTILE, a_conditional_result, a_result, a_scored, picture

from genpr.evaluation.compare import compare
from genpr.report.compare_page import compare_report
from genpr.report.page import Gallery, Picture
from genpr.report.score_page import html_report

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
if CHROMIUM is None:
    pytest.skip("no chromium on this machine: apt-get install chromium", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

DESKTOP, PHONE = {"width": 1200, "height": 900}, {"width": 375, "height": 800}


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=120_000)
        yield browser
        browser.close()


class Opened:
    """An open page with its requests and messages."""

    def __init__(self, browser, address, viewport, scheme, **options):
        self.page = browser.new_context(viewport=viewport, color_scheme=scheme, **options).new_page()
        self.page.set_default_timeout(120_000)
        self.messages, self.requests = [], []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.messages.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)

    @property
    def fetched(self):
        return [url for url in self.requests if not url.startswith("data:")]


def violations(page):
    """Violations of WCAG 2.1 AA that axe finds; asserts that it checked the contrast.

    The page's policy forbids other scripts, so axe is evaluated by the debugger and not put into the page.
    """
    rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
    found = axe.Axe().run(page, options=rules).response
    assert "color-contrast" in [each["id"] for each in found["passes"]]
    return [each["id"] for each in found["violations"]]


def check_view(view, *, has_axe=True):
    """Nothing is fetched, reported or too wide, every image is drawn, and axe finds nothing."""
    assert len(view.fetched) == 1
    assert view.messages == []
    assert view.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert view.page.evaluate("[...document.images].every((image) => image.naturalWidth > 0)")
    assert not has_axe or violations(view.page) == []


def wait_until(page, condition):
    """Poll a condition; waiting of Playwright evaluates text in the page, which its policy may forbid."""
    for _ in range(200):
        if page.evaluate(condition):
            break
        page.wait_for_timeout(20)
    assert page.evaluate(condition)


def two_views(browser, tmp_path_factory, page):
    """Views on a desktop in dark mode, and on a phone."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page, encoding="utf-8")
    views = {
        "dark": Opened(browser, path.as_uri(), DESKTOP, "dark"),
        "phone": Opened(browser, path.as_uri(), PHONE, "light", has_touch=True),
    }
    yield views
    for view in views.values():
        view.page.context.close()


@pytest.fixture(scope="module")
def opened(browser, tmp_path_factory):
    result = a_result(
        {"precision": 1.0, "recall": 0.6, "density": 1.0, "coverage": 0.7},
        codes=["missing-modes", "shrinkage", "small-sample"],
    )
    pictures = tuple(Picture(picture(seed=i), name, picture("JPEG"), name) for i, name in enumerate(HOSTILE))
    page = html_report(result, [Gallery("Off the manifold", "The farthest first.", pictures)])
    yield from two_views(browser, tmp_path_factory, page)


@pytest.mark.parametrize("name", ["dark", "phone"])
def test_page_of_a_score_fetches_nothing_fits_and_passes_axe(opened, name):
    check_view(opened[name])


def test_everything_can_be_used_by_keyboard(opened):
    page = opened["dark"].page
    everything = "[...document.querySelectorAll('a[href], button.enlarge, summary')]"
    count = page.evaluate(f"{everything}.length")
    page.evaluate("document.activeElement.blur()")
    focused = set()
    for _ in range(count + 3):
        page.keyboard.press("Tab")
        focused.add(page.evaluate(f"{everything}.indexOf(document.activeElement)"))
    assert focused - {-1} == set(range(count))

    page.locator("button.enlarge").first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.getElementById('large').open")
    assert page.evaluate("document.querySelectorAll('#large-pictures img').length") == 2
    page.keyboard.press("ArrowRight")
    assert "=cmd()" in page.inner_text("#large-caption")
    page.keyboard.press("Escape")
    assert not page.evaluate("document.getElementById('large').open")
    # The event of closing, which takes the focus there, comes a moment later.
    wait_until(page, "!!document.activeElement.getAttribute('aria-label')?.includes('=cmd()')")


def test_print_unfolds_everything_in_light_colors(opened):
    page, folded = opened["dark"].page, "document.querySelectorAll('details:not([open])').length"
    assert page.evaluate(folded) > 0
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(folded) == 0
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.emulate_media(media="screen")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(folded) > 0


@pytest.fixture(scope="module")
def compared(browser, tmp_path_factory):
    """The page of three results and six metrics, some better, some worse, some not distinguishable."""
    names = ["precision", "recall", "density", "coverage", "clipped_density", "clipped_coverage"]
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
    yield from two_views(browser, tmp_path_factory, compare_report(compare(results)))


@pytest.mark.parametrize("name", ["dark", "phone"])
def test_page_of_a_comparison_fetches_nothing_fits_and_passes_axe(compared, name):
    check_view(compared[name], has_axe=name == "dark")
    verdicts = set(compared[name].page.locator(".verdict").all_inner_texts())
    assert {"higher (better)", "lower (worse)", "not distinguishable"} <= verdicts


@pytest.mark.parametrize("name", [HOSTILE[0], HOSTILE[-1]], ids=["markup with images", "long"])
def test_labels_and_prompts_fit_and_pass_axe(browser, tmp_path, name):
    path, is_long = tmp_path / "conditional.html", len(name) > 100
    pictures = tuple(Picture(picture(seed=i), name, picture("JPEG"), name) for i in range(3))
    gallery = Gallery("Images that match another prompt better", "The worst first.", pictures, is_wide=True)
    page = html_report(a_conditional_result(name, mixed=True), [] if is_long else [gallery])
    path.write_text(page, encoding="utf-8")
    view = Opened(browser, path.as_uri(), DESKTOP if is_long else PHONE, "light")
    check_view(view, has_axe=not is_long)
    view.page.context.close()
