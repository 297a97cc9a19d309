#!/usr/bin/env bash
# pandas 3.1.1 with pyarrow 26.0.1 installed: read_json(lines=True) raises UnicodeEncodeError for a line that
# Python's json module wrote and reads back.
# Seen: a file name with the byte 0xff becomes the escape of a lone surrogate in JSON (ASCII only); json.loads
# returns the same name, pandas.read_json fails for the whole file. Without pyarrow, whose strings pandas then
# does not use, it works.
# Why it matters: logs of scores per image or checkpoint are JSON lines, and one file name that is not UTF-8
# makes every later analysis of the log fail.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet pandas==3.1.1 pyarrow==26.0.1
venv/bin/python - <<'PYTHON'
import json
import os

import pandas

name = os.fsdecode(b"sample-\xff.png")
with open("log.jsonl", "w") as file:
    file.write(json.dumps({"name": "a.png", "realism": 1.2}) + "\n")
    file.write(json.dumps({"name": name, "realism": 0.9}) + "\n")
assert [json.loads(line)["name"] for line in open("log.jsonl")] == ["a.png", name]
try:
    pandas.read_json("log.jsonl", lines=True)
except UnicodeEncodeError as error:
    print(type(error).__name__, error)
else:
    raise SystemExit("such a log can be read now")
PYTHON
