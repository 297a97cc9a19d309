#!/usr/bin/env bash
# numpy 2.4.6: np.load of two .npy files that were joined into one reads the first array and ignores the rest,
# with and without mmap_mode.
# Seen: features of 30 and 60 images joined with `cat` load as (30, 4), without a warning.
# Why it matters: workers that append features of each shard to one file (`np.save(open(path, "ab"), part)`)
# produce such files on purpose; every tool that calls np.load once scores the first shard only.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet numpy==2.4.6
venv/bin/python - <<'PYTHON'
import numpy as np

with open("features.npy", "ab") as file:
    np.save(file, np.zeros((30, 4)))
    np.save(file, np.ones((60, 4)))
found = np.load("features.npy"), np.load("features.npy", mmap_mode="r")
print([array.shape for array in found])
assert [array.shape for array in found] == [(30, 4)] * 2, "the rest of the file is no longer ignored"
PYTHON
