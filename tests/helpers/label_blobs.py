"""Labeled Gaussian blobs, and votes by the definition."""

import numpy as np
import torch

NOBODY = -1


def blobs(random, counts, d=4, spread=1.5):
    """(n, d) float32 and (n,) int64, so many of each class, classes one after the other; centers are always the same."""
    labels = np.repeat(np.arange(len(counts)), counts)
    centers = np.random.default_rng(1).normal(size=(len(counts), d)) * spread
    features = centers[labels] + random.normal(size=(len(labels), d))
    return torch.tensor(features, dtype=torch.float32), torch.tensor(labels)


def elected_by_definition(queries, points, labels, k, *, itself=None, may_vote=None, may_vote_on=None):
    """One query at a time: order by distance, then class; count; the first of equal counts wins."""
    found = []
    for row, query in enumerate(queries.double()):
        sq = (query - points.double()).square().sum(dim=1).tolist()
        voters = [
            (sq[i], int(labels[i]))
            for i in range(len(points))
            if (itself is None or itself[row] != i)
            and (may_vote is None or may_vote[i])
            and (may_vote_on is None or may_vote_on[row, i])
        ]
        votes = [label for _, label in sorted(voters)[:k]]
        found.append(max(votes, key=lambda label: (votes.count(label), -votes.index(label)), default=NOBODY))
    return torch.tensor(found)
