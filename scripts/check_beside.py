#!/usr/bin/env python3
"""Resolve genpr together with each of other packages, and print which of them pip installs in an older release than without genpr.

`python scripts/check_beside.py [PACKAGE...]` installs nothing. It prints the requirements that conflict, and exits with 1 if a
package is older. One package takes pip about a minute, some of them several.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

GENPR = str(Path(__file__).parents[1])
PACKAGES = (
    *("gradio", "streamlit", "diffusers", "fiftyone", "lightning", "wandb"),
    *("mlflow", "transformers", "datasets", "accelerate", "moviepy"),
)


def canonical(name: str) -> str:
    """The name of a package as PyPI writes it."""
    return re.sub("[-_.]+", "-", name).lower()


def resolve(*requirements: str) -> tuple[dict[str, str], str]:
    """Versions that pip would install into an empty environment, by name, and what pip prints."""
    with tempfile.NamedTemporaryFile() as report:
        options = ["--dry-run", "--ignore-installed", "--progress-bar=off", f"--report={report.name}"]
        command = [sys.executable, "-m", "pip", "install", *options, *requirements]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = json.load(report)["install"] if done.returncode == 0 else []
    versions = {canonical(each["metadata"]["name"]): each["metadata"]["version"] for each in found}
    return versions, done.stdout + done.stderr


def conflict(messages: str) -> str:
    """The requirements that pip names as the cause of a conflict."""
    causes = re.findall(r"^    (.* (?:depends on|requires) .*)$", messages, re.MULTILINE)
    return "; ".join(dict.fromkeys(causes)) or messages.strip().splitlines()[-1]


def main() -> int:
    """Print one line per package."""
    is_older = False
    for name in map(canonical, sys.argv[1:] or PACKAGES):
        alone, messages = resolve(name)
        beside = resolve(GENPR, name)[0] if alone else {}
        line = f"newest {name} {beside.get(name)}, pillow {beside.get('pillow')}"
        if not alone or beside.get(name) != alone[name]:
            is_older = True
            messages = resolve(GENPR, f"{name}=={alone[name]}")[1] if alone else messages
            line = f"older  {name} {beside.get(name)} instead of {alone.get(name)}: {conflict(messages)}"
        print(line, flush=True)
    return int(is_older)


if __name__ == "__main__":
    sys.exit(main())
