"""The `genpr` command: finds the subcommand, and returns an exit code for every outcome."""

from __future__ import annotations

import errno
import importlib
import os
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

import click

from genpr import __version__
from genpr.cli.console import RESULT_PRINTED, print_stderr, print_stdout
from genpr.cli.process import Ending, as_signal
from genpr.errors import BadImagesError, GenprError, ResourceError, UsageError, limited, short
from genpr.runtime import is_out_of_handles, is_out_of_memory

_SECTIONS = {
    "Score and compare": {
        "score": "Precision, recall, density, coverage and other metrics of generated images.",
        "compare": "Compare results side by side, with intervals of their differences.",
        "modes": "Find modes that a generator misses, and modes that it invents.",
        "reconstruct": "PSNR, SSIM, LPIPS and rFID of reconstructed images.",
    },
    "Training and checkpoints": {
        "watch": "Score samples or checkpoints while a training run writes them.",
        "rank": "Rank checkpoints, with those statistically tied with the best.",
        "sweep": "Score a generator over truncation, guidance or another parameter.",
    },
    "Conditional generation": {
        "diversity": "LPIPS, MS-SSIM or feature distances of images of one prompt or class.",
        "align": "R-precision, hit rates and CLIPScore of images and their prompts.",
        "entities": "Recall of expected entities, from answers about images or by a detector.",
    },
    "Tools": {
        "features": "Embed images once, and write their features to a file.",
        "stats": "Write mean and covariance of features, for Fréchet distances.",
        "list": "List extractors, protocols or metrics.",
        "weights": "List, download and verify the weights of the extractors.",
        "cache": "Show or prune the feature cache.",
        "doctor": "Check libraries, GPUs and cache, and run a self-test.",
        "demo": "Show what the metrics detect, on images that are drawn for it.",
    },
}
_IN_ONE_FILE = {
    **dict.fromkeys(("align", "diversity", "entities", "modes", "reconstruct"), "results"),
    **dict.fromkeys(("features", "stats"), "features"),
}
COMMANDS = {name: text for section in _SECTIONS.values() for name, text in section.items()}

_USAGE = 2
_SHOWN_BAD_IMAGES = 20
_IMPOSSIBLE_PATHS = {errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.ENOENT}
_TOO_MANY = "too many threads or open files; raise their limits (ulimit -u, ulimit -n)"
_NO_MEMORY = "out of memory; free memory, score fewer images, or use another --device"


class _LazyGroup(click.Group):
    """Imports the module of a command only when that command runs, so that --help and completion are fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        is_alone = cmd_name not in _IN_ONE_FILE
        module = importlib.import_module(f"genpr.cli.{_IN_ONE_FILE.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, "command" if is_alone else cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in sections, without importing them."""
        width = max(map(len, COMMANDS))
        for heading, commands in _SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])


@click.group(
    cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="genpr")
def cli() -> None:
    """Exact precision, recall, density and coverage for generative image models.

    \b
    genpr demo                                   an example with drawn images
    genpr score real/ fake/                      score a folder of images
    genpr score real/ fake/ --json > score.json  for scripts
    genpr score --help                           options of a command

    Results are printed on stdout, everything else on stderr. Exit codes: 0 success, 1 bug, 2 usage, 3 data, 4 resource
    or weights, 5 threshold missed (--fail-under), 130 interrupted, 143 terminated.
    """  # noqa: D301 - click reads the backspace as "do not rewrap"
    try:
        Path.cwd()
    except OSError as error:  # MKL would end the process
        text = "the current folder was deleted or cannot be read; change to another folder"
        raise UsageError(text, code="bad-path") from error


def run(
    args: Sequence[str],
    ending: Ending | None = None,
    around: AbstractContextManager[object] = nullcontext(),  # noqa: B008 - it has no state
) -> int:
    """Run the command line `args` inside `around` and return the exit code; an error is printed as one message on stderr."""
    ending = ending or Ending(as_json="--json" in args)
    try:
        with around:
            # A separate context, since options such as --follow-symlinks apply to this command only.
            outcome = copy_context().run(
                cli.main, args=list(args), prog_name="genpr", standalone_mode=False, obj=ending
            )
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return _USAGE
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # a bug must not look like a result
        if isinstance(error, SystemExit) and "_GENPR_COMPLETE" in os.environ:  # click's end of a completion
            raise
        return print_error(error, ending)
    return outcome if isinstance(outcome, int) else 0


def print_error(error: BaseException, ending: Ending) -> int:
    """Print an error, and with --json its record; return the exit code."""
    message, code, exit_code, path = _facts_of(error)
    record: dict[str, Any] = {"code": code, "message": limited(message), "exit_code": exit_code}
    record["path"] = path and limited(path)
    if code in ("interrupted", "terminated") and not ending.claim():
        return exit_code
    if os.environ.get("GENPR_DEBUG"):
        for line in traceback.format_exception(error):
            print_stderr(line.rstrip())
    if isinstance(error, BadImagesError):
        for bad in error.bad[:_SHOWN_BAD_IMAGES]:
            print_stderr(f"  {bad.code}: {bad}")
        record["bad"] = [{"path": bad.path, "code": bad.code, "message": str(bad)} for bad in error.bad]
    print_stderr(f"error: {record['message']}")
    if ending.as_json and code != "stdout" and RESULT_PRINTED not in getattr(error, "__notes__", ()):
        with suppress(ResourceError):
            print_stdout(ending.record(record))
    return exit_code


def _facts_of(error: BaseException) -> tuple[str, str, int, str | None]:
    """Message, code, exit code and path."""
    if isinstance(error, click.Abort | KeyboardInterrupt):
        ended = as_signal(error)
        return str(ended), ended.code, ended.exit_code, None
    if isinstance(error, click.UsageError):
        hint = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        # Click lists choices on several lines.
        return " ".join(error.format_message().split()) + hint, "usage", error.exit_code, None
    if isinstance(error, GenprError):
        return str(error), error.code, error.exit_code, error.path
    if is_out_of_handles(error):
        return _TOO_MANY, "system", ResourceError.exit_code, None
    if is_out_of_memory(error):
        return _NO_MEMORY, "oom", ResourceError.exit_code, None
    what = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] != "genpr":
        text = f"a library that genpr needs cannot be imported ({error}); run `genpr doctor` for the reason and a fix"
        return text, "broken-library", ResourceError.exit_code, None
    if isinstance(error, OSError) and error.errno:
        # An impossible path or a failing disk that no other check reports.
        path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else None
        shown = "" if path is None else f"{short(path, 200)}: "
        is_path = error.errno in _IMPOSSIBLE_PATHS
        code, exit_code = ("bad-path", _USAGE) if is_path else ("system", ResourceError.exit_code)
        return f"{shown}{error.strerror}", code, exit_code, path
    return f"this is a bug in genpr: {what}; GENPR_DEBUG=1 prints the traceback", "bug", 1, None
