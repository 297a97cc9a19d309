"""`genpr cache list | prune`: what the feature cache takes of the disk, and how to make it take less."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genpr.cli.console import as_json, cache_dir, emit
from genpr.errors import UsageError, printable

if TYPE_CHECKING:
    from genpr.features.cache_files import CacheFolder

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@click.group(name="cache")
def command() -> None:
    """Show the cached features of images, or remove those that were not used for long.

    \b
    genpr cache list                    by extractor: files, images, bytes, use
    genpr cache prune --max-size 5GB    the longest unused, until so much is left
    genpr cache prune --older-than 30d  what was not used for so long goes

    Removing features is safe at any time, beside a running genpr too: they are made again when needed.
    """  # noqa: D301 - click reads the backspace as "do not rewrap"


@command.command(name="list", short_help="Show what is kept, by extractor.")
@cache_dir
@as_json
def list_folders(*, cache_dir: Path | None, as_json: bool) -> None:
    """Show what is kept: one entry for each extractor with its weights, resize rule, decoder and device."""
    root, folders = _open(cache_dir)
    total = sum(folder.size for folder in folders)
    rows: list[dict[str, Any]] = [
        {
            "extractor": folder.extractor,
            "device": folder.key.get("device"),
            "files": len(folder.files),
            "images": folder.count_rows(),
            "size": folder.size,
            "last_used": folder.used,
            "path": str(folder.path),
            "key": folder.key,
        }
        for folder in folders
    ]
    if as_json:
        emit(json.dumps({"path": str(root), "size": total, "folders": rows}))
    elif not total:
        emit(printable(f"no features are cached in {root}"))
    else:
        from rich.filesize import decimal

        from genpr.report.score_tables import listing

        files = sum(row["files"] for row in rows)
        text = printable(f"{files:,} files, {decimal(total)} in {root / 'features'}")
        emit(f"{listing([_shown(row) for row in rows], ('folder',))}\n{text}")


@command.command(short_help="Remove what was not used for long.")
@click.option("--max-size", metavar="SIZE", help="Most that may stay, such as 5GB or 500MiB.")
@click.option("--older-than", metavar="AGE", help="Remove what was not used for so long: 12h, 30d, 8w.")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would go.")
@cache_dir
@as_json
def prune(
    *,
    max_size: str | None,
    older_than: str | None,
    dry_run: bool,
    cache_dir: Path | None,
    as_json: bool,
) -> None:
    """Remove cached features, the longest unused first, and nothing that genpr did not write."""
    from rich.filesize import decimal

    from genpr.features.cache_files import choose_files, remove_files
    from genpr.memory import parse_bytes

    if max_size is None and older_than is None:
        raise click.UsageError("say what may go: --max-size 5GB or --older-than 30d")
    most = None if max_size is None else parse_bytes(max_size, "cache size")
    before = None if older_than is None else time.time() - _seconds(older_than)
    root, folders = _open(cache_dir)
    going = choose_files(folders, max_size=most, used_before=before)
    gone = going if dry_run else remove_files(going)
    size = sum(file.size for file in gone)
    left = sum(folder.size for folder in folders) - size
    if as_json:
        sizes = {"removed_size": size, "left_size": left}
        removed = [str(file.path) for file in gone]
        emit(json.dumps({"path": str(root), "dry_run": dry_run, "removed": removed, **sizes}))
    else:
        verb = "would remove" if dry_run else "removed"
        emit(f"{verb} {len(gone):,} file{'s' * (len(gone) != 1)}, {decimal(size)}; {decimal(left)} left")


def _open(cache_dir: Path | None) -> tuple[Path, list[CacheFolder]]:
    """The cache that was named, or the usual one, which may not exist yet."""
    from genpr.features.cache_files import find_folders
    from genpr.runtime import cache_root

    if cache_dir is not None and not cache_dir.is_dir():
        text = f"there is no folder {cache_dir}; check --cache-dir"
        raise UsageError(text, code="path-not-found", path=str(cache_dir))
    root = cache_dir or cache_root()
    return root, find_folders(root)


def _seconds(age: str) -> float:
    """Of `30d` and the like."""
    match = re.fullmatch(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([smhdw])\s*", age.lower())
    if match is None:
        raise click.BadParameter(f"{age!r} is no age such as 12h, 30d or 8w", param_hint="--older-than")
    return float(match[1]) * _SECONDS[match[2]]


def _shown(row: dict[str, Any]) -> dict[str, str | None]:
    from rich.filesize import decimal

    from genpr.report.text import cut

    used = time.localtime(row["last_used"])
    return {
        "extractor": cut(row["extractor"], 24),
        "device": row["device"],
        **{name: f"{row[name]:,}" for name in ("files", "images")},
        "size": decimal(row["size"]),
        "last use": None if row["last_used"] is None else time.strftime("%Y-%m-%d %H:%M", used),
        "folder": Path(row["path"]).name,
    }
