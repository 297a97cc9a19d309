"""The page of an alignment: text, values, and images that match another prompt better."""

from html import unescape

import pytest
from page_results import elements, text_of
from toy_pair import ToyPair, chosen, drawings, words

from genpr.conditional.align import align_with
from genpr.conditional.options import AlignOptions
from genpr.report.page import data_uri, thumbnail
from genpr.report.score_page import align_report
from genpr.report.score_tables import result_text

N = 120


def made(wrong=0):
    scenes = chosen(N)
    texts = [words(scenes[(row + 1) % N if row < wrong else row]) for row in range(N)]
    images = drawings(scenes)
    return images, align_with(images, texts, AlignOptions(extractor=ToyPair(), device="cpu"))


@pytest.fixture(scope="module")
def some_wrong():
    return made(wrong=5)


def test_failures_are_shown_with_an_image_of_the_prompt_that_they_rank_first(some_wrong):
    images, found = some_wrong
    page = align_report(found, images)
    assert "Images that match another prompt better" in map(text_of, elements(page, "h3"))
    assert len(elements(page, "img")) == 2 * 5
    text = unescape(page)
    assert "5 of 120 images" in text
    worst = found.result.alignment.failures[0]
    assert f"“{worst.prompt}” ({worst.score:.3f}), rank {worst.rank:g} of 100" in text
    assert f"“{worst.winner}” ({worst.winner_score:.3f})" in text
    assert text.count("Images that match another prompt better") == 1, "no table of the same"
    scenes = chosen(N)
    prompts = [words(scenes[(row + 1) % N if row < 5 else row]) for row in range(N)]
    for each in found.result.alignment.failures:
        row = int(each.image[1:-1])
        partner = images[prompts.index(each.winner)]
        both = [data_uri(thumbnail(pixels)) for pixels in (images[row], partner)]
        assert f'<img src="{both[0]}" alt="">\n<img src="{both[1]}" alt="">' in page


def test_perfect_alignment_shows_no_failures():
    images, found = made()
    assert "0 of 120 images do not rank their own prompt first" in unescape(align_report(found, images))
    assert "another prompt" not in result_text(found.result)


def test_provenance_lists_the_options(some_wrong):
    page = " ".join(unescape(align_report(some_wrong[1])).split())
    for fact in ("letters", "<dd>91</dd>", "<dd>119</dd>"):
        assert fact in page
    assert "<dt>ties</dt>" not in page
    assert "<dt>fakes identical to a real</dt>" not in page
