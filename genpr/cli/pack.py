"""`genpr pack SOURCE OUT.npz`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import click

from genpr.cli.console import progress_bars
from genpr.cli.grouped import SOURCE, GroupedCommand
from genpr.cli.options import follow_symlinks, option_group
from genpr.cli.output import OUTPUT, FileOutput
from genpr.errors import printable
from genpr.features.options import SourceOptions


@click.command(cls=GroupedCommand, name="pack")
@click.argument("source", type=SOURCE)
@click.argument("out", type=OUTPUT)
@option_group(SourceOptions)
@follow_symlinks
@option_group(FileOutput, "output")
def command(source: str, out: Path, *, options: SourceOptions, output: FileOutput) -> None:
    """Write the images in SOURCE to OUT (.npz), as one array `arr_0` of uint8 (n, h, w, 3).

    This is the format of OpenAI's reference batches, which their evaluator and others read. SOURCE is a folder, or a
    zip, tar, npz or npy file. Its images must all have the same size, and keep their order.
    """
    from genpr.images.item import passed_over, passed_over_text
    from genpr.images.pack import is_packed_from, pack_source
    from genpr.images.policy import reported
    from genpr.images.source import open_source, subset
    from genpr.notices import notice

    check = partial(output.check_file, out, (".npz",), is_packed_from(source))
    check()
    images = open_source(source)
    if options.max_images is not None:
        images = subset(images, options.max_images, options.seed)
    with progress_bars(quiet=output.quiet) as progress:
        packed = pack_source(
            images,
            out,
            bad_images=options.bad_images,
            policy=options.decoding,
            check=check,
            progress=None if progress is None else partial(progress, "packed"),
        )
    flags = reported(packed.flags, packed.n)
    flags |= {"skipped": len(packed.skipped)} if packed.skipped else {}
    total = f"{packed.n + len(packed.skipped):,}"
    notices = [notice(flag, role="source", count=f"{count:,}", total=total) for flag, count in flags.items()]
    record = {
        "out": str(out),
        "n": packed.n,
        "height": packed.height,
        "width": packed.width,
        "bytes": out.stat().st_size,
        "flags": dict(packed.flags),
        "skipped": [[error.path, error.code] for error in packed.skipped],
        "passed_over": passed_over(images),
    }
    images_of = f"{packed.n:,} image{'s' * (packed.n != 1)} of {packed.width} x {packed.height}"
    text = printable(f"packed {images_of} into {out}{passed_over_text(passed_over(images))}")
    output.show(notices, json.dumps(record) if output.as_json else text)
