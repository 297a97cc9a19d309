"""The `genpr` command: finds the subcommand, and turns every outcome into an exit code."""

from __future__ import annotations

import errno
import importlib
import json
import os
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any

import click

from genpr import __version__
from genpr.cli.console import complain, emit
from genpr.cli.process import SignalReport, signal_of
from genpr.errors import BadImagesError, GenprError, ResourceError, limited, short
from genpr.runtime import is_out_of_files, is_out_of_memory, is_out_of_threads

_COMMANDS = {
    "score": "Precision, recall, density and coverage of generated images.",
    "align": "Do images show what their prompts say: R-precision, hit rates, CLIPScore.",
    "reconstruct": "PSNR, SSIM, LPIPS, rFID of reconstructed images, paired with their originals.",
    "modes": "Kinds of images that a generator misses, and those that it invents.",
    "sweep": "What truncation, guidance or any other setting trades for what.",
    "watch": "Score what a training run writes, samples or checkpoints; keep the best.",
    "compare": "Results side by side, if they were made alike.",
    "rank": "Checkpoints by their generated images: the best, and those that are statistically tied with it.",
    "entities": "Which of the expected entities answers about images name, however they are written.",
    "features": "Embed images once, and keep the features in a file.",
    "stats": "Write mean and covariance of features, to which Fréchet distances are computed.",
    "pack": "Write images of one size to one .npz file, as OpenAI's evaluator reads them.",
    "demo": "See what the four numbers mean, on images drawn for the purpose.",
    "audit": "Hold metrics against sanity checks with known answers.",
    "doctor": "Check this machine: libraries, GPUs, cache, weights, and a self-test.",
    "weights": "Show, download and check the weights of the extractors.",
    "cache": "Show what the feature cache holds, and make it smaller.",
    "list": "Show the known extractors, protocols and metrics.",
}

_BUG, _USAGE = 1, 2
_SHOWN_BAD_IMAGES = 20
_IMPOSSIBLE_PATHS = {errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.ENOENT}
_MISSING_RESOURCES = (
    (is_out_of_threads, "threads", "no thread can be started; allow this process more (ulimit -u)"),
    (is_out_of_files, "system", "too many open files; allow this process more (ulimit -n)"),
    (
        is_out_of_memory,
        "oom",
        "out of memory; free some, score fewer images (--max-images), or use another --device",
    ),
)


class _LazyGroup(click.Group):
    """Imports a command's module only when that command runs, so that --help answers at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"genpr.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table above, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(
    cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="genpr")
def cli() -> None:
    """Exact precision, recall, density and coverage for generative image models.

    \b
    genpr demo                                   see what the numbers mean
    genpr score real/ fake/                      score a folder of images
    genpr score real/ fake/ --json > score.json  for scripts
    genpr features real/ real.safetensors        embed once, score many times

    Results go to stdout, everything else to stderr. Exit codes: 0 ok, 1 bug, 2 usage, 3 bad data,
    4 resource or weights, 5 a --fail-under threshold was missed, 130 interrupted, 143 terminated.
    """  # noqa: D301 - click reads the backspace as "do not rewrap"


def run(
    args: Sequence[str],
    report: SignalReport | None = None,
    around: Callable[[Callable[[], Any]], Any] = lambda call: call(),
) -> int:
    """Run the command line `args` and return the exit code; errors become one message on stderr.

    `report` prints that a signal came, and `around` calls the command.
    """
    as_json = "--json" in args
    try:
        # In a context of its own, since options such as --follow-symlinks hold for this command only.
        context = copy_context()
        outcome = around(
            lambda: context.run(cli.main, args=list(args), prog_name="genpr", standalone_mode=False)
        )
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return _USAGE
    except (click.Abort, KeyboardInterrupt) as error:
        return (report or SignalReport(as_json=as_json)).print(signal_of(error))
    except Exception as error:  # noqa: BLE001 - the last resort: a bug must not look like a result
        record = _record_of(error)
        complain(f"error: {record['message']}")
        if as_json and record["code"] != "stdout":
            with suppress(ResourceError):
                emit(json.dumps({"error": record}))
        return int(record["exit_code"])
    return outcome if isinstance(outcome, int) else 0


def _record_of(error: Exception) -> dict[str, Any]:
    """What is reported of an error."""
    message, code, exit_code, path = _facts_of(error)
    record = {
        "code": code,
        "message": limited(message),
        "exit_code": exit_code,
        "path": path and limited(path),
    }
    if isinstance(error, BadImagesError):
        for bad in error.bad[:_SHOWN_BAD_IMAGES]:
            complain(f"  {bad.code}: {bad}")
        if len(error.bad) > _SHOWN_BAD_IMAGES:
            complain(f"  and {len(error.bad) - _SHOWN_BAD_IMAGES} more (all of them with --json)")
        record["bad"] = [{"path": bad.path, "code": bad.code, "message": str(bad)} for bad in error.bad]
    return record


def _facts_of(error: Exception) -> tuple[str, str, int, str | None]:
    """Message, code, exit code and path."""
    if isinstance(error, click.UsageError):
        hint = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        # click lists choices below each other
        return " ".join(error.format_message().split()) + hint, "usage", _USAGE, None
    if isinstance(error, GenprError):
        return str(error), error.code, error.exit_code, error.path
    for is_cause, code, text in _MISSING_RESOURCES:
        if is_cause(error):
            return text, code, ResourceError.exit_code, None
    if os.environ.get("GENPR_DEBUG"):
        for line in traceback.format_exc().splitlines():
            complain(line)
    what = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if notes := getattr(error, "__notes__", None):  # left by genpr where it calls a user's code
        return f"{notes[0]}: {what}", "custom-extractor", _USAGE, None
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] != "genpr":
        text = f"a library that genpr needs cannot be imported ({error}); `genpr doctor` says which, and what to do"
        return text, "broken-library", ResourceError.exit_code, None
    if isinstance(error, OSError) and error.errno:
        # No other check reports it: an impossible path, or a failing disk.
        path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else None
        shown = "" if path is None else f"{short(path, 200)}: "
        is_path = error.errno in _IMPOSSIBLE_PATHS
        code, exit_code = ("bad-path", _USAGE) if is_path else ("system", ResourceError.exit_code)
        return f"{shown}{error.strerror}; genpr cannot go on without it", code, exit_code, path
    return f"this is a bug in genpr: {what} (GENPR_DEBUG=1 shows where)", "bug", _BUG, None
