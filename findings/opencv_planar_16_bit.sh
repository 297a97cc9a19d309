#!/usr/bin/env bash
# OpenCV 5.0.0: an RGB TIFF of 16 bits whose planes are stored one after another is read as if its colors were interleaved.
# Seen: `cv2.imread(path, cv2.IMREAD_UNCHANGED)` returns (h, w, 3) uint16 in which each pixel has three neighboring values of
# the red plane, without an error or a warning. With 8 bits the same picture is read correctly.
# Why it matters: satellite images are often stored in planes (INTERLEAVE=BAND of GDAL). The pictures have the right size and
# range, so a score or a training run on them looks plausible.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet opencv-python-headless==5.0.0.93 tifffile==2026.3.3 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import cv2
import numpy as np
import tifffile

rng = np.random.default_rng(0)
for kind in (np.uint8, np.uint16):
    planes = rng.integers(0, 200, (3, 4, 5)).astype(kind)
    tifffile.imwrite("x.tif", planes, photometric="rgb", planarconfig="separate")
    assert (tifffile.imread("x.tif") == planes).all()
    found = np.moveaxis(cv2.imread("x.tif", cv2.IMREAD_UNCHANGED)[..., ::-1], -1, 0)
    print(kind.__name__, planes[:, 0, 0], found[:, 0, 0])
    assert found.shape == planes.shape
    assert (found == planes).all() == (kind == np.uint8), "planes of 16 bits are read correctly now"
    if kind == np.uint16:
        assert found[:, 0, 0].tolist() == planes[0, 0, :3].tolist()
PYTHON
