"""Vocabularies and alias tables as people keep them: a list of names, a CSV, or JSON."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from genpr.conditional.entities.normalise import normalised
from genpr.conditional.entities.text_files import rows_of, shown, text_of
from genpr.errors import DataError, UsageError
from genpr.limits import parse_json

_ENTITY_HEADS = {"entity", "canonical", "name", "实体", "名称", "标准名"}
_ALIAS_HEADS = {"alias", "aliases", "synonym", "synonyms", "别名", "同义词"}


def read_vocabulary(path: str | os.PathLike[str]) -> tuple[Any, str]:
    """The entities and aliases of a file, and what to call it.

    Raises:
        UsageError: There is no such file, or it is of no such kind ("vocabulary-kind").
        DataError: It is damaged or holds no names ("bad-vocabulary").
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in {".txt", ".csv", ".tsv", ".json"}:
        raise UsageError(
            f"{shown(path)} is of unknown kind ({suffix or 'no suffix'}); a vocabulary is a .txt with a name per line, a "
            '.csv of entity,alias,..., or a .json of {"entity": ["alias", ...]}',
            code="vocabulary-kind",
            path=str(path),
        )
    text, origin = text_of(path, "a vocabulary"), str(path)
    if suffix == ".txt":
        found: Any = [line.strip() for line in text.splitlines() if line.strip()]
    elif suffix == ".json":
        found = _from_json(text, origin)
    else:
        found = _from_rows(text, origin, "\t" if suffix == ".tsv" else ",")
    if not found:
        raise DataError(
            f"{shown(path)} holds no names; is it the right file?", code="bad-vocabulary", path=origin
        )
    return found, origin


def _from_rows(text: str, origin: str, delimiter: str) -> dict[str, list[str]]:
    """An entity and its aliases per line; one entity may have several lines."""
    rows = [[cell.strip() for cell in row] for _, row in rows_of(text, origin, delimiter)]
    heads = [normalised(cell) for cell in rows[0]] if rows else []
    if len(heads) > 1 and heads[0] in _ENTITY_HEADS and set(heads[1:]) <= _ALIAS_HEADS:
        rows = rows[1:]
    aliases: dict[str, list[str]] = {}
    for entity, *others in rows:
        if not entity:
            raise DataError(
                f"{shown(origin)} has a line whose first column is empty ({shown(', '.join(others))}); the entity comes first, "
                "then its aliases",
                code="bad-vocabulary",
                path=origin,
            )
        aliases.setdefault(entity, []).extend(alias for alias in others if alias)
    return aliases


def _from_json(text: str, origin: str) -> object:
    try:
        found = parse_json(text)
    except ValueError as error:
        raise DataError(
            f"{shown(origin)} is no JSON ({shown(error)}); was it cut short?",
            code="bad-vocabulary",
            path=origin,
        ) from error
    if isinstance(found, dict):
        return {entity: [alias] if isinstance(alias, str) else alias for entity, alias in found.items()}
    return found
