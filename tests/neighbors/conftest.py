"""What is asked of functions, noted on the way."""

from collections.abc import Callable
from dataclasses import replace
from pkgutil import resolve_name

import pytest


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """The length of one argument of functions of genpr.neighbors, call by call."""

    def note(argument: int, *names: str) -> list[int]:
        seen: list[int] = []
        for name in (f"genpr.neighbors.{name}" for name in names):
            call = resolve_name(name)
            monkeypatch.setattr(
                name, lambda *args, call=call: (seen.append(len(args[argument])), call(*args))[1]
            )
        return seen

    return note


@pytest.fixture
def sized(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Change sizes of the profile of CPUs."""
    target = "genpr.neighbors.device_profile.CPU"
    return lambda **sizes: monkeypatch.setattr(target, replace(resolve_name(target), **sizes))


@pytest.fixture
def verified(noted) -> list[int]:
    """How many pairs the definition was asked for, call by call."""
    return noted(2, *(f"{module}.sq_distances_at" for module in ("counts", "nearest", "search")))
