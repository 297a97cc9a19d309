#!/usr/bin/env bash
# safetensors 0.8.0: safetensors.numpy.save and save_file write the values of a transposed or column-major array in the
# order of its memory, with the shape of the array.
# Seen: np.arange(12).reshape(3, 4).T comes back as [[0, 1, 2], [3, 4, 5], ...] instead of [[0, 4, 8], [1, 5, 9], ...],
# without an error. np.save keeps the values, and safetensors.torch refuses such tensors.
# Why it matters: features are often transposed (the components of a decomposition, columns of a data frame, results
# of Fortran routines). Shape, type, mean and histogram of the file are right, and every image has the features of others.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet safetensors==0.8.0 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import numpy as np
from safetensors.numpy import load, load_file, save, save_file

rows = np.arange(12, dtype=np.float32).reshape(3, 4)
for name, array in (("transposed", rows.T), ("column-major", np.asfortranarray(rows))):
    save_file({"features": array}, "features.safetensors")
    for loaded in (load(save({"features": array})), load_file("features.safetensors")):
        found = loaded["features"]
        print(name, found.tolist())
        assert found.shape == array.shape and sorted(found.flat) == sorted(array.flat)
        assert np.array_equal(found.ravel(), array.ravel(order="K")), "values are in another order now"
        assert not np.array_equal(found, array), "values are kept now"
PYTHON
