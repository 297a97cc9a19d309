"""Output shown below a command equals the output of the command, up to rounding of features on other processors."""

import io
import re
from contextlib import chdir, redirect_stdout
from functools import cache
from pathlib import Path

import pytest

from genpr.cli.main import run

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN = [
    (path.stem, command, output)
    for path in PAGES
    for block in re.findall(r"^```console\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)
    for command, output in re.findall(r"^\$ genpr (.+)\n((?:(?!\$ ).*\n)+)", block, re.MULTILINE)
    if not command.startswith("doctor")  # it describes the machine
]
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?!\w)")
# Halves of the reals are drawn by the bits of their features, which are others on other processors.
CONTROL = re.compile(r"\d+\.\d+ \(\d+\.\d+\)$")


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What a command prints in a folder with the sets of the demo; a command of several pages runs once."""
    folder = tmp_path_factory.mktemp("demo")

    @cache
    def of(command):
        with chdir(folder), redirect_stdout(io.StringIO()) as out:
            assert run([*command.split(), "--device", "cpu"]) == 0
        return out.getvalue()

    outputs = {"demo": of("demo --out genpr-demo")}
    for each in (folder / "genpr-demo").iterdir():
        (folder / each.name).symlink_to(each)
    return lambda command: outputs.get(command) or of(command)


def lines_of(text):
    """Words and numbers of the lines with letters."""
    lines = [" ".join(line.split()) for line in text.splitlines() if re.search(r"[a-z]", line)]
    lines = [CONTROL.sub("(control)", line) for line in lines]
    return [(NUMBER.sub("#", line), [float(number) for number in NUMBER.findall(line)]) for line in lines]


@pytest.mark.parametrize(
    ("page", "command", "output"),
    [
        pytest.param(*each, marks=[] if each[1].startswith(("demo", "score")) else pytest.mark.slow)
        for each in SHOWN
    ],
    ids=[f"{page}-{command.split()[0]}" for page, command, _ in SHOWN],
)
def test_shown_output_equals_the_output_of_the_command(page, command, output, printed):
    found = lines_of(printed(command))
    for words, numbers in lines_of(output):
        if words == "Write the images to folders: genpr demo --out genpr-demo":
            continue  # printed without --out only
        candidates = [each for name, each in found if name == words]
        assert candidates, f"{page}: not printed: {words}"
        assert any(numbers == pytest.approx(each, abs=0.02, rel=0.02) for each in candidates), (
            words,
            numbers,
        )


def test_commands_with_output_are_found():
    assert {command.split()[0] for _, command, _ in SHOWN} >= {"demo", "score", "rank", "modes"}
