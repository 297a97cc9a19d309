"""Which expectation belongs to which image: by relative path, else by unique file name or stem."""

from __future__ import annotations

from collections.abc import Sequence

from genpr.conditional.entities.expectations import Expectations
from genpr.errors import DataError, short
from genpr.images.item import printable, some
from genpr.images.naming import file_of, plain_path, stem_of


def rows_of_images(asked: Expectations, names: Sequence[str], source: str) -> list[int]:
    """The row of each image of a source in the expectations.

    Args:
        asked: What is expected, with ids or in the order of the images.
        names: Of all images of the source, in its order.
        source: What to call it in messages.

    Raises:
        DataError: Images and ids do not match one to one ("ids-do-not-match").
    """
    if not asked.records.has_ids:
        if len(names) == len(asked.ids):
            return list(range(len(names)))
        raise _unmatched(
            asked,
            f"{printable(asked.origin)} has {len(asked.ids):,} records without ids, and {printable(source)} "
            f"{len(names):,} images; needed are ids, or one record for each image in their order",
        )
    ids = [plain_path(name) for name in asked.ids]
    wanted = _named_like(ids, names)
    places = {name: row for row, name in enumerate(ids)}
    known = set(wanted)
    lost = [name for name, each in zip(names, wanted, strict=True) if each not in places]
    unused = [name for name in ids if name not in known]
    if not lost and not unused and len(places) == len(wanted):
        return [places[each] for each in wanted]
    parts = [f"nothing is said of {len(lost):,} of {len(names):,} images ({some(lost)})"] if lost else []
    parts += [f"{len(unused):,} ids are of no image ({some(unused)})"] if unused else []
    parts = parts or ["two images have the same name"]
    raise _unmatched(
        asked,
        f"{printable(asked.origin)} and {printable(source)} do not match: {' and '.join(parts)}. Ids are paths relative to "
        f"the source, or file names or stems where all differ; its images are called such as {short(names[0])!r}",
    )


def _named_like(ids: Sequence[str], names: Sequence[str]) -> list[str]:
    """The names of the images in the form in which most of them are ids; the first of equally good ones."""
    known, best, found = set(ids), -1, list(names)
    for form in (plain_path, stem_of, file_of, _file_stem):
        formed = [form(name) for name in names]
        hits = len(known.intersection(formed))
        # What is not unique would give one expectation to two images.
        if hits > best and (form is plain_path or len(set(formed)) == len(formed)):
            best, found = hits, formed
    return found


def _file_stem(name: str) -> str:
    return stem_of(file_of(name))


def _unmatched(asked: Expectations, message: str) -> DataError:
    return DataError(message, code="ids-do-not-match", path=asked.origin)
