"""`genpr doctor`: checks of this machine, and what they find.

This module imports nothing that may be broken on the machine that is examined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["ok", "warn", "broken"]


@dataclass(frozen=True)
class Finding:
    """One line of the examination.

    Attributes:
        name: What was looked at, stable.
        state: "ok"; "warn" where a score is right but slower, or something optional is missing; "broken" where a score
            would fail or could not be trusted.
        text: What was seen, in one line.
        remedy: What to do about it, best a command; empty where there is nothing to do.
        facts: The same for programs: plain JSON values by name.
    """

    name: str
    state: State
    text: str
    remedy: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """A check that gives findings; one that raises an error gives that error as its finding.

    Attributes:
        name: Of its finding, or of the first of them.
        find: Makes the findings; it may raise anything.
        needs: Libraries without which it cannot run.
    """

    name: str
    find: Callable[[], Iterable[Finding]]
    needs: tuple[str, ...] = ()

    def run(self, broken: Iterable[str] = ()) -> list[Finding]:
        """Return the findings; where a needed library is `broken`, one that says that the check did not run."""
        missing = [name for name in self.needs if name in set(broken)]
        if missing:
            return [Finding(self.name, "warn", f"not looked at, since {missing[0]} cannot be imported")]
        try:
            return list(self.find())
        except Exception as error:  # noqa: BLE001 - on a broken machine anything may be raised
            return [Finding(self.name, "broken", f"could not be looked at ({format_error(error)})")]


def format_error(error: BaseException) -> str:
    """An error on one line, truncated."""
    said = " ".join(str(error).split())
    said = said if len(said) <= 200 else f"{said[:200]}..."
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
