"""`python -m genpr`, and the console script: signals are answered before anything else is imported."""

from __future__ import annotations

import sys

from genpr.cli.signals import Farewell, answer_signals, end_by_signals_alone, signal_of


def main() -> None:
    """Run the command line of this process, and end it."""
    farewell = Farewell(as_json="--json" in sys.argv)
    try:
        answer_signals(farewell)
        from genpr.cli.main import run

        code = run(sys.argv[1:], farewell)
    except KeyboardInterrupt as error:  # before the command began, or after it ended
        code = farewell.say(signal_of(error))
    end_by_signals_alone()
    sys.exit(code)


if __name__ == "__main__":
    main()
