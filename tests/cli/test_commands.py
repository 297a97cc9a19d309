"""Behavior of all commands: each mistake gives one line of error with a known code, and writes nothing."""

import json
import pkgutil
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_colors
import toy_pair
from blob_checkpoints import real_blobs, write_checkpoint, write_generator
from PIL import Image
from toy_colors import COLORS, painted, write_expected
from toy_pair import chosen, drawings, words

from genpr.errors import ResourceError
from genpr.features.feature_set import FeatureSet, save_features

ALIASES = {
    "GABOR": "--extractor gabor --device cpu",
    "LOAD": "--generator gan.py:load --image-range=-1,1",
    "BY": f"--classifier {toy_colors.__file__}:",
    "TOY": f"--prompts prompts.csv --extractor {toy_pair.__file__}:load",
    "NOW": "--once --settle 0",
}

# A command line, its exit code, and the code of its error.
MISTAKES = """
scor real fake                                                              2 usage
score real                                                                  2 usage
score real fake half                                                        2 usage
score real fake --extracter gabor                                           2 usage
score real fake GABOR --fail-under precision                                2 usage
score real fake GABOR --fail-under presicion=0.5                            2 usage
score real fake GABOR --prepare crop:8                                      2 usage
score real fake GABOR --html nowhere/page.html                              2 path-not-found
score real fake GABOR --csv folder.csv                                      2 is-a-folder
score real fake --protocol fdr6 --csv rows.csv                              2 usage
score real fake GABOR --metrics fd --csv rows.csv                           2 no-samples
score real fake --offline                                                   4 weights-missing
score real half GABOR                                                       3 image-corrupt
features missing x.safetensors GABOR                                        2 path-not-found
score real fake GABOR --html real/page.html                                 2 output-is-input
score real fake GABOR --html text.html                                      2 output-exists
score real fake GABOR --html link.html --overwrite                          2 output-is-link
score real fake GABOR --csv table.csv                                       2 output-exists
align drawings TOY --csv prompts.csv                                        2 output-is-input
entities expected.csv answers.jsonl --html text.html                        2 output-exists
rank real fake half GABOR --html half/page.html                             2 output-is-input
sweep real 1=fake 2=half GABOR --html fake/page.html                        2 output-is-input
sweep real 1=fake GABOR --out foreign                                       2 output-exists
watch NOW real samples GABOR --log real/genpr.jsonl                         2 output-is-input
features real real/x.safetensors GABOR                                      2 output-is-input
features real of_fake.safetensors GABOR                                     2 output-exists
stats real real/x.npz GABOR                                                 2 output-is-input
stats real old.npz GABOR                                                    2 output-exists
align drawings TOY --extractor clip-vit-b-32 --offline                      4 weights-missing
align drawings --prompts prompts.csv --protocol coco30k --offline           3 prompt-count
reconstruct real half --metrics psnr                                        3 no-partner
entities expected.csv answers.jsonl --fail-under recall=.1                  2 usage
entities expected.csv answers.jsonl --max-images 3                          2 usage
rank                                                                        2 usage
rank real.npy                                                               2 usage
rank real.npy fake.npy --fake-labels a.csv                                  2 usage
rank real.npy fake.npy --axis guidance                                      2 usage
rank real.npy fake.npy --labels --classifier a.csv --real-labels b.csv      2 usage
rank none run/step-1.pt run/step-3.pt LOAD                                  2 path-not-found
compare text.json text.json                                                 3 not-a-result
sweep real.npy                                                              2 usage
sweep real.npy fake.npy                                                     2 usage
sweep real.npy 1=fake.npy 1.0=more.npy                                      2 usage
watch NOW real.npy samples --until 0                                        2 usage
cache prune                                                                 2 usage
cache prune --older-than soon                                               2 usage
cache prune --max-size 0 --cache-dir real                                   2 not-a-cache
weights nonsense                                                            2 usage
demo --device nonsense                                                      2 unknown-device
list nonsense                                                               2 usage
watch NOW real.npy samples --pattern ema*                                   2 usage
score real fake GABOR --fail-under recall=nan                               2 usage
score real.npy fake.npy --metrics fd --fail-over fd=inf                     2 usage
sweep real.npy 1=fake.npy --at-least recall=1e400                           2 usage
score real fake GABOR --metrics fd --fail-under fd=1                        2 usage
"""


def write_folder(folder, pixels):
    folder.mkdir(parents=True)
    for row, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"{row:05d}.png")


def write_arrays(folder, rng):
    """Feature files, of which some cannot be scored."""
    broken = rng.normal(size=(20, 4))
    broken[7, 2] = np.nan
    arrays = {"nan": broken, "few": np.ones((5, 4)), "big": rng.normal(size=(60, 4))}
    for name, array in (
        arrays | {name: rng.normal(size=(20, 4)) for name in ("real", "fake", "more")}
    ).items():
        np.save(folder / f"{name}.npy", array)
    np.savez(folder / "old.npz", np.zeros((2, 4, 4, 3), np.uint8))


