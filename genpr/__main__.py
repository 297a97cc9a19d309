"""`python -m genpr`, and the console script: signals are answered before anything large is imported."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

_NO_RESOURCE = 4  # as ResourceError.exit_code, which cannot be imported where nothing can


def main() -> None:
    """Run the command line of this process, and end it."""
    try:
        code = _run()
    except (
        OSError,
        RuntimeError,
        MemoryError,
        ImportError,
    ) as error:  # outside of what reports errors itself
        code = _report_refusal(error)
    sys.exit(code)


def _run() -> int:
    from genpr.cli.process import (
        MutableOutput,
        SignalReport,
        check_threads,
        install_signal_handlers,
        prepare,
        restore_default_handlers,
        signal_of,
    )
    from genpr.runtime import is_launched, launched_rank, limit_malloc_arenas

    prepare()
    report, output = SignalReport(as_json="--json" in sys.argv), MutableOutput()
    if is_launched() and launched_rank():
        output.mute()  # the first of several processes prints for all
    try:
        limit_malloc_arenas()  # there is no thread yet
        install_signal_handlers(report)
        if not {"-h", "--help", "--version"} & {*sys.argv}:
            check_threads()
        from genpr.cli.ranks import run_as_launched

        code = run_as_launched(sys.argv[1:], report, output)
    except KeyboardInterrupt as error:  # before the command began, or after it ended
        code = report.print(signal_of(error))
    restore_default_handlers()
    from genpr.cli.console import finish_stdout

    return finish_stdout(code)


def _report_refusal(error: Exception) -> int:
    """Say in one line, without an import, that the system gives this process too little to begin; the exit code.

    Raises:
        ModuleNotFoundError: A library is missing.
        RuntimeError: It is another error, and a bug.
    """
    is_other = isinstance(error, RuntimeError) and "thread" not in str(error)
    if is_other or isinstance(error, ModuleNotFoundError):
        raise error
    text = (
        f"genpr cannot start ({error or type(error).__name__}); allow this process more open files (ulimit -n), "
        "processes and threads (ulimit -u), or memory"
    )
    with suppress(OSError):
        os.write(2, f"error: {text}\n".encode(errors="backslashreplace"))
    if "--json" in sys.argv:
        shown = "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "?" for c in text)
        record = f'{{"error": {{"code": "system", "message": "{shown}", "exit_code": {_NO_RESOURCE}, "path": null}}}}'
        with suppress(OSError):
            os.write(1, f"{record}\n".encode())
    return _NO_RESOURCE


def _forget_working_directory() -> None:
    """Import nothing from the working directory, which `python -m` puts before all others, unless genpr itself lies there.

    It may hold the data of strangers, and a `torch.py` among them. Modules that the user names are still found there.
    """
    try:
        is_first = not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]  # noqa: PTH109 - as Python wrote it
    except OSError:  # it was removed
        return
    if not is_first:
        return
    first = sys.path.pop(0)
    if sys.modules["genpr"].__path__[0] == os.path.join(first, "genpr"):  # noqa: PTH118 - as Python made it
        sys.path.append(first)


if __name__ == "__main__":
    _forget_working_directory()
    main()
