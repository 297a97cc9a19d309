"""How a score was made, as groups of facts in plain text: the records of the result by their own names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from genpr.evaluation.result import Result
from genpr.metrics.metric import MANIFOLD
from genpr.report.score_tables import THRESHOLDS, features_of, hubness_text
from genpr.report.text import capital, shown

_MOST_LISTED = 5
_ELSEWHERE = {"failures", "entities", "name", "skipped"}
"""Fields of records that have a table or a line of their own."""


def provenance_of(result: Result) -> list[tuple[str, dict[str, str]]]:
    """Everything needed to repeat the score, as (heading, facts)."""
    roles = ("real images", "fake images") if result.roles == ("real", "fake") else result.roles
    groups: list[tuple[str, dict[str, str]]] = [("How it was scored", _recipe(result))]
    sets = {capital(role): each for role, each in zip(roles, (result.real, result.fake), strict=True)}
    if result.held_out is not None:
        sets["Held-out reals"] = result.held_out
    for title, found in sets.items():
        left_out = [f"{shown(path)} ({code})" for path, code in found.skipped]
        groups.append((title, {**_facts(asdict(found)), "left out": _text(left_out) or "none"}))
    if result.alignment is not None:
        groups.append(
            ("Alignment", {**_facts(asdict(result.alignment)), "equal scores": "the mean over all orders"})
        )
    if result.entities is not None and (seen := result.entities.classifier) is not None:
        facts = {"thresholds": THRESHOLDS[seen.chosen], "entities": f"{len(seen.entities):,}"}
        groups.append(("Recognition", {**_facts(asdict(seen)), **facts}))
    groups += [(f"Extractor {info.name}", _facts(asdict(info))) for info in result.extractors.values()]
    times = {key.replace("_", " "): f"{value:.1f} s" for key, value in result.seconds.items()}
    return [*groups, ("Time", times), ("Versions", dict(result.versions))]


def _recipe(result: Result) -> dict[str, str]:
    names = ["protocol", "exact", "comparable", "seed", "max_images", "device", "fingerprint"]
    names += ["n_shared"] * (result.real.what == "images") + ["ties"] * (MANIFOLD in result.families)
    names += ["distances"] * (result.entities is None)
    facts = _facts({name: getattr(result, name) for name in names})
    facts["protocol met"] = "; ".join(result.deviations) or "yes"
    facts["features of"] = features_of(result) or "none"
    if result.hubness is not None:
        facts["hubness of the reals"] = hubness_text(result.hubness)
    return facts


def _facts(record: Mapping[str, Any]) -> dict[str, str]:
    """Names like `n_cached` as words, values as text."""
    known = {name: _text(value) for name, value in record.items() if name not in _ELSEWHERE}
    words = {name: name.removeprefix("n_").replace("_", " ") for name in known}
    return {
        f"number of {words[name]}" if name.startswith("n_") else words[name]: text
        for name, text in known.items()
    }


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list | tuple):
        more = (
            f" and {len(value) - _MOST_LISTED:,} more, all in the JSON" if len(value) > _MOST_LISTED else ""
        )
        count = f"{len(value):,}: " if more else ""
        return count + ", ".join(map(str, value[:_MOST_LISTED])) + more
    return str(value)
