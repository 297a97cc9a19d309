"""Code of README.md and docs/ runs on small files with the names that it uses; code that cannot run here is parsed."""

import json
import pickle
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import datasets
import numpy as np
import page_files
import pytest
import torch
from page_files import N_PAIRED, N_PLAIN
from PIL import Image
from torch import nn
from toy_networks import WIDTH, Pipe, StyleGAN, use_toy_networks

import genpr
from genpr.checkpoints.generator import GeneratedImages
from genpr.cli.main import cli, run
from genpr.evaluation import protocols
from genpr.features.representations import FDR6

ROOT = Path(__file__).parents[2]
PAGES = {"README": ROOT / "README.md"} | {path.stem: path for path in sorted((ROOT / "docs").glob("*.md"))}
TEXTS = {name: path.read_text() for name, path in PAGES.items()}
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE, OUTPUT = {"python", "console", "sh"}, {"text", "bibtex"}

NOT_RUN = {
    r"torchrun": "several processes; tests/distributed runs them",
    r"genpr demo$": "its output is compared in test_outputs.py",
    r"genpr demo --out": "the same; the folders are made by test_outputs.py",
    r"genpr (score|modes) genpr-demo/|genpr rank real faithful": "the same",
    r"genpr doctor": "tests/doctor runs it; it takes ten seconds",
    r"genpr weights (fetch|verify)": "downloads published weights",
    r"fasterrcnn": "needs published weights",
    r"small_gan.py": "needs checkpoints of scripts/train_gan.py; tests/scripts runs that",
    r"^(pip|hf|find) ": "a program of others",
    r"^(python|scripts/\S+) ?": "a script of this repository, which must exist",
}
"""Commands that are parsed only, and why."""
SMALLER = {
    "--n 5000": f"--n {N_PLAIN}",
    "--images-per-group 100": "--images-per-group 6",
    "ms_ssim --prepare resize:256": "ms_ssim --images-per-group 2 --prepare resize:176",
    "--n 2000": f"--n {N_PLAIN}",
    "--max-images 10000": "--max-images 25",
    " --per-class": " --per-class --min-per-class 20",
    "{0000..1023}": "{0000..0001}",
    "--prepare center-crop:256": "--prepare center-crop:32",
    "genpr watch": "genpr watch --once --settle 0",  # would run until it is interrupted
    "0.2:1:0.1": "0.2:1:0.4",
}
"""Replacements that make commands smaller."""
SMALLER_IN_PYTHON = {
    "n=5000": "n=20",
    "n=2000": "n=20",
    "(2000, ": "(20, ",
    "until=100": "until=1",
    "settle=30": "settle=0",
}
SMALLER_IN_PYTHON["score_classes("] = "score_classes(min_per_class=20, fake="
COMPILED = {
    "training": "an outline of scripts/train_gan.py",
    "containers": "tests/images/test_containers.py runs it with the libraries that wrote them",
    "medical-and-remote-sensing": "tests/images/test_medical_files.py runs it with nibabel and pydicom",
}
"""Pages whose Python is only compiled, and why."""
RUN_ELSEWHERE = "Trainer("
"""The block of docs/integrations.md that runs in tests/integrations/test_lightning.py."""


TABLE = TEXTS["protocols"].partition("| verified how |")[2].partition("\n\n")[0]
"""Commands for the repositories of papers."""
OFFLINE = TEXTS["protocols"].partition("| it prints |")[2].partition("\n\n")[0]
"""Commands for the numbers of one evaluation script."""
TOOLS = TEXTS["differences"].partition("\n## Find your tool\n")[2].partition("\n\nIf ")[0]
"""Commands for other evaluators."""


COMMANDS = cli.list_commands(click.Context(cli))
OTHERS_OPTIONS = (
    *("--help", "--version"),
    *("--nproc-per-node", "--gpus-per-task", "--array", "--requeue"),  # torchrun, Slurm
    *("--gpus", "--user", "--env", "--shm-size"),  # Docker
    *[
        "--transform",
        "--mirror",
        "--draws",
        "--probe",
        "--features",
        "--prc",
        "--resolution",
    ],  # other tools, benchmarks
    *("--practice", "--out"),  # scripts
)


def blocks(name, languages):
    return [code for language, _, code in FENCE.findall(TEXTS[name]) if language in languages]


