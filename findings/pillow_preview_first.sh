#!/usr/bin/env bash
# Pillow 13.0.0: a TIFF whose first page is marked as a reduced preview of the next opens as the preview.
# Seen: pages of 32 x 32 (NewSubfileType 1) and 256 x 256: Image.open gives 32 x 32 with n_frames 2, and nothing
# tells that the frame is a preview. tifffile 2026.3.3 reads the tag as is_reduced.
# Why it matters: scanners and cameras write the preview first. The features are those of thumbnails, which look
# like a blurry generator.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet pillow==13.0.0 tifffile==2026.3.3 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import numpy as np
import tifffile
from PIL import Image

with tifffile.TiffWriter("scan.tif") as writer:
    writer.write(np.full((32, 32, 3), 50, np.uint8), photometric="rgb", subfiletype=1)
    writer.write(np.full((256, 256, 3), 200, np.uint8), photometric="rgb")
image = Image.open("scan.tif")
with tifffile.TiffFile("scan.tif") as file:
    reduced = [page.is_reduced for page in file.pages]
print(image.size, image.n_frames, reduced)
assert reduced == [True, False]
assert image.size == (32, 32) and image.n_frames == 2, "the full image is opened now"
PYTHON
