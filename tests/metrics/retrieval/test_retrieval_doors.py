"""Whatever comes, the doors of the retrieval family answer with a number or an error of genpr's."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
import torch

import genpr
from genpr.metrics.copy_detection import copy_detection
from genpr.metrics.ranking import distractor_pools
from genpr.metrics.retrieval import relevancy
from genpr.metrics.text_matching import match_texts

ODD = [
    None, True, 0, -1, 2.5, math.nan, math.inf, 10**30, "a", "", b"x", [], (), {}, set(), {1: 2}, [[1]], [["a"], ["b"]], [[], 1],
    [None], [math.nan], [{}], [object()], object(), range(3), np.array(5), np.array([]), np.array(["a"]), np.zeros((2, 0)),
    np.array([[None]], dtype=object), torch.tensor(3), torch.zeros(0), torch.eye(2), (np.eye(2), [1]), [np.array([0])], [[1], []],
]  # fmt: skip
DOORS = {
    genpr.retrieval_metrics: (([[1], [2]], [[1], [3]]), {"k", "relevance", "gain", "pool", "groups", "seed"}),
    genpr.ranking_metrics: (
        (np.eye(3), [0, 1, 2]),
        {"ks", "relevance", "gain", "pools", "ties", "similarity", "groups", "seed", "block_bytes", "device"},
    ),
    match_texts: ((["a"], ["b"]), {"rule", "measure", "threshold"}),
    relevancy: (([[0.5], [1]],), {"how", "threshold", "scale", "groups", "seed"}),
    copy_detection: (
        (np.eye(2), np.eye(2)),
        {"threshold", "true_pairs", "null_rows", "most_pairs", "seed", "block_bytes"},
    ),
    distractor_pools: (([0, 1], 4), {"distractors", "seed"}),
}


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_odd_arguments(door):
    data, options = DOORS[door]
    least = {"ks": [1]} if door is genpr.ranking_metrics else {"distractors": 2} if len(options) == 2 else {}
    assert door(*data, **least) is not None
    refused = 0
    for odd in ODD:
        for at in range(len(data)):
            with contextlib.suppress(genpr.GenprError):
                door(*data[:at], odd, *data[at + 1 :], **least)
        for option in sorted(options):
            try:
                door(*data, **(least | {option: odd}))
            except genpr.GenprError as error:
                refused += len(str(error)) < 400
    assert refused > len(ODD)


@pytest.mark.parametrize("retrieved", [{"a", "b"}, frozenset("ab")], ids=["set", "frozenset"])
def test_retrieved_sets_have_no_order(retrieved):
    for expected, given in ((["a"], retrieved), ([["a"]], [retrieved])):
        with pytest.raises(genpr.UsageError, match="no order"):
            genpr.retrieval_metrics(expected, given)
    assert genpr.retrieval_metrics({"a"}, ["a"])["mrr"].value == 1  # what is expected needs none
