"""Several labels of one image, written as one text: `["cat", "hat"]` or `cat;hat`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from genpr.evaluation.label_table import Label
from genpr.limits import parse_json

_BETWEEN = ";"


def as_text(labels: Iterable[Label]) -> str:
    """A JSON list, in order and each label once.

    Example:
        >>> as_text(["hat", "cat", "hat"])
        '["cat", "hat"]'
    """
    return json.dumps(sorted({label for label in labels if label}), ensure_ascii=False)


def is_set(text: str) -> bool:
    """Whether a text stands for several labels, or none, rather than for one."""
    return _BETWEEN in text or _listed(text) is not None


def labels_in(text: str) -> Sequence[str]:
    """The labels that a text stands for.

    Example:
        >>> labels_in("cat; hat"), labels_in('["cat", 3]'), labels_in("[]"), labels_in("cat")
        (['cat', 'hat'], ['cat', '3'], [], ['cat'])
    """
    listed = _listed(text)
    if listed is not None:
        return listed
    return [label for part in text.split(_BETWEEN) if (label := part.strip())]


def _listed(text: str) -> list[str] | None:
    """The entries of a JSON list of texts and integers; None if it is no such list."""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        found = parse_json(text)
    except ValueError:
        return None
    if not all(isinstance(each, str | int) and not isinstance(each, bool) for each in found):
        return None
    return [str(each) for each in found if each != ""]
