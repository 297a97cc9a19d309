#!/usr/bin/env bash
# rich 15.0.0: importing rich.progress or rich.style draws from the global generator of Python's `random`.
# Seen: random.seed(0), import rich.progress, random.random() gives .385 instead of .844. The first import in a
# process moves the generator, a later one does not.
# Why it matters: a training script that seeds `random` and imports a progress bar lazily (as evaluators do)
# gets other augmentations when the bar is shown than with --quiet.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet rich==15.0.0
venv/bin/python - <<'PYTHON'
import random

random.seed(0)
expected = random.random()
random.seed(0)
import rich.progress

found = random.random()
print(expected, found)
assert found != expected, "the import draws no numbers any more"
PYTHON
