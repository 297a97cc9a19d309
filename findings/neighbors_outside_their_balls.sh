#!/usr/bin/env bash
# scipy 1.17.1 and scikit-learn 1.9.1: the k-th neighbor that a tree returns lies outside the ball of the radius that
# it returns with it.
# Seen: 2,000 normal points in 16 dimensions, k = 3. query() gives the distance to the third neighbor, and a query of
# all points within this distance misses that neighbor for 21 to 23 % of the points: cKDTree, KDTree and BallTree compare
# squared distances with the square of a rounded root. NearestNeighbors with algorithm="brute" does the same.
# Why it matters: this is how precision, recall, density and coverage are written with these packages. Balls
# that should be closed are open for a random part of the points: the density of a set with itself is 1.26 instead of 4/3.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet scipy==1.17.1 scikit-learn==1.9.1 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import numpy as np
import scipy.spatial
import sklearn.neighbors

points = np.random.default_rng(0).normal(size=(2000, 16))


def counts_within(tree, count):
    radii = tree.query(points, k=4)[0][:, 3]
    return count(tree, radii)


found = {"cKDTree": counts_within(
    scipy.spatial.cKDTree(points), lambda tree, radii: tree.query_ball_point(points, radii, return_length=True)
)}
for kind in (sklearn.neighbors.KDTree, sklearn.neighbors.BallTree):
    found[kind.__name__] = counts_within(
        kind(points), lambda tree, radii: tree.query_radius(points, radii, count_only=True)
    )
search = sklearn.neighbors.NearestNeighbors(n_neighbors=3, algorithm="brute").fit(points)
radii = search.kneighbors()[0][:, -1]
found["brute"] = np.array([
    len(search.radius_neighbors(points[row : row + 1], radius=radii[row], return_distance=False)[0])
    for row in range(500)
])
for name, counts in found.items():
    print(f"{name}: {(counts < 4).mean():.0%} of the balls lack their third neighbor; density {counts.mean() / 3:.4f}")
    assert (counts < 4).mean() > 0.1, f"{name} finds the third neighbor within its distance now"
PYTHON
