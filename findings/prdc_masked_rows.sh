#!/usr/bin/env bash
# prdc 0.2 with numpy 2.4.6: compute_prdc ignores the mask of a masked array.
# Seen: 150 of 300 fake rows are masked, and their data is far from everything. The result is that of all 300
# rows (precision .43 instead of .85), without a warning.
# Why it matters: masks are a usual way to leave out failed images; here the placeholder values are scored.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet prdc==0.2 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import numpy as np
from prdc import compute_prdc

rng = np.random.default_rng(0)
real, fake = rng.normal(size=(2, 300, 16)).astype(np.float32)
masked = np.ma.masked_array(fake.copy())
masked[:150] = np.ma.masked
masked.data[:150] = 1000
plain = compute_prdc(real, masked.data, nearest_k=5)
unmasked = compute_prdc(real, fake[150:], nearest_k=5)
found = compute_prdc(real, masked, nearest_k=5)
print(found["precision"], unmasked["precision"])
assert found == plain, "the mask has an effect now"
assert unmasked["precision"] > 0.8 > 0.5 > found["precision"]
PYTHON
