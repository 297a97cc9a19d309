"""Labeled Gaussian blobs, and a k-NN classifier by its definition."""

import numpy as np
import torch

UNKNOWN = -1


def blobs(random, counts, d=4, spread=1.5):
    """Features (n, d) float32 and labels (n,) int64 with given counts, sorted by class; centers are always the same."""
    labels = np.repeat(np.arange(len(counts)), counts)
    centers = np.random.default_rng(1).normal(size=(len(counts), d)) * spread
    features = centers[labels] + random.normal(size=(len(labels), d))
    return torch.tensor(features, dtype=torch.float32), torch.tensor(labels)


def predicted_by_definition(queries, points, labels, k, *, own_index=None, mask=None, mask_of_row=None):
    """One query at a time: neighbors are sorted by distance and class; the nearest of equally frequent classes wins."""
    found = []
    for row, query in enumerate(queries.double()):
        sq = (query - points.double()).square().sum(dim=1).tolist()
        neighbors = [
            (sq[i], int(labels[i]))
            for i in range(len(points))
            if (own_index is None or own_index[row] != i)
            and (mask is None or mask[i])
            and (mask_of_row is None or mask_of_row[row, i])
        ]
        votes = [label for _, label in sorted(neighbors)[:k]]
        found.append(max(votes, key=lambda label: (votes.count(label), -votes.index(label)), default=UNKNOWN))
    return torch.tensor(found)
