"""Pages and sentences of results that were compared with labels, prompts and entities."""

from dataclasses import replace
from html import unescape

import html5lib
import pytest
from page_results import HOSTILE, a_result, an_asked_result

from genpr.evaluation.compare import compare
from genpr.metrics.value import MetricValue
from genpr.report.pages.asked_parts import asked_rows, fault_tables
from genpr.report.pages.compare_page import compare_report
from genpr.report.pages.score_page import html_report
from genpr.report.reading import read
from genpr.report.text.terminal import score_table


def parsed(page):
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)


def texts(page, tag):
    return [" ".join("".join(each.itertext()).split()) for each in parsed(page).iter(tag)]


def test_families_stand_in_a_table_of_their_own():
    page = html_report(an_asked_result(mixed=True))
    heads = texts(page, "th")
    assert heads.index("metric") < heads.index("asked for") < heads.index("class")
    rows = {row.name: row for row in asked_rows(an_asked_result())}
    assert rows["retrieval.r_precision"].pool == "100"
    assert rows["retrieval.r_precision"].chance == "0.0100"
    assert rows["label.gan_test"].null == "0.9000"
    assert rows["label.gan_test"].strip.null == 75.0  # .9 of 1.2
    assert rows["entity.failure_rate"].better == "less"
    assert rows["alignment.clip_score"].strip is None


def test_a_page_without_reals_speaks_of_prompts():
    page = unescape(html_report(an_asked_result()))
    assert "1,000 images, 1,000 prompts" in page
    assert "metric" not in texts(page, "th")
    assert "Prompts" in texts(page, "summary")


def test_who_is_at_fault_is_named_the_worst_first():
    tables = {table.title: table for table in fault_tables(an_asked_result())}
    assert list(tables) == [
        "Classes, worst first",
        "Most frequent confusions",
        "Images that fit another prompt better",
        "Entities, worst first",
        "Answers that cannot be read",
    ]
    assert tables["Classes, worst first"].rows[0][:5] == ("cat", "100", "10", "5", "66.7 %")
    misranked = tables["Images that fit another prompt better"]
    assert len(misranked.rows) == 12
    assert misranked.more == 28
    assert misranked.rows[0][2] == "99.5"
    assert fault_tables(a_result()) == []


def test_the_sentence_is_of_what_was_asked_where_that_is_all():
    reading = read(an_asked_result())
    assert reading.sentence == (
        "A classifier of the reals takes 70 % of the fakes for what they were asked to be, and 90 % of reals; worst: cat (10 %)."
    )
    assert reading.grounds[0] == (
        "40 % of the images rank their own prompt first among 100, where guessing would 1 %."
    )
    assert "1 of 100 answers cannot be read, and are in no score." in reading.grounds


def test_praise_is_taken_back_where_labels_are_wrong():
    mixed = an_asked_result(mixed=True)
    found = read(mixed)
    assert "of the variety. But a classifier of the reals takes 70 % of the fakes for" in found.sentence
    assert not [each for each in found.grounds if "classifier" in each]
    right = replace(mixed.metrics["label.gan_test"], value=0.89, interval=(0.88, 0.9))
    found = read(replace(mixed, metrics={**mixed.metrics, "label.gan_test": right}))
    assert "But" not in found.sentence
    assert found.grounds[-4].startswith("A classifier of the reals takes the fakes for what they were asked")


@pytest.mark.parametrize(
    ("interval", "words"),
    [((0.005, 0.03), "no better than guessing"), ((0.02, 0.05), "where guessing would")],
    ids=["chance", "better"],
)
def test_chance_is_called_chance(interval, words):
    metric = MetricValue(0.02, None, interval=interval, chance=0.01, pool=100)
    result = replace(an_asked_result(), metrics={"retrieval.r_precision": metric})
    assert words in read(result).sentence


@pytest.mark.parametrize(
    ("interval", "words"),
    [((0.84, 0.87), "takes 85 %"), ((0.84, 0.90), "as often as it does reals")],
    ids=["worse", "as good"],
)
def test_labels_are_held_against_reals(interval, words):
    metric = MetricValue(0.85, 5, interval=interval, null=0.9)
    assert words in read(replace(an_asked_result(), metrics={"label.gan_test": metric})).sentence


def test_a_class_that_is_hard_for_the_classifier_is_not_blamed():
    made = an_asked_result()
    hard = replace(made.labels.rows[0], null_recall=0.11)
    result = replace(made, labels=replace(made.labels, rows=(hard, *made.labels.rows[1:])))
    assert "worst" not in read(result).sentence
    fallen = replace(made, labels=replace(made.labels, rows=(replace(hard, null_recall=0.8),)))
    assert "worst: cat (10 %)" in read(fallen).sentence


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("mixed", [False, True], ids=["alone", "mixed"])
def test_hostile_names_do_no_harm_here_either(name, mixed):
    result = an_asked_result(name, mixed=mixed)
    page = html_report(result)
    document = parsed(page)
    assert len(list(document.iter("script"))) == 1
    assert not [each for each in document.iter() if any(str(key).startswith("on") for key in each.attrib)]
    assert not set(page) & {"\x1b", "\x07", "\u202e"}
    assert "x" * 500 not in page
    table = score_table(result)
    assert all(len(line) <= 80 for line in table.splitlines())


def test_a_comparison_says_what_guessing_scores():
    first = an_asked_result()
    lower = {name: replace(metric, value=metric.value / 2) for name, metric in first.metrics.items()}
    page = compare_report(compare({"first": first, "second": replace(first, metrics=lower)}))
    row = next(each for each in parsed(page).iter("tr") if each.findtext("th") == "guessing")
    assert [cell.text for cell in row.iter("td")] == ["0.1000", "0.0100", "–", "–", "–", "–"]
    assert "reals against reals" not in texts(page, "th")
    assert "1,000 prompts of" in unescape(page)
