"""Damage to text files: what JSON, CSV and lists of lines may hold and should not."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from fuzz.raw import Damage, flip_bits, remove, repeat

NASTY = (
    "",
    " ",
    "\0",
    "../../../x",
    "/etc/passwd",
    "C:\\con",
    "aux.png",
    "a" * 5000,
    "a\nb\rc",
    "\x1b[2J\x1b]0;x\x07",
    "\u202egnp.exe",
    "\ud800",
    "=cmd|' /C calc'!A0",
    "<script>alert(1)</script>",
    "javascript:alert(1)",
    "'; DROP TABLE x; --",
    "{{7*7}}${7*7}%s%n{0}",
    "\u2028\ufeff\u00a0",
    "\U0001f600" * 20,
    "nan",
    "1e999",
    "9" * 5000,
    "-0",
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 10**30, -(10**400), 2**63, 1e308, float("nan"), float("inf")),
    *([], {}, [[]], [None], {"": ""}, [1, "a"], "0", *NASTY[:14]),
)


def change_json(rng: Random, data: bytes) -> bytes:
    """Another value in one place: of another type, out of range, missing, doubled, or nested without end."""
    try:
        lines = data.decode().splitlines() or [""]
        at = rng.randrange(len(lines)) if _are_lines(lines) else None
        value = json.loads(data if at is None else lines[at])
    except (ValueError, RecursionError):
        return change_text(rng, data)
    changed = json.dumps(_with_other(rng, value), ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.15:
        depth = rng.choice((50, 1000, 100_000))
        deep = rng.choice(("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth))
        changed = changed.replace("null", deep, 1) if "null" in changed else deep
    if rng.random() < 0.05 and changed.startswith('{"'):
        changed = "{" + changed[1 : changed.find(":") + 1] + " 1, " + changed[1:]  # the first key twice
    if at is not None:
        changed = "\n".join([*lines[:at], changed, *lines[at + 1 :]]) + "\n"
    return changed.encode("utf-8", "surrogatepass")


def _are_lines(lines: list[str]) -> bool:
    return len(lines) > 1 and lines[0].startswith("{") and lines[0].endswith("}")


def _with_other(rng: Random, value: Any) -> Any:
    """A copy of which one place, reached by chance, is another."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(sorted(value))
        copy = dict(value)
        match rng.randrange(8):
            case 0:
                del copy[key]
            case 1:
                copy[rng.choice(NASTY)] = copy.pop(key)
            case _:
                copy[key] = _with_other(rng, value[key])
        return copy
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        match rng.randrange(8):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return value + [value[at]] * rng.choice((1, 3, 300))
            case _:
                return [*value[:at], _with_other(rng, value[at]), *value[at + 1 :]]
    return rng.choice(_VALUES)


def change_text(rng: Random, data: bytes) -> bytes:
    """Another cell, line, encoding or line end."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    nasty = rng.choice(NASTY).encode("utf-8", "surrogatepass")
    match rng.randrange(9):
        case 0:
            lines[at] = nasty
        case 1:
            cells = lines[at].split(b",")
            cells[rng.randrange(len(cells))] = nasty
            lines[at] = b",".join(cells)
        case 2:
            lines[at] += rng.choice((b",", b'"', b"\t", b"\r", b"\0", b"," * 3000))
        case 3:
            lines.insert(at, rng.choice(lines))
        case 4:
            del lines[at]
        case 5:
            return rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")) + data
        case 6:
            return data.decode("utf-8", "replace").encode(
                rng.choice(("utf-16", "utf-32", "cp037", "utf-7")), "replace"
            )
        case 7:
            return data.replace(b"\n", rng.choice((b"\r", b"\r\n", b"\n\n", b"\xe2\x80\xa8")))
        case _:
            lines[at] = (
                lines[at][: len(lines[at]) // 2]
                + nasty * rng.choice((1, 40))
                + lines[at][len(lines[at]) // 2 :]
            )
    return b"\n".join(lines)


TEXT: tuple[Damage, ...] = (change_text, change_text, flip_bits, remove, repeat)
JSON: tuple[Damage, ...] = (change_json, change_json, change_json, *TEXT)