def commands(name):
    """The lines after $ in the console blocks of a page."""
    return re.findall(r"^\$ (.+)$", "".join(blocks(name, {"console"})), re.MULTILINE)


def words_of(line):
    """The arguments of each genpr in some lines of shell, as bash expands them; nothing runs in the background."""
    line = line.replace(" &\n", "\n")
    program = f"""PATH=/nowhere  # so that nothing but these functions is called
        genpr() {{ printf '%s\\0' "$@" $'\\n' >&3; }}
        pip() {{ :; }}; srun() {{ "$@"; }}; sbatch() {{ echo 1; }}
        torchrun() {{ while [ "$1" != genpr ]; do shift; done; "$@"; }}
        docker() {{ [ "$1" = run ] || return 0; while [ "$1" != genpr ]; do shift; done; shift; [ $# = 0 ] || genpr "$@"; }}
        shopt -s nullglob; SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=16 SCRATCH=scratch
        {line}
        wait"""
    arguments = ["/bin/bash", "-c", f"exec 3>&1 1>/dev/null\n{program}", "bash", "real", "fake"]
    called = subprocess.run(arguments, capture_output=True, check=True, text=True).stdout
    return [call.split("\0") for call in called.split("\0\n\0") if call]


def parse(arguments):
    """Let click read arguments without running the command."""
    command, context = cli, click.Context(cli, info_name="genpr")
    while isinstance(command, click.Group):
        name, *arguments = arguments
        command = command.get_command(context, name)
        assert command is not None, name
    with command.make_context(command.name, list(arguments)):
        pass


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages") / "files"
    folder.mkdir()
    page_files.build(folder)
    return folder


@pytest.fixture
def place(files, tmp_path, monkeypatch):
    """A copy of the files as the working directory, and networks without weights."""
    use_toy_networks(monkeypatch, captions=N_PAIRED)
    folder = page_files.copied(files, tmp_path / "page")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)  # other tests leave a `net.py` of their own on the path
    monkeypatch.delitem(sys.modules, "net", raising=False)
    return folder


@pytest.mark.parametrize("name", PAGES)
def test_every_block_has_a_known_language(name):
    for language, _, code in FENCE.findall(TEXTS[name]):
        assert language in CODE | OUTPUT, (language, code[:60])
    outside = FENCE.sub("", TEXTS[name])
    assert not re.search(r"^ *```", outside, re.MULTILINE)
    assert not re.search(r"^    (\$ )?(genpr|import|from) ", outside, re.MULTILINE)


@pytest.mark.parametrize("name", [name for name in PAGES if commands(name)])
def test_commands_run(name, place, capsys):
    prepare_page(name, place)
    for line in commands(name):
        if any(re.search(pattern, line) for pattern in NOT_RUN):
            for arguments in words_of(line) if "genpr " in line and not line.startswith("pip") else []:
                parse(arguments)
            continue
        for before, after in SMALLER.items():
            line = line.replace(before, after)
        (arguments,) = words_of(line)
        for log in (*place.glob("runs/**/genpr.jsonl"), *place.glob("runs/**/best.json")):
            log.unlink()  # of other options
        outcome = run(arguments)
        shown = capsys.readouterr()
        assert outcome == 0 or (outcome == 5 and "--fail-" in line), (line, shown.err)
        for target in re.findall(r"> (\S+)$", line):
            Path(target).write_text(shown.out)


@pytest.mark.parametrize("line", dict.fromkeys(re.findall(r"`(genpr [^`]+)`", TABLE + OFFLINE + TOOLS)))
def test_command_for_a_repository_or_tool_runs(line, files, monkeypatch, capsys):
    use_toy_networks(monkeypatch, captions=N_PAIRED)
    monkeypatch.chdir(files)
    arguments = shlex.split(line.replace(" --per-class", SMALLER[" --per-class"]))[1:]
    assert run([*arguments, "--json"]) == 0, capsys.readouterr().err
    result = json.loads(capsys.readouterr().out)
    if arguments[0] == "stats":
        assert {moments["dim"] for moments in result["moments"]} == {WIDTH}
        assert result["n"] == len([*pngs(Path(arguments[1]))])
        return
    for found in result.get("results", {"": result}).values():  # of a panel, or the only one
        assert all(np.isfinite(metric["value"]) for metric in found["metrics"].values())
        if "--protocol" in arguments and "--metrics" not in arguments and arguments[0] == "score":
            name = arguments[arguments.index("--protocol") + 1]
            assert {*protocols.find_protocol(name).metrics} == found["metrics"].keys()


