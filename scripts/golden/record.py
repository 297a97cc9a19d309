"""Record what genpr computes on small generated inputs, and compare two such records to the bit.

A restructuring must not change any number. Record before and after it, on one machine, and compare:

    git worktree add ../base BASE_COMMIT
    (cd ../base && python scripts/golden/record.py /tmp/before)
    python scripts/golden/record.py /tmp/after
    python scripts/golden/record.py --compare /tmp/before /tmp/after

Each checkout records with its own copy of this script and imports its own genpr. `cases.txt` lists the cases of a
record, so that the comparison reports a case that is missing. `--only` records some cases and those whose files they
read. The records are not kept in the repository because features of a network differ in their last bits between
processors.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

VOLATILE = {
    "seconds",
    "versions",
    "version",
    "created",
    "time",
    "finished",
    "started",
    "elapsed",
    "date",
    "at",
    "listing",  # of a folder, with times of change
    "timestamp",
    "sha256",  # of a file of statistics, with the times of its members
}
"""Keys whose values change from run to run."""

_VOLATILE_HTML = re.compile(r"application/json;base64,[^\"]*|<dd>[\d.e+-]+</dd>")
"""Numbers of a page that JSON states, too, among them seconds."""

CASES = "cases.txt"

THREADS = "2"  # on which the last digits of distances depend

SHOWN = 10  # differences of one case

COLORS = {"red": (200, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 200), "white": (200, 200, 200)}

GENERATOR = """
import torch


class Discs(torch.nn.Module):
    z_dim = 3

    def __init__(self, spread):
        super().__init__()
        self.spread = torch.nn.Parameter(torch.tensor(float(spread)))

    def forward(self, latents, *, psi=1.0):
        z = torch.special.ndtr(psi * self.spread * latents)
        rows, columns = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
        y, x, size = (z[:, i, None, None] for i in range(3))
        inside = (rows - 16 * y) ** 2 + (columns - 16 * x) ** 2 < (2 + 5 * size) ** 2
        return (2.0 * inside - 1)[:, None]


def load(path):
    return Discs(torch.load(path)["spread"])
