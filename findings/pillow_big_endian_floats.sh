#!/usr/bin/env bash
# Pillow 13.0.0: compressed TIFFs of big-endian float32 are read with the bytes of each value in the wrong order.
# Seen: values of 0 to 1 become numbers such as -6.9e26, in mode F and without a warning. The same values without
# compression, or little-endian with it, are read correctly, and so are all of them by tifffile 2026.3.3 and OpenCV 5.0.0.
# Why it matters: elevation, temperature and dose maps are float TIFFs, and ImageJ and GDAL write big-endian ones. Some values
# become NaN, most become huge finite numbers, which are white or black after scaling.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet pillow==13.0.0 tifffile==2026.3.3 numpy==2.4.6 opencv-python-headless==5.0.0.93
venv/bin/python - <<'PYTHON'
import cv2
import numpy as np
import tifffile
from PIL import Image

values = np.random.default_rng(0).random((8, 8)).astype(np.float32)
for order in "<>":
    for compression in (None, "zlib"):
        tifffile.imwrite("x.tif", values, byteorder=order, compression=compression, photometric="minisblack")
        assert (tifffile.imread("x.tif") == values).all()
        assert (cv2.imread("x.tif", cv2.IMREAD_UNCHANGED) == values).all()
        found = np.asarray(Image.open("x.tif"))
        print(order, compression, found[0, :2])
        is_wrong = order == ">" and compression is not None
        assert (found == values).all() != is_wrong, "compressed big-endian floats are read correctly now"
        if is_wrong:
            assert np.array_equal(found.view(np.uint32), values.view(np.uint32).byteswap())
PYTHON