def write_texts(folder, stripes):
    scenes = chosen(60)
    rows = [f"{row:05d}.png,{words(scene)}\n" for row, scene in enumerate(scenes)]
    answers = [
        json.dumps({"id": f"{row:05d}.png", "answer": json.dumps(each)}) for row, each in enumerate(stripes)
    ]
    texts = {
        "prompts.csv": "file,prompt\n" + "".join(rows),
        "answers.jsonl": "\n".join(answers),
        "objects.txt": "\n".join(COLORS),
        "text.json": "not json",
        "text.html": "<p>written by genpr",
        "table.csv": "side,row\n",
        "labels.csv": "name,label\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    write_expected(folder / "expected.csv", stripes)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with something to read for every command, right and wrong."""
    folder, rng = tmp_path_factory.mktemp("world"), np.random.default_rng(0)
    stripes = [
        [name for place, name in enumerate(COLORS) if (row + 1) % 8 >> place & 1] or ["red"]
        for row in range(24)
    ]
    for name in ("real", "fake", "half"):
        write_folder(folder / name, rng.integers(0, 256, (20, 8, 9, 3), dtype=np.uint8))
    (folder / "half" / "x.png").write_bytes((folder / "real" / "00000.png").read_bytes()[:50])
    write_folder(folder / "stripes", [painted(*names) for names in stripes])
    write_folder(folder / "drawings", drawings(chosen(60)))
    write_folder(folder / "blobs", real_blobs(20))
    write_arrays(folder, rng)
    write_texts(folder, stripes)
    write_generator(folder)
    for name in ("samples", "folder.csv", "run", "foreign"):
        (folder / name).mkdir()
    for name in ("sweep.png", "matrix.md"):
        (folder / "foreign" / name).write_text("foreign")
    (folder / "link.html").symlink_to("text.html")
    save_features(folder / "of_fake.safetensors", FeatureSet(torch.ones(20, 4), "fake"))
    write_checkpoint(folder / "run" / "step-1.pt", 0.5)
    return folder


def listed(folder):
    """All files but locks, with their contents."""
    paths = [path for path in folder.rglob("*") if path.suffix != ".lock"]
    return {path: path.read_bytes() if path.is_file() else b"" for path in paths}


def filled(line):
    """The words of a line of the tables."""
    for name, text in ALIASES.items():
        line = line.replace(name, text)
    return line.split()


@pytest.mark.parametrize("line", MISTAKES.strip().splitlines(), ids=lambda line: line.rsplit(maxsplit=2)[0])
def test_mistake_is_one_error_and_writes_nothing(genpr, world, monkeypatch, line):
    command, exit_code, code = line.rsplit(maxsplit=2)
    monkeypatch.chdir(world)
    before = listed(world)
    got, out, err = genpr(*filled(command), "--json")
    error = json.loads(out)["error"]
    found = error.get("bad", [error])[0]["code"]
    assert (got, found, error["exit_code"]) == (int(exit_code), code, int(exit_code))
    is_unknown = any(word in command for word in ("scor ", "extracter", "weights n"))
    assert ("No such" in error["message"]) == is_unknown
    *details, last = err.splitlines()
    assert last.startswith("error: ")
    assert bool(details) == (error["code"] in {"bad-images", "bad-pairs"})
    assert "Traceback" not in err
    assert listed(world) == before


# A command line, and its exit code.
GATES = """
score real fake GABOR --fail-under coverage=0                                          0
score real.npy real.npy --fail-under precision=1                                       0
score real fake GABOR --fail-under recall=1.01 --fail-under density=0                  5
score real fake GABOR --metrics fd --fail-over fd=1000                                 0
score real.npy real.npy --metrics fd --fail-over fd=0                                  0
entities expected.csv answers.jsonl --fail-over entity.failure_rate=0                  0
score real fake GABOR --metrics fd --fail-over fd=0.001                                5
score real.npy fake.npy --held-out more.npy --fail-under c_t=-50 --fail-over c_t=50    0
score real.npy fake.npy --held-out more.npy --fail-under c_t=50                        5
score real.npy fake.npy --held-out more.npy --fail-over c_t=-50                        5
align drawings TOY --fail-under retrieval.r_precision=.9                               0
align drawings TOY --fail-under retrieval.r_precision=1.01                             5
entities expected.csv answers.jsonl --fail-under entity.recall=1                       0
entities expected.csv answers.jsonl --fail-under entity.recall=1.01                    5
entities expected.csv answers.jsonl --fail-under entity.precision=.1                   5
entities expected.csv stripes BYdetector --fail-under entity.recall=1.01               5
"""


@pytest.mark.parametrize("line", GATES.strip().splitlines())
def test_missed_threshold_is_printed_after_the_result(genpr, world, monkeypatch, line):
    command, exit_code = line.rsplit(maxsplit=1)
    monkeypatch.chdir(world)
    got, out, err = genpr(*filled(command), "--json", "-q")
    assert got == int(exit_code)
    assert json.loads(out)["metrics"]
    assert [each.startswith("missed: ") for each in err.splitlines()] == [True] * (got == 5)


OUTPUTS = """
score real fake GABOR --html text.html --csv table.csv
align drawings TOY --csv table.csv
reconstruct real fake --metrics psnr --csv table.csv
sweep real.npy 0.5=fake.npy 1=more.npy --out foreign
features real of_fake.safetensors GABOR
stats real old.npz GABOR
"""


@pytest.mark.parametrize("command", OUTPUTS.strip().splitlines())
def test_own_output_is_replaced_and_foreign_output_needs_overwrite(
    genpr, world, tmp_path, monkeypatch, command
):
    folder = shutil.copytree(world, tmp_path / "world", symlinks=True)
    monkeypatch.chdir(folder)
    before = listed(folder)
    _, out, _ = genpr(*filled(command), "--json")
    assert json.loads(out)["error"]["code"] == "output-exists"
    assert listed(folder) == before
    assert genpr(*filled(command), "--overwrite", "-q")[0] == 0
    assert genpr(*filled(command), "-q")[0] == 0


# A function that runs during a command, the command, and its output.
MEANWHILE = [
    ("genpr.evaluation.write_statistics.compute_statistics", "stats real.npy {}", "x.npz"),
    ("genpr.report.score_page.evidence_report", "score real fake GABOR --html {}", "x.html"),
]


@pytest.mark.parametrize(("function", "command", "name"), MEANWHILE, ids=lambda text: text.partition(" ")[0])
def test_file_that_is_created_during_the_command_is_kept(
    genpr, world, tmp_path, monkeypatch, function, command, name
):
    folder = shutil.copytree(world, tmp_path / "world", symlinks=True)
    monkeypatch.chdir(folder)
    call = pkgutil.resolve_name(":".join(function.rsplit(".", 1)))

    def slow(*args, **options):
        Path(name).write_text("mine")
        return call(*args, **options)

    monkeypatch.setattr(function, slow)
    assert genpr(*filled(command.format(name)))[0] == 2
    assert Path(name).read_text() == "mine"


# A command, the function that writes its first output, and its second output.
FULL = [
    ("score real fake GABOR --csv x.csv --html x.html", "genpr.report.files.atomic_path", "x.html"),
    ("align drawings TOY --csv x.csv --html x.html", "genpr.report.files.atomic_path", "x.html"),
    (
        "reconstruct real fake --metrics psnr --csv x.csv --html x.html",
        "genpr.report.files.atomic_path",
        "x.html",
    ),
    (
        "sweep real.npy 1=fake.npy 2=more.npy --out x --html x.html",
        "genpr.report.files.replace_file",
        "x.html",
    ),
    ("entities expected.csv answers.jsonl --html x.html", "genpr.cli.output.replace_file", None),
    ("rank real.npy fake.npy more.npy --html x.html", "genpr.cli.output.replace_file", None),
]


@pytest.mark.parametrize(
    ("command", "function", "second"), FULL, ids=lambda text: str(text).partition(" ")[0]
)
def test_result_and_other_outputs_are_written_if_one_cannot_be(
    genpr, world, tmp_path, monkeypatch, command, function, second
):
    def full(*_args, **_options):
        raise ResourceError("full", code="unwritable")

    folder = shutil.copytree(world, tmp_path / "world", symlinks=True)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(function, full)
    code, out, err = genpr(*filled(command), "--json", "-q")
    assert (code, "error" in json.loads(out), err.count("error: ")) == (4, False, 1)
    assert second is None or Path(second).exists()


DONE = """
score real fake GABOR
score real.npy fake.npy --protocol genpr --protocol prdc
modes big.npy big.npy
align drawings TOY
reconstruct real fake --metrics psnr
entities expected.csv answers.jsonl
entities expected.csv stripes BYdetector
rank real.npy fake.npy more.npy --by fd
sweep real.npy 0.5=fake.npy 1=more.npy
features real real.safetensors GABOR
demo --n 50 --device cpu
watch NOW real.npy scored
"""


@pytest.mark.parametrize("command", DONE.strip().splitlines())
def test_json_is_one_object_and_quiet_prints_nothing_else(genpr, world, tmp_path, monkeypatch, command):
    folder = shutil.copytree(world, tmp_path / "world")
    (folder / "scored").mkdir()
    shutil.copy(folder / "fake.npy", folder / "scored")
    monkeypatch.chdir(folder)
    code, out, err = genpr(*filled(command), "--json", "-q")
    assert (code, err) == (0, "")
    assert isinstance(json.loads(out), dict)
    assert out.count("\n") == 1
