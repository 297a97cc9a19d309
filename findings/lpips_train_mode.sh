#!/usr/bin/env bash
# lpips 0.1.4: LPIPS as a part of a module in training mode returns random distances.
# Seen: two calls on the same pair of images differ by a few percent, and no call returns the distance, after `train()` of a module
# that holds an LPIPS; after `eval()` both return it. The linear layers of the metric begin with dropout, which is
# active in training mode. Its constructor sets evaluation mode, which the `train()` of the whole overrides. The
# LPIPS of torchmetrics 1.9.0 and piq 0.8.0 return the same value in both modes.
# Why it matters: a metric kept as an attribute of a model or a Lightning module is in training mode whenever the model is, so that
# values logged during training scatter, and identical seeds give other values after a change of the order of calls.
# The backbone has random weights here, since only the mode matters; the linear layers are the published ones in the package.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet lpips==0.1.4 torch==2.14.1 torchvision==0.29.1 numpy==2.4.6
venv/bin/python -W ignore - <<'PYTHON'
import lpips
import torch

torch.manual_seed(0)
model = torch.nn.Module()
model.metric = lpips.LPIPS(net="alex", pnet_rand=True, verbose=False)
first, second = torch.rand(2, 1, 3, 64, 64) * 2 - 1


def distances():
    with torch.no_grad():
        return [float(model.metric(first, second)) for _ in range(2)]


exact = distances()
model.train()
in_training = distances()
model.eval()
print(exact, in_training, distances())
assert exact[0] == exact[1] == distances()[0]
assert in_training[0] != in_training[1], "the metric stays in evaluation mode now"
assert min(abs(each / exact[0] - 1) for each in in_training) > 0.002
PYTHON