def test_every_repository_has_a_command_and_a_verification():
    rows = re.findall(r"^\| .+ \|$", TABLE, re.MULTILINE)
    assert len(rows) >= 17
    for row in rows:
        assert re.match(r"\| [^|]+ \| `.+ \| `genpr .+ \| a", row), row


def test_files_of_fdr6_equal_those_on_its_page():
    rows = re.findall(
        r"^\| `(\w+)` \| `([^`]+)` \| ([\d.]+) \| `([^`]+)` \|$", TEXTS["representations"], re.MULTILINE
    )
    assert [(name, of, float(fd), file) for name, of, fd, file in rows] == [
        (each.name, each.extractor, each.validation_fd, each.statistics) for each in FDR6
    ]


@pytest.mark.parametrize("name", [name for name in PAGES if blocks(name, {"sh"})])
def test_scripts_call_commands_with_options_that_exist(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for code in blocks(name, {"sh"}):
        for arguments in words_of(code.replace(" && pytest", "")):
            parse(arguments)


@pytest.mark.parametrize("name", PAGES)
def test_scripts_that_commands_name_exist(name):
    for line in commands(name):
        for path in re.findall(r"^(?:python )?((?:scripts|benchmarks)/\S+)", line):
            assert (ROOT / path).is_file(), path


@pytest.mark.parametrize("name", PAGES)
def test_options_named_in_the_text_exist(name):
    known, commands = set(OTHERS_OPTIONS), [cli.get_command(click.Context(cli), each) for each in COMMANDS]
    while commands:
        command = commands.pop()
        known.update(option for each in command.params for option in [*each.opts, *each.secondary_opts])
        commands += command.commands.values() if isinstance(command, click.Group) else []
    text = re.sub(
        r"`python [^`]+`|`bash [^`]+`|`fidelity [^`]+`|`main_[^`]+`|`eval[^`]+`|`src[^`]+`|`fdeval[^`]+`",
        "",
        FENCE.sub("", TEXTS[name]),
    )
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text)) <= known


@pytest.mark.parametrize("name", [name for name in PAGES if blocks(name, {"python"})])
def test_python_runs(name, place, monkeypatch):
    prepare_page(name, place)
    names = names_of(name, monkeypatch)
    for language, title, code in FENCE.findall(TEXTS[name]):
        if language != "python":
            continue
        if title:
            Path(re.search(r'title="(.+)"', title)[1]).write_text(code)
        for before, after in SMALLER_IN_PYTHON.items():
            code = code.replace(before, after)
        code = code.replace("200", "50") if name == "generators" else code
        compiled = compile(code, f"{name}.md", "exec")
        if name not in COMPILED and RUN_ELSEWHERE not in code:
            exec(compiled, names)
            if isinstance(names.get("images"), GeneratedImages):
                assert len(next(iter(names["images"]))) == 50


def prepare_page(name, place):
    """Replace files that have other content on this page."""
    if name == "entities":
        for file in place.glob("*.json"):
            file.unlink()
        rows = [f"{path.parent.name}/{path.name},{path.parent.name}\n" for path in pngs(place / "real")]
        replaced(place / "real.csv", "id,expected\n" + "".join(rows))
        found = {path.name: "cat" for path in pngs(place / "images")}
        result = genpr.score_entities("prompts.jsonl", found, vocabulary="objects.txt")
        (place / "b.json").write_text(result.to_json())
    if name == "generators":
        (place / "network.pkl").write_bytes(pickle.dumps({"G_ema": StyleGAN()}))
    if name == "samples":
        run(["score", "real", "fake", "--csv", "samples.csv", "-q"])
    if name == "text-to-image-diversity":
        rows = ["name,label"]
        for source, folder in (("fake", "by-prompt"), ("real", "photos")):
            for path in pngs(place / source):
                image, form = Image.open(path).resize((32, 32)), f"{path.parent.name}_{path.name}"
                for target in (place / folder / path.parent.name / path.name, place / "flat" / form):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    image.save(target)
                rows += [f"{form},{path.parent.name}"] * (source == "fake")
        (place / "prompt-of-image.csv").write_text("\n".join(rows))
    if name == "watching":
        run(["watch", "data/real", "runs/7/samples", "--once", "--settle", "0", "-q"])
    if name == "medical-and-remote-sensing":
        tifffile, rng = pytest.importorskip("tifffile"), np.random.default_rng(0)
        (code,) = re.findall(r'title="encoder.py"\n(.*?)```', TEXTS[name], re.DOTALL)
        (place / "encoder.py").write_text(code)
        for side in ("real", "fake"):
            for folder in ("s2", "ct"):
                (place / folder / side).mkdir(parents=True)
            for number, image in enumerate(rng.integers(0, 3000, (N_PLAIN, 20, 20, 4)).astype(np.uint16)):
                layout = {"photometric": "minisblack", "planarconfig": "contig"}
                tifffile.imwrite(place / "s2" / side / f"{number}.tif", image, **layout)
            for number, volume in enumerate(rng.normal(0, 300, (5, 8, 20, 20)).astype(np.float32)):
                np.save(place / "ct" / side / f"{number}.npy", volume)
    if name == "checkpoints":
        shutil.rmtree(place / "samples")
        for step in (1000, 2000):
            shutil.copytree(place / "old", place / "samples" / str(step))


