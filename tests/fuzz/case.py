"""One input: made from a seed and a number, given to genpr, and judged."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from fuzz.guard import watched
from fuzz.kinds import kinds
from fuzz.raw import flip_bits, splice
from fuzz.readers import assert_is_fit_to_show
from genpr.errors import GenprError

MOST_SECONDS = 5.0  # of processor time
MOST_BYTES = 2**30


@dataclass(frozen=True)
class Case:
    """A damaged input.

    Attributes:
        kind: Of what.
        name: "SEED/KIND/NUMBER", from which it can be made again.
        data: The input.
        steps: What was done to a valid one.
    """

    kind: str
    name: str
    data: bytes
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        result: "score", the code of an error, or "finding".
        seconds: Processor time.
        finding: What genpr did that it must not; None if nothing.
    """

    result: str
    seconds: float
    finding: str | None = None


def case_of(seed: int, kind: str, number: int) -> Case:
    """The same for the same seed, kind and number, on any machine with the same libraries."""
    name = f"{seed}/{kind}/{number}"
    rng, known = Random(name), kinds()[kind]
    at = rng.randrange(len(known.files))
    data, steps = known.files[at], [f"file {at}"]
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        if len(known.files) > 1 and kind != "command" and rng.random() < 0.05:
            data = splice(rng, data, known.files)
            steps.append("splice")
        else:
            damage = rng.choice(known.damages)
            try:
                data = damage(rng, data)
            except Exception:  # noqa: BLE001 - what an earlier step left is no such format any more
                damage = flip_bits
                data = damage(rng, data)
            steps.append(damage.__name__)
    return Case(kind, name, data[: 2**24], tuple(steps))


def outcome_of(case: Case) -> Outcome:
    """Give it to genpr, in a folder of its own."""
    kind = kinds()[case.kind]  # whose making writes files
    with _folder() as folder, watched(folder) as forbidden:
        before, started = _peak_bytes(), time.process_time()
        try:
            result = kind.read(case.data, folder)
        except GenprError as error:
            outcome, finding = error.code, _of_message(error)
        except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
            outcome, finding = "finding", traceback.format_exc()
        else:
            outcome, finding = result if isinstance(result, str) else "score", None
        seconds, grown = time.process_time() - started, _peak_bytes() - before
    if forbidden:
        finding = f"{finding or ''}\nforbidden: {'; '.join(forbidden[:5])}"
    if seconds > MOST_SECONDS:
        finding = f"{finding or ''}\n{seconds:.1f} s"
    if grown > MOST_BYTES:
        finding = f"{finding or ''}\n{grown:,} bytes more"
    return Outcome("finding" if finding else outcome, seconds, finding)


def _of_message(error: GenprError) -> str | None:
    try:
        assert_is_fit_to_show(error)
    except AssertionError:
        return traceback.format_exc()
    return None


@contextmanager
def _folder() -> Iterator[Path]:
    """A new folder, in which the cache is, too."""
    folder = Path(tempfile.mkdtemp(prefix="genpr-fuzz-"))
    before = {name: os.environ.get(name) for name in ("GENPR_CACHE", "GENPR_OFFLINE")}
    os.environ.update(GENPR_CACHE=str(folder / "cache"), GENPR_OFFLINE="1")
    try:
        yield folder
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
        shutil.rmtree(folder, ignore_errors=True)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
