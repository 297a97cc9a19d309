"""`python -m genpr`, and the console script: signals are handled before anything large is imported."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line of this process, and end it."""
    from genpr.cli import process
    from genpr.runtime import is_launched, launched_rank, limit_malloc_arenas

    process.open_standard_streams()
    os.environ.pop("MPLBACKEND", None)  # which may name a backend that is not installed, and is not needed
    ending = process.Ending(as_json="--json" in sys.argv)
    if is_launched() and launched_rank():
        process.mute()  # the first of several processes prints for all
    try:
        limit_malloc_arenas()  # there is no thread yet
        sys.meta_path.insert(0, process.AddressSpaceGuard)
        process.install_signal_handlers(ending)
        from genpr.cli.ranks import run_as_launched

        code = run_as_launched(sys.argv[1:], ending)
    except KeyboardInterrupt as error:  # before the command began, or after it ended
        from genpr.cli.main import print_error

        code = print_error(error, ending)
    process.restore_default_handlers()
    from genpr.cli.console import finish_stdout

    sys.exit(finish_stdout(code))


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