def names_of(name, monkeypatch):
    """Names that the Python code of a page assumes."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(2, N_PLAIN, 4))
    names = {"genpr": genpr, "Path": Path, "json": json}
    names |= {"real_features": features[0], "fake_features": features[1]}
    pixels = rng.integers(0, 256, (page_files.N_CLASSED, 3, 16, 16), dtype=np.uint8)
    if name == "README":
        names["samples"] = torch.from_numpy(pixels)
    if name == "getting-started":
        names["checkpoints"] = {1: torch.from_numpy(pixels)}
    if name == "align":
        names["other"] = genpr.align("samples/", "captions.txt")
    if name == "classes":
        names |= {"images": torch.from_numpy(pixels), "labels": ["cat"] * 26 + ["dog"] * 26}
    if name == "entities":
        names |= {"reference_text": "Armstrong on the Moon", "context": "Armstrong", "answer": "cat, dog"}
    if name == "generators":
        names["pipe"] = Pipe()
    if name == "labels":
        names |= {"requested": ["cat", "dog", "dog"], "predicted": ["cat", "dog", "cat"]}
    if name == "reconstruction":
        names["other"] = genpr.reconstruct("val/", "recon/", metrics=["psnr"], prepare="center-crop:256")
    if name == "text-to-image-diversity":
        names["other"] = genpr.diversity("by-prompt/", real="photos/")
    if name == "report":
        names |= {f"{side}_png": next(pngs(Path(side))).read_bytes() for side in ("real", "fake")}
    if name == "retrieval":
        own = np.arange(N_PLAIN)
        pools = (own[:, None] + np.arange(10)) % N_PLAIN
        names |= {"image_features": features[0], "text_features": features[1]}
        names |= {"own_prompt": own, "pools": pools}
    if name == "scaling":
        known = {
            "RANK": 0,
            "WORLD_SIZE": 1,
            "LOCAL_RANK": 0,
            "MASTER_PORT": free_port(),
            "MASTER_ADDR": "127.0.0.1",
        }
        for variable, value in known.items():
            monkeypatch.setenv(variable, str(value))
    if name == "sources":
        table = datasets.Dataset.from_parquet("data/train-0.parquet", cache_dir="cache")
        names["datasets"] = SimpleNamespace(load_dataset=lambda *_, **__: table)
    if name == "integrations":
        layers = nn.Linear(128, 768), nn.Tanh(), nn.Unflatten(1, (3, 16, 16))
        names |= {"model": nn.Sequential(*layers), "train_one_step": lambda _: None, "steps": 4}
        batches = torch.from_numpy(pixels / 255).split(20)
        names |= {"real_loader": batches, "fake_batches": [1 - batch for batch in batches]}
        loggers = {"torch.utils.tensorboard": "SummaryWriter", "wandb": "init log"}
        for module, functions in {**loggers, "mlflow": "start_run log_metrics"}.items():
            stub = SimpleNamespace(**dict.fromkeys(functions.split(), lambda *_, **__: None))
            monkeypatch.setitem(sys.modules, module, stub)
    return names


def pngs(folder):
    return iter(sorted(folder.rglob("*.png")))


def replaced(path, text):
    """Write a new file; the old one is a link to that of other pages."""
    path.unlink()
    path.write_text(text)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
