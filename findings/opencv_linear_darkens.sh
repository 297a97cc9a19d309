#!/usr/bin/env bash
# opencv-python-headless 5.0.0.93: cv2.resize with INTER_LINEAR makes 8-bit images darker by an eighth of a gray level.
# Seen: noise of 256 x 256 pixels resized to 224, 299 and 336 pixels is .12 to .13 levels darker than the same resize of
# its float32 copy, with single pixels up to .79 darker; INTER_CUBIC is within .001.
# Why it matters: the bias has one sign, so features of a set that was resized by OpenCV differ from those of another
# library although both are "bilinear"; float input avoids it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet opencv-python-headless==5.0.0.93 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import cv2
import numpy as np

noise = np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8)
for side in (224, 299, 336):
    biases = {}
    for name in ("INTER_LINEAR", "INTER_CUBIC"):
        method = getattr(cv2, name)
        exact = np.clip(cv2.resize(noise.astype(np.float32), (side, side), interpolation=method), 0, 255)
        biases[name] = float((cv2.resize(noise, (side, side), interpolation=method) - exact).mean())
    print(side, {name: round(bias, 4) for name, bias in biases.items()})
    assert abs(biases["INTER_CUBIC"]) < 0.01
    assert -0.2 < biases["INTER_LINEAR"] < -0.08, "INTER_LINEAR rounds to nearest now"
PYTHON
