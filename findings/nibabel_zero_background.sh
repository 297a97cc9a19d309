#!/usr/bin/env bash
# nibabel 5.4.2: float volumes that are saved with the header of an integer scan are scaled to its integers, by a slope and an
# intercept of each volume, so that 0 is not 0 any more.
# Seen: `Nifti1Image(values, affine, scan.header)` with a header of int16 and values whose background is exactly 0. After saving
# and loading, the background is 0.0006, and with a header of uint8 it is 0.13 and only 43 of 49 different values are left. The background
# is another number in each volume. There is no warning. With `header.set_data_dtype(np.float32)` values are kept.
# Why it matters: generators save samples with the header of a real scan. Masks by `volume > 0` then select everything, real
# backgrounds are exactly 0 and fake ones are not, and with uint8 fakes have at most 256 values whose step depends on the volume.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet nibabel==5.4.2 numpy==2.4.6
venv/bin/python -W error - <<'PYTHON'
import nibabel
import numpy as np

backgrounds = []
for seed in range(2):
    for kind in (np.float32, np.int16, np.uint8):
        values = np.random.default_rng(seed).normal(100, 300, (4, 4, 4)).astype(np.float32)
        values[0] = 0
        header = nibabel.Nifti1Header()
        header.set_data_dtype(kind)
        nibabel.save(nibabel.Nifti1Image(values, np.eye(4), header), "x.nii")
        found = nibabel.load("x.nii").get_fdata()
        (background,) = np.unique(found[0])
        print(kind.__name__, background, len(np.unique(found)))
        if kind == np.float32:
            assert (found == values).all()
        else:
            assert background != 0, "0 stays 0 now"
            backgrounds.append(background)
assert len({*backgrounds}) == 4
PYTHON
