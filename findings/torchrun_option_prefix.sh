#!/usr/bin/env bash
# torch 2.14.1: torchrun takes options behind `-m MODULE` for its own if they are a prefix of one of its
# options.
# Seen: `torchrun --nproc-per-node 1 -m MODULE --n 60` ends with "ambiguous option: --n could match --nnodes,
# --nproc-per-node"; `--n=60` too. A `--` before the arguments of the module, `-m MODULE -- --n 60`, prevents
# it.
# Why it matters: samplers and evaluators name their number of images --n; the same command works without
# torchrun.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet torch==2.14.1 numpy==2.4.6
venv/bin/python - <<'PYTHON'
import subprocess
import sys
from pathlib import Path

Path("own_module.py").write_text("import sys\nprint('arguments', sys.argv[1:])\n")
launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", "-m", "own_module"]
for arguments in (["--n", "60"], ["--n=60"]):
    done = subprocess.run([*launch, *arguments], capture_output=True, text=True)
    print(done.returncode, done.stderr.strip().splitlines()[-1][:120])
    assert done.returncode == 2 and "ambiguous option" in done.stderr, "the module gets its own options now"
done = subprocess.run([*launch, "--images", "60"], capture_output=True, text=True)
assert "arguments ['--images', '60']" in done.stdout, done.stderr
PYTHON
