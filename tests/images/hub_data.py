"""Data sets as Hugging Face's tools write them, and as nobody should."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from image_files import encode

CLASSES = ["cat", "dog"]
PIXELS = np.random.default_rng(3).integers(0, 256, (12, 6, 5, 3), dtype=np.uint8)
FILES = [encode(image) for image in PIXELS]
ROWS = [{"bytes": data, "path": f"{place}.png"} for place, data in enumerate(FILES)]


def dataset(rows=ROWS, **columns) -> datasets.Dataset:
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES)}
    features |= dict.fromkeys(columns, datasets.Image())
    labels = [place % 2 for place in range(len(rows))]
    return datasets.Dataset.from_dict(
        {"image": rows, "label": labels, **columns}, features=datasets.Features(features)
    )


def write(path: Path, columns: dict, *, metadata: dict | None = None, **options) -> Path:
    """A parquet file of columns, without what Hugging Face's tools say of them unless `metadata` does."""
    table = pa.table(columns)
    if metadata is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": metadata}})})
    pq.write_table(table, path, **options)
    return path