"""

PAIR = '''
import torch

COLORS = {"red": (1.0, 0.0, 0.0), "green": (0.0, 1.0, 0.0), "blue": (0.0, 0.0, 1.0), "white": (1.0, 1.0, 1.0)}


class Pair:
    """Embeds an image as its mean color and two moments of its rows, and a prompt by the colors that it names."""

    name, dim, context, tokenizer = "mean-color", 5, 75, "letters"

    def __call__(self, images):
        pixels = images.float() / 255
        rows = torch.arange(pixels.shape[2], dtype=torch.float32)[None, :, None]
        luma = pixels.mean(dim=1)
        moments = torch.stack([(luma * rows).mean(dim=(1, 2)), (luma * rows**2).mean(dim=(1, 2)) / 16], dim=1)
        return torch.cat([pixels.mean(dim=(2, 3)), moments / 16], dim=1)

    def encode_text(self, texts):
        rows = [
            [*torch.tensor([COLORS[word] for word in text.split() if word in COLORS] or [(0.0,) * 3]).mean(0).tolist(),
             len(text) / 100, len(text.split()) / 100]
            for text in texts
        ]
        return torch.tensor(rows)


def load(device=None):
    return Pair()
'''

QUICK = ["--extractor", "gabor", "--quiet"]
GENERATED = ["--generator", "generator.py:load", "--n", "60", "--image-range=-1,1"]
PLAIN = [*QUICK, "--no-intervals", "--no-control"]
RUNS: dict[str, list[str]] = {
    "score": ["score", "real", "fake", *QUICK],
    "score-other-fakes": ["score", "real", "fake_b", *QUICK],
    "score-again-from-cache": ["score", "real", "fake", *QUICK],
    "score-plain": ["score", "real", "fake", *PLAIN],
    "score-precision-recall": ["score", "real", "fake", *PLAIN, "--metrics", "precision,recall"],
    "score-all-metrics": ["score", "real", "fake", *QUICK, "--metrics", "all"],
    "score-k-strict": ["score", "real", "fake", *QUICK, "--k", "4", "--ties", "strict"],
    "score-held-out": ["score", "real", "fake", *QUICK, "--held-out", "held_out.zip"],
    "score-subset": ["score", "real", "fake", *QUICK, "--max-images", "50", "--seed", "7"],
    "score-zip": ["score", "real", "held_out.zip", *QUICK, "--no-cache"],
    "score-npz": ["score", "real.npz", "fake", "--extractor", "pixels", "--quiet"],
    "score-odd": ["score", "real", "odd", *PLAIN],
    "score-skip-bad": ["score", "real", "damaged", *PLAIN, "--on-bad", "skip", "--max-bad", "20%"],
    "score-refused": ["score", "real", "damaged", *PLAIN],
    "score-features": ["score", "real.npy", "fake.npy", "--quiet"],
    "score-features-offset": ["score", "offset_real.npy", "offset_fake.npy", "--quiet"],
    "score-integer-features": ["score", "ties_real.npy", "ties_fake.npy", "--quiet", "--metrics", "all"],
    "score-large-features": ["score", "large_real.npy", "large_fake.npy", "--quiet", "--metrics", "all"],
    "score-prdc": ["score", "real", "fake", *QUICK, "--protocol", "prdc"],
    "score-two-protocols": ["score", "real", "fake", *QUICK, "--protocol", "prdc", "--protocol", "genpr"],
    "score-threshold": ["score", "real", "fake", *PLAIN, "--fail-under", "recall=1.5"],
    "score-per-class": ["score", "real", "fake", *QUICK, "--per-class", "--min-per-class", "10"],
    "score-labels": ["score", "real", "fake", *QUICK, "--labels"],
    "score-csv": ["score", "real", "fake", *QUICK, "--csv", "samples.csv"],
    "score-page": ["score", "real", "odd", *QUICK, "--no-cache", "--html", "score.html"],
    "score-panel": ["score", "real", "fake", *QUICK, "--extractor", "pixels", "--html", "panel.html"],
    "stats": ["stats", "real", "stats.npz", *QUICK],
    "score-statistics": ["score", "stats.npz", "fake", *QUICK, "--metrics", "fd"],
    "score-text": ["score", "real", "fake", *QUICK, "--metrics", "all"],
    "reconstruct": ["reconstruct", "real", "faded", "--quiet", "--metrics", "psnr,ssim", "--html", "pairs.html",
                    "--csv", "pairs.csv"],
    "score-custom-extractor": ["score", "real", "fake", "--extractor", "pair.py:load", "--quiet"],
    "modes": ["modes", "real", "fake", *QUICK, "--all"],
    "features-1": ["features", "real", "shard_1.safetensors", *QUICK, "--shard", "1/2"],
    "features-2": ["features", "real", "shard_2.safetensors", *QUICK, "--shard", "2/2"],
    "features-fake": ["features", "fake", "fake.safetensors", *QUICK],
    "score-shards": ["score", "shard_{1..2}.safetensors", "fake.safetensors", "--quiet"],
    "compare": ["compare", "score.json", "score-other-fakes.json"],
    "compare-text": ["compare", "score.json", "score-other-fakes.json", "--html", "compare.html"],
    "rank": ["rank", "real", "fake", "fake_b", *QUICK],
    "rank-results": ["rank", "--results", "score.json", "score-other-fakes.json"],
    "rank-generator": ["rank", "real.npz", "a.pt", "b.pt", *QUICK, *GENERATED],
    "sweep": ["sweep", "real.npz", *QUICK, *GENERATED, "--checkpoint", "a.pt", "--psi", "0.4,0.7,1",
              "--out", "sweep"],
    "sweep-folders": ["sweep", "real", "0.5=fake", "1=fake_b", *QUICK, "--at-least", "recall=0.1"],
    "watch": ["watch", "real", "runs", *QUICK, "--once", "--settle", "0"],
    "align": ["align", "fake", "--prompts", "prompts.csv", "--extractor", "pair.py:load", "--quiet",
              "--distractors", "20", "--csv", "ranks.csv"],
    "entities": ["entities", "expected.csv", "answers.jsonl", "--vocabulary", "objects.txt"],
    "list-metrics": ["list", "metrics"],
    "list-protocols": ["list", "protocols"],
    "list-extractors": ["list", "extractors"],
}  # fmt: skip
"""Command line by name of the record; --json is added where the command has it."""

AS_TEXT = {"score-text", "compare-text"}
"""Runs without --json."""

SAVED = {"score": "score.json", "score-other-fakes": "score-other-fakes.json"}
"""Output of a run that later runs read as a file."""

READS = {
    "score-again-from-cache": {"score"},
    "score-shards": {"features-1", "features-2", "features-fake"},
    "score-statistics": {"stats"},
    "compare": {*SAVED},
    "compare-text": {*SAVED},
    "rank-results": {*SAVED},
}
"""Runs whose files a run reads."""

PYTHON_CASES = {"python-adm-random-inception": "adm", "python-genpr-random-inception": "genpr"}
"""Protocol by name of the record of `genpr.score`."""

EXIT_CODES = {"score-refused": 3, "score-threshold": 5}
"""Expected exit codes of runs that fail."""

FILES = {
    "score-csv": ["samples.csv"],
    "score-page": ["score.html"],
    "score-panel": ["panel.html"],
    "compare-text": ["compare.html"],
    "reconstruct": ["pairs.csv", "pairs.html"],
    "align": ["ranks.csv"],
    "sweep": ["sweep/sweep.json"],
    "watch": ["runs/genpr.jsonl", "runs/best.json"],
}
"""Files that a run writes and that belong to its record."""


def write_inputs(folder: Path) -> None:
    """Images of four classes, features, prompts, answers, a generator and its checkpoints."""
    import torch  # here, because the comparison needs none of it

    random = np.random.default_rng(20)
    sets = {
        "real": _images(random, (30, 30, 30, 30), fade=0.0),
        "fake": _images(random, (45, 35, 20, 10), fade=0.2),
        "fake_b": _images(random, (55, 55, 0, 0), fade=0.0),
        "held_out": _images(random, (25, 25, 25, 25), fade=0.0),
        "small": _images(random, (10, 10, 10, 10), fade=0.1),
    }
    for name, classes in sets.items():
        _write_folder(folder / name, classes)
    for name in ("held_out", "small"):
        shutil.make_archive(str(folder / name), "zip", folder / name)
    np.savez(folder / "real.npz", arr_0=np.concatenate([pixels for _, pixels in sets["real"]]))
    for side in ("real", "fake"):
        pixels = np.concatenate([pixels[:4] for _, pixels in sets[side]])
        np.savez(folder / f"tiny_{side}.npz", arr_0=pixels)

    faded = [(name, (pixels * 0.8).astype(np.uint8)) for name, pixels in sets["real"]]
    _write_folder(folder / "faded", faded)

    # An identical image twice, copies of reals, transparency and an orientation: each leaves a notice.
    odd = folder / "odd"
    shutil.copytree(folder / "fake", odd)
    shutil.copyfile(folder / "real" / "red" / "000.png", odd / "copy_a.png")
    shutil.copyfile(folder / "real" / "red" / "000.png", odd / "copy_b.png")
    Image.fromarray(random.integers(0, 256, (16, 16, 4), dtype=np.uint8)).save(odd / "transparent.png")
    turned = Image.fromarray(random.integers(0, 256, (20, 12, 3), dtype=np.uint8))
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(odd / "turned.jpg", exif=exif)
    damaged = folder / "damaged"
    shutil.copytree(folder / "fake", damaged)
    data = (damaged / "red" / "000.png").read_bytes()
    (damaged / "red" / "000.png").write_bytes(data[: len(data) // 2])

    _write_features(folder, random)
    (folder / "generator.py").write_text(GENERATOR)
    for name, spread in (("a", 0.9), ("b", 0.5)):
        torch.save({"spread": spread}, folder / f"{name}.pt")
    (folder / "pair.py").write_text(PAIR)
    for step in (1, 2):
        shutil.copytree(folder / ("fake" if step == 1 else "fake_b"), folder / "runs" / f"step-{step}")
    prompts = [
        f"{path.relative_to(folder / 'fake')},a {path.parent.name} disc number {path.stem}"
        for path in sorted((folder / "fake").rglob("*.png"))
    ]
    (folder / "prompts.csv").write_text("\n".join(["image,prompt", *prompts]) + "\n")
    _write_answers(folder)


def _images(
    random: np.random.Generator, counts: tuple[int, ...], fade: float
) -> list[tuple[str, np.ndarray]]:
    """Per class uint8 (n, 16, 16, 3): a disc of the class's color on a dark noisy ground."""
    classes = []
    for (name, color), n in zip(COLORS.items(), counts, strict=True):
        center, radius = random.uniform(4, 12, (n, 2, 1, 1)), random.uniform(2, 6, (n, 1, 1))
        rows, columns = np.mgrid[:16, :16]
        inside = (rows - center[:, 0]) ** 2 + (columns - center[:, 1]) ** 2 < radius**2
        pixels = random.integers(0, 40, (n, 16, 16, 3)) + inside[..., None] * np.array(color) * (1 - fade)
        classes.append((name, pixels.clip(0, 255).astype(np.uint8)))
    return classes


