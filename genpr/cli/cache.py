"""`genpr cache list | prune`: disk usage of the feature cache, and how to reduce it."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genpr.cli.options import GroupedCommand, cache_dir, grouped_option, option_group
from genpr.cli.output import TextOutput
from genpr.errors import UsageError, count_of, printable

if TYPE_CHECKING:
    from genpr.features.cache_files import CacheFolder

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@click.group(name="cache")
def command() -> None:
    """Show the cached features of images, or remove those that have not been used recently.

    \b
    genpr cache list                    files, images and last use by extractor
    genpr cache prune --max-size 5GB    remove the least recently used
    genpr cache prune --older-than 30d  remove features not used for 30 days

    Features can be removed at any time, also while genpr runs. They are computed again when they are needed.
    """  # noqa: D301 - click reads the backspace as "do not rewrap"


@command.command(cls=GroupedCommand, name="list", short_help="Show the contents by extractor.")
@cache_dir
@option_group(TextOutput, "output", without={"quiet"})
def list_folders(*, cache_dir: Path | None, output: TextOutput) -> None:
    """Show the contents: one entry per extractor, with its weights, resize rule, decoder and device."""
    from rich.filesize import decimal

    from genpr.report.text import cut, listing

    root, folders = _open(cache_dir)
    rows: list[dict[str, Any]] = [
        {
            "extractor": folder.extractor,
            "device": folder.key.get("device"),
            "files": len(folder.files),
            "images": folder.count_rows(),
            "size": folder.size,
            "last_used": folder.used and time.strftime("%Y-%m-%d %H:%M", time.localtime(folder.used)),
            "path": str(folder.path),
            "key": folder.key,
        }
        for folder in folders
    ]
    total = sum(row["size"] for row in rows)
    text = printable(f"no features are cached in {root}")
    columns = []
    if total:
        files = sum(row["files"] for row in rows)
        text = printable(f"{files:,} files, {decimal(total)} in {root / 'features'}")
        for row in rows:
            shown = {"extractor": cut(row["extractor"], 24), "size": decimal(row["size"])}
            columns.append(
                {name: row[name] for name in list(row)[:-2]} | shown | {"folder": Path(row["path"]).name}
            )
        text = f"{listing(columns, ('folder',))}\n{text}"
    output.show_record({"path": str(root), "size": total, "folders": rows}, text)


@command.command(cls=GroupedCommand, short_help="Remove features that have not been used recently.")
@grouped_option("--max-size", metavar="SIZE", help="Size to reduce the cache to, such as 5GB or 500MiB.")
@grouped_option("--older-than", metavar="AGE", help="Remove features not used for this time: 12h, 30d, 8w.")
@grouped_option("-n", "--dry-run", is_flag=True, help="Only report what would be removed.")
@cache_dir
@option_group(TextOutput, "output", without={"quiet"})
def prune(
    *, max_size: str | None, older_than: str | None, dry_run: bool, cache_dir: Path | None, output: TextOutput
) -> None:
    """Remove cached features, the least recently used first. Files that genpr did not write are left alone."""
    from rich.filesize import decimal

    from genpr.features.cache_files import choose_files, remove_files
    from genpr.memory import parse_bytes

    if max_size is None and older_than is None:
        raise click.UsageError("expected --max-size SIZE or --older-than AGE, such as 5GB or 30d")
    most = None if max_size is None else parse_bytes(max_size, "cache size")
    before = None if older_than is None else time.time() - _seconds(older_than)
    root, folders = _open(cache_dir)
    chosen = choose_files(folders, max_size=most, used_before=before)
    removed = chosen if dry_run else remove_files(chosen)
    size = sum(file.size for file in removed)
    left = sum(folder.size for folder in folders) - size
    record = {"path": str(root), "dry_run": dry_run, "removed": [str(file.path) for file in removed]}
    text = f"{'would remove' if dry_run else 'removed'} {count_of(len(removed), 'file')}, {decimal(size)}"
    output.show_record(record | {"removed_size": size, "left_size": left}, f"{text}; {decimal(left)} left")


def _open(cache_dir: Path | None) -> tuple[Path, list[CacheFolder]]:
    """The given cache folder, or the default one, which may not exist yet."""
    from genpr.features.cache_files import find_folders
    from genpr.runtime import cache_root

    if cache_dir is not None and not cache_dir.is_dir():
        text = f"there is no folder {cache_dir}; check --cache-dir"
        raise UsageError(text, code="path-not-found", path=str(cache_dir))
    root = cache_dir or cache_root()
    return root, find_folders(root)


def _seconds(age: str) -> float:
    """Parse an age such as `30d`."""
    match = re.fullmatch(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([smhdw])\s*", age.lower())
    if match is None:
        raise click.BadParameter(f"{age!r} is not an age such as 12h, 30d or 8w", param_hint="--older-than")
    return float(match[1]) * _SECONDS[match[2]]
