"""A million tiny images in tar shards: listed, embedded with two interruptions, and partly scored."""

from __future__ import annotations

import hashlib
import json
import mmap
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from _machine import describe_machine
from _tiny_images import write_shards
from _watched import Watched, watch

from genpr.features.cache import SHARD_ROWS
from genpr.runtime import usable_cores

_SCRIPT = str(Path(__file__))
_RESULTS = Path(__file__).parent / "results"
_LIST = "import sys; from genpr.images.source import open_source; print(len(open_source(sys.argv[1])))"
_NOTHING = "import genpr.images.source"
_FAKE_SPREAD = 0.9


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--images", default=1_000_000, show_default=True, type=click.IntRange(1000))
@click.option("--shards", default=100, show_default=True, type=click.IntRange(1), help="Number of tar files.")
@click.option(
    "--scored",
    default=100_000,
    show_default=True,
    type=click.IntRange(100),
    help="Number of scored images of each set.",
)
@click.option(
    "--kills",
    default=2,
    show_default=True,
    type=click.IntRange(0),
    help="Number of interruptions, evenly spaced.",
)
@click.option(
    "--max-memory",
    default="2GiB",
    show_default=True,
    help="Memory limit of genpr; larger features are mapped.",
)
@click.option(
    "--tars",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the tar files, which are written if missing and kept.",
)
@click.option(
    "--temp-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder for temporary images, cache and features: up to 40 KB per image.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON lines file to append to.  [default: benchmarks/results/million-<date>-cpu.jsonl]",
)
def main(
    images: int,
    shards: int,
    scored: int,
    kills: int,
    max_memory: str,
    tars: Path | None,
    temp_dir: Path | None,
    out: Path | None,
) -> None:
    """Run every step in its own process; exit with 1 if the resumed run differs in a byte or repeats too much work."""
    record: dict[str, Any] = {"format": "genpr.benchmark-million/1", "images": images, "tar_files": shards}
    with tempfile.TemporaryDirectory(prefix="genpr-bench-", dir=temp_dir) as name:
        run = _Run(Path(name), tars or Path(name), max_memory, record)
        run.write(images, shards, scored)
        run.list_images()
        run.embed("uninterrupted", "--no-cache").unlink()
        reals = run.embed_with_kills(kills, images)
        record["equal_to_the_byte"] = record["uninterrupted"]["sha256"] == record["resumed"]["sha256"]
        run.score(reals, scored)
    record |= {"ended": datetime.now(UTC).isoformat(timespec="seconds")}
    record["machine"] = asdict(describe_machine(threads=usable_cores(), device="cpu"))
    out = out or _RESULTS / f"million-{datetime.now(UTC):%Y-%m-%d}-cpu.jsonl"
    with out.open("a") as file:
        file.write(json.dumps(record) + "\n")
    lost = max((kill["lost"] for kill in record["kills"]), default=0)
    if not record["equal_to_the_byte"] or lost >= 2 * SHARD_ROWS:
        sys.exit(1)