def _write_folder(folder: Path, classes: list[tuple[str, np.ndarray]]) -> None:
    for name, images in classes:
        (folder / name).mkdir(parents=True)
        for index, pixels in enumerate(images):
            Image.fromarray(pixels).save(folder / name / f"{index:03}.png")


def _write_features(folder: Path, random: np.random.Generator) -> None:
    """Ordinary float features, off-center ones, integers with many ties, and many of a low intrinsic dimension."""
    for side, n, scale in (("real", 400, 1.0), ("fake", 300, 0.9)):
        np.save(folder / f"{side}.npy", (random.normal(size=(n, 24)) * scale).astype(np.float32))
        np.save(
            folder / f"offset_{side}.npy", (5 + 0.05 * scale * random.normal(size=(n, 48))).astype(np.float32)
        )
        np.save(folder / f"ties_{side}.npy", random.integers(0, 4, (n, 6)).astype(np.float32))
    mixing = random.normal(size=(12, 96))
    for side, n in (("real", 2_400), ("fake", 700)):
        rows = random.normal(size=(n, 12)) @ mixing + 0.1 * random.normal(size=(n, 96))
        np.save(folder / f"large_{side}.npy", (1 + np.tanh(rows)).astype(np.float32))


def _write_answers(folder: Path) -> None:
    objects = ["cat", "dog", "bench", "tree", "car"]
    (folder / "objects.txt").write_text("\n".join(objects) + "\n")
    expected, answers = ["id,expected"], []
    forms = (
        ", ".join,
        lambda names: json.dumps(names),
        lambda names: "\n".join(f"- {name}" for name in names),
    )
    for index in range(40):
        expected_objects = [objects[index % 5], objects[(index + 1 + index % 3) % 5]]
        found = expected_objects if index % 4 else [expected_objects[0], objects[(index + 4) % 5]]
        expected.append(f"{index}.png,{';'.join(expected_objects)}")
        answer = "I cannot help with that." if index % 13 == 12 else forms[index % 3](found)
        answers.append(json.dumps({"id": f"{index}.png", "answer": answer}))
    (folder / "expected.csv").write_text("\n".join(expected) + "\n")
    (folder / "answers.jsonl").write_text("\n".join(answers) + "\n")


