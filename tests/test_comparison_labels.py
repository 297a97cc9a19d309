from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import genpr
from genpr.cli.main import run
from genpr.comparison import compare
from genpr.errors import DataError
from genpr.records import result_of


@pytest.fixture
def real(rng):
    return rng.normal(size=(60, 6)).astype(np.float32)


@pytest.fixture
def scores(real, rng):
    return {
        name: genpr.score(real, scale * rng.normal(size=(60, 6)).astype(np.float32))
        for name, scale in (("wide", 1.5), ("narrow", 0.5))
    }


@pytest.mark.parametrize(
    ("field", "words"), [("variant", "variant of recall"), ("extractor", "extractor of recall")]
)
def test_another_variant_or_extractor_of_one_metric_is_refused_and_named(scores, field, words):
    wide = scores["wide"]
    recall = replace(wide.metrics["recall"], **{field: "special"})
    other = replace(wide, metrics={**wide.metrics, "recall": recall})
    assert other.fingerprint != wide.fingerprint
    with pytest.raises(DataError, match=f"{words} is special in other and unknown in wide"):
        compare({"wide": wide, "other": other})


def test_every_result_is_compared_with_the_first(scores, real):
    third = genpr.score(real, real, k=4)
    with pytest.raises(DataError, match="k of precision is 4 in third and 3 in wide"):
        compare({**scores, "third": third})


def test_results_of_files_with_one_name_are_told_apart(scores, tmp_path, capsys):
    paths = []
    for folder, result in scores.items():
        (tmp_path / folder).mkdir()
        paths.append(tmp_path / folder / "score.json")
        paths[-1].write_text(result.to_json())
    assert run(["compare", *map(str, paths)]) == 0
    head, *_ = capsys.readouterr().out.splitlines()
    for folder in scores:
        assert f"{folder}/score.json" in head


def test_a_result_of_another_schema_is_refused(scores):
    record = scores["wide"].to_dict() | {"schema": 1}
    with pytest.raises(ValueError, match="schema 1 instead of 3"):
        result_of(record)
