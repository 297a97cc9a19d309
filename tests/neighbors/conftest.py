from __future__ import annotations

import pytest

from genpr.neighbors import engine


@pytest.fixture(autouse=True)
def _bounded_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sets, too, are searched by bounds, unless a test names an engine that is direct."""
    monkeypatch.setattr(engine, "DIRECT_ELEMENTS", 0)
