#!/usr/bin/env bash
# pillow-jxl-plugin 1.3.8 (with Pillow 13.0.0): an animated JPEG XL opens as its last frame, and says that it is a single
# image. Pillow shows the first frame of GIF, WebP, APNG and AVIF and counts their frames.
# Seen: a file of two frames, levels 10 and then 200, by cjxl 0.7, opens with level 200, n_frames 1 and is_animated False.
# Why it matters: an evaluator takes the first frame of animations, and reports that there are more. Here the same
# animation as GIF and as JPEG XL gives another image, and a count of frames finds nothing to report.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet pillow==13.0.0 pillow-jxl-plugin==1.3.8
venv/bin/python - <<'PYTHON'
import io

import pillow_jxl  # registers the plugin
from PIL import Image

frames = [Image.new("RGB", (8, 8), (level,) * 3) for level in (10, 200)]
file = io.BytesIO()
frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
jxl = bytes.fromhex(
    "ff0a41040308282e09080208000050004b188b1542a9d00b44009000000000000000000008020400"
    "54004b188b15c249415e20028090000000000000000000"
)
seen = []
for data in (file.getvalue(), jxl):
    image = Image.open(io.BytesIO(data))
    seen.append((image.n_frames, image.is_animated, image.convert("RGB").getpixel((0, 0))[0]))
print(dict(zip(("GIF", "JPEG XL"), seen)))
assert seen == [(2, True, 10), (1, False, 200)], "JPEG XL no longer opens as its last frame"
PYTHON