class _Run:
    def __init__(self, folder: Path, tars: Path, max_memory: str, record: dict[str, Any]) -> None:
        self.folder, self.tars, self.max_memory, self.record = folder, tars, max_memory, record
        self.reals, self.fakes = (str(tars / side / "*.tar") for side in ("real", "fake"))
        self.cache, self.done = folder / "cache", folder / "done"

    def write(self, images: int, shards: int, scored: int) -> None:
        fake_shards = -(-shards * scored // images)
        sides = (("real", images, shards, 1.0), ("fake", scored, fake_shards, _FAKE_SPREAD))
        for seed, (side, n, files, spread) in enumerate(sides, 1):
            if not (self.tars / side).exists():
                write_shards(self.tars / side, images=n, shards=files, spread=spread, seed=seed)
        self.record["tar_bytes"] = sum(path.stat().st_size for path in self.tars.glob("real/*.tar"))
        self._log("written", bytes=self.record["tar_bytes"])

    def list_images(self) -> None:
        nothing, listed = watch(["-c", _NOTHING]), watch(["-c", _LIST, self.reals])
        more = listed.anonymous_peak_bytes - nothing.anonymous_peak_bytes
        self._note("listing", listed, n=int(listed.output), anonymous_bytes_above_imports=more)

    def embed(self, title: str, *options: str) -> Path:
        out = self.folder / f"{title}.safetensors"
        done = watch(self._arguments(out, *options))
        self._note(title, done, **_facts(done.output), bytes=out.stat().st_size, sha256=_sha256(out))
        return out

    def embed_with_kills(self, kills: int, images: int) -> Path:
        out, cached = self.folder / "resumed.safetensors", 0
        self.record["kills"] = []
        for number in range(1, kills + 1):
            limit = images * number // (kills + 1)  # in the middle of a shard
            self.done.write_bytes(bytes(8))
            killed = watch(
                self._arguments(out, "--cache-dir", str(self.cache)),
                kill_when=lambda: self._taken() >= limit,  # noqa: B023
            )
            before, cached = cached, self._n_rows()
            # All that were taken from the source were embedded, or are on their way, or came from the cache.
            facts = {
                "taken": self._taken(),
                "in_cache_before": before,
                "in_cache": cached,
                "lost": self._taken() - cached,
            }
            self.record["kills"].append(facts | {"seconds": killed.seconds})
            self._log("killed", **facts)
        resumed = self.embed("resumed", "--cache-dir", str(self.cache))
        assert self.record["resumed"]["n_cached"] == cached, "all that is in the cache is used"
        shutil.rmtree(self.cache)
        return resumed

    def score(self, reals: Path, n: int) -> None:
        fakes = self.folder / "fake.safetensors"
        embed = ["features", self.fakes, str(fakes), "--extractor", "pixels", "-q", "--no-cache"]
        watch(["-m", "genpr", *embed])
        options = ["--max-memory", self.max_memory, "--no-intervals", "--no-control", "--json", "-q"]
        done = watch(["-m", "genpr", "score", str(reals), str(fakes), "--max-images", str(n), *options])
        values = {name: metric["value"] for name, metric in json.loads(done.output)["metrics"].items()}
        self._note("score", done, n=n, values=values)

    def _arguments(self, out: Path, *options: str) -> list[str]:
        more = ["--extractor", "pixels", "--device", "cpu", "--max-memory", self.max_memory, "--json"]
        return [_SCRIPT, "embed", str(self.done), "features", self.reals, str(out), *more, *options]

    def _taken(self) -> int:
        return int.from_bytes(self.done.read_bytes(), "little")

    def _n_rows(self) -> int:
        from genpr.features.cache_files import find_folders

        return sum(folder.count_rows() for folder in find_folders(self.cache))

    def _note(self, title: str, done: Watched, **facts: Any) -> None:  # noqa: ANN401 - JSON
        self.record[title] = {
            name: value for name, value in asdict(done).items() if name not in {"output", "killed"}
        }
        self.record[title] |= facts
        self._log(title, **self.record[title])

    def _log(self, title: str, **facts: Any) -> None:  # noqa: ANN401 - JSON
        click.echo(f"{datetime.now(UTC):%H:%M:%S} {title}: {json.dumps(facts)}", err=True)


def _facts(output: str) -> dict[str, Any]:
    """Output of `genpr features --json` without paths."""
    return {name: value for name, value in json.loads(output).items() if name != "out"}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _embed(done: str, *arguments: str) -> int:
    """`genpr` with a progress bar for another process: how many images were taken, in eight bytes of a file."""
    from genpr.cli import features
    from genpr.cli.main import run

    Path(done).write_bytes(bytes(8))
    with Path(done).open("r+b") as file, mmap.mmap(file.fileno(), 8) as count:

        def update(_stage: str, n: int, _total: int | None) -> None:
            count[:] = n.to_bytes(8, "little")

        @contextmanager
        def progress(*, quiet: bool) -> Iterator[Any]:
            yield update

        vars(features)["progress_bars"] = progress
        return run(arguments)


if __name__ == "__main__":
    if sys.argv[1:2] == ["embed"]:
        sys.exit(_embed(*sys.argv[2:]))
    main()
