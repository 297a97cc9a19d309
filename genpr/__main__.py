"""`python -m genpr`, and the console script: signals are answered before anything else is imported."""

from __future__ import annotations

import sys

from genpr.cli.signals import Farewell, answer_signals, end_by_signals_alone, signal_of
from genpr.cli.voice import Voice
from genpr.heaps import keep_one_heap
from genpr.ranks.environment import is_launched, launched_rank


def main() -> None:
    """Run the command line of this process, and end it."""
    farewell, voice = Farewell(as_json="--json" in sys.argv), Voice()
    if is_launched() and launched_rank():
        voice.mute()  # the first of several processes speaks for all
    try:
        keep_one_heap()  # there is no thread yet
        answer_signals(farewell)
        from genpr.cli.ranks import run_as_launched

        code = run_as_launched(sys.argv[1:], farewell, voice)
    except KeyboardInterrupt as error:  # before the command began, or after it ended
        code = farewell.say(signal_of(error))
    end_by_signals_alone()
    sys.exit(code)


if __name__ == "__main__":
    main()
