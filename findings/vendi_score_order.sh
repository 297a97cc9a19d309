#!/usr/bin/env bash
# vendi-score 0.0.3: score_X(X, q=2) ignores q and returns the score of order 1.
# Seen: 100 rows of 16 normal numbers have score_X 14.98 with q = 1, 2 and 0.5, but score_dual 14.98, 14.10 and
# 15.47. score_X computes score_K(K, q=1).
# Why it matters: embedding_vendi_score and users call score_X when there are fewer images than features, and
# score_dual otherwise. Scores of order 2 then jump between two orders with the number of images.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet vendi-score==0.0.3 scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import warnings

import numpy as np
from vendi_score import vendi

warnings.simplefilter("ignore")  # of an old name in scipy
features = np.random.default_rng(0).normal(size=(100, 16))
by_order = {q: (vendi.score_X(features, q=q), vendi.score_dual(features, q=q)) for q in (1, 2, 0.5)}
print(by_order)
assert abs(by_order[1][0] - by_order[1][1]) < 1e-9
assert by_order[1][1] - by_order[2][1] > 0.5
assert by_order[1][0] == by_order[2][0] == by_order[0.5][0], "score_X uses q now"
PYTHON