def record(out: Path, only: set[str]) -> None:
    """Run all cases, or `only` some and those that they read, and write one JSON file per case to `out`."""
    unknown = only - {*RUNS, *PYTHON_CASES}
    if unknown:
        raise SystemExit(f"no such case: {', '.join(sorted(unknown))}")
    only |= {name for case in only for name in READS.get(case, ())}
    cases = [name for name in (*RUNS, *PYTHON_CASES) if not only or name in only]
    out.mkdir(parents=True)
    (out / CASES).write_text("\n".join(cases) + "\n")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_inputs(folder)
        for name in cases:
            values = _run(name, folder) if name in RUNS else _score_by_random_inception(name, folder)
            (out / f"{name}.json").write_text(json.dumps(values, indent=1, sort_keys=True) + "\n")
            print(name, flush=True)


def _run(name: str, folder: Path) -> dict[str, object]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "GENPR_CACHE": str(folder / "cache"),
        "COLUMNS": "100",
        "OMP_NUM_THREADS": THREADS,
    }
    done = subprocess.run(
        [sys.executable, "-m", "genpr", *RUNS[name], *([] if name in AS_TEXT else ["--json"])],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != EXIT_CODES.get(name, 0):
        raise SystemExit(f"{name} ended with exit code {done.returncode}: {done.stderr}")
    if name in SAVED:
        (folder / SAVED[name]).write_text(done.stdout)
    files = {file: _parsed((folder / file).read_text()) for file in FILES.get(name, [])}
    return {"exit": done.returncode, "output": _parsed(done.stdout), "files": files}


def _parsed(text: str) -> object:
    """Parse JSON or JSON lines and remove fields that change from run to run; split other text into lines."""
    try:
        return _stable(json.loads(text))
    except ValueError:
        pass
    try:
        return [_stable(json.loads(line)) for line in text.splitlines()]
    except ValueError:
        return [_VOLATILE_HTML.sub("", line) for line in text.splitlines()]


def _stable(value: object) -> object:
    if isinstance(value, dict):
        return {key: _stable(entry) for key, entry in value.items() if key not in VOLATILE}
    return [_stable(entry) for entry in value] if isinstance(value, list) else value


def _score_by_random_inception(name: str, folder: Path) -> object:
    """Score under a protocol that pins Inception, with random weights in its place."""
    import torch
    from random_weights import random_state

    import genpr
    from genpr.features import registry
    from genpr.features.known_weights import INCEPTION_2015
    from genpr.features.networks.inception import InceptionNetwork

    torch.set_num_threads(int(THREADS))
    weights = folder / INCEPTION_2015.name
    with torch.device("meta"):
        shapes = InceptionNetwork().state_dict()
    torch.save(random_state(shapes), weights)
    sha256 = hashlib.sha256(weights.read_bytes()).hexdigest()
    entry = replace(INCEPTION_2015, size=weights.stat().st_size, sha256=sha256)
    known = {
        key: replace(each, weights=entry) if each.weights is INCEPTION_2015 else each
        for key, each in registry.BUILT_IN.items()
    }
    real, fake = (np.load(folder / f"tiny_{side}.npz")["arr_0"] for side in ("real", "fake"))
    options = {"protocol": PYTHON_CASES[name], "device": "cpu", "cache": False, "batch_size": 8}
    with patch.object(registry, "BUILT_IN", known):
        result = genpr.score(real, fake, weights=weights, **options)
    return _stable(json.loads(result.to_json()))


def compare(before: Path, after: Path) -> int:
    """Print every difference of two records, a missing case among them; return the number of differences."""
    cases = {folder: _cases(folder) for folder in (before, after)}
    count = 0
    for name in sorted({*cases[before], *cases[after]}):
        missing = [str(folder) for folder in cases if name not in cases[folder]]
        missing += [
            f"{folder}, which is incomplete" for folder in cases if not (folder / f"{name}.json").exists()
        ]
        if missing:
            print(f"{name}: not in {missing[-1]}")
            count += 1
            continue
        one, other = (json.loads((folder / f"{name}.json").read_text()) for folder in (before, after))
        differences = _differences(one, other, "")
        for path, old, new in differences[:SHOWN]:
            print(f"{name}{path}: {old!r:.300} -> {new!r:.300}")
        if len(differences) > SHOWN:
            print(f"{name}: {len(differences) - SHOWN} more")
        count += len(differences)
    print(f"{count} differences in {len({*cases[before], *cases[after]})} cases")
    return count


def _cases(folder: Path) -> set[str]:
    """The cases that a record should have and those that it has."""
    if not (folder / CASES).exists():
        raise SystemExit(f"{folder} is not a record: it has no {CASES}")
    return {*(folder / CASES).read_text().split(), *(path.stem for path in folder.glob("*.json"))}


def _differences(one: object, other: object, path: str) -> list[tuple[str, object, object]]:
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            entry
            for key in sorted({*one, *other})
            for entry in _differences(one.get(key, "(missing)"), other.get(key, "(missing)"), f"{path}.{key}")
        ]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = zip(one, other, strict=True)
        return [
            entry for index, (a, b) in enumerate(pairs) for entry in _differences(a, b, f"{path}[{index}]")
        ]
    return [] if one == other and type(one) is type(other) else [(path, one, other)]


def main(args: list[str] | None = None) -> None:
    """Record, or compare two records; `args` instead of those of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?", help="new folder for the record")
    parser.add_argument("--only", nargs="+", default=(), metavar="CASE", help="record these cases")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    arguments = parser.parse_args(args)
    if arguments.compare:
        raise SystemExit(compare(*arguments.compare) > 0)
    if arguments.out is None:
        parser.error("name a new folder for the record, or --compare two records")
    record(arguments.out, {*arguments.only})


if __name__ == "__main__":
    main()
