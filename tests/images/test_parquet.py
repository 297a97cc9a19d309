"""Parquet files, saved data sets and objects of Hugging Face's `datasets`: raw bytes, one row group at a time."""

import json
import sys
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from image_files import encode, names, raised, read_in_threads
from raising import raising

from genpr.errors import DataError, ImageError, ResourceError, UsageError
from genpr.evaluation.labels import open_labels
from genpr.images.source import open_source

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
    """A Parquet file of columns, with metadata of Hugging Face only if `metadata` is given."""
    table = pa.table(columns)
    if metadata is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": metadata}})})
    pq.write_table(table, path, **options)
    return path


PLACES = [f"[{place}]" for place in range(12)]


@pytest.fixture(scope="module")
def hub(tmp_path_factory) -> Path:
    """The same images in every form."""
    datasets.disable_progress_bars()
    folder = tmp_path_factory.mktemp("hub")
    dataset().to_parquet(folder / "x.parquet", batch_size=5)
    (folder / "down" / "data").mkdir(parents=True)
    for shard in range(3):
        part = dataset().shard(3, shard, contiguous=True)
        part.to_parquet(folder / "down" / "data" / f"train-{shard:05d}-of-00003.parquet")
    return folder


FORMS = ["x.parquet", "down/data/train-*.parquet"]


def labels_of(source) -> list:
    opened = open_source(source)
    return open_labels(None, opened, "real").match(names(opened), range(12), 12)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_unchanged_bytes(hub, form):
    source = open_source(hub / form)
    assert source.name == str(hub / form)
    assert len(source) == 12
    assert [item.read() for item in source] == FILES
    assert list(source.names()) == names(source)
    assert len(set(names(source))) == 12
    assert list(read_in_threads(source).values()) == FILES
    assert labels_of(hub / form) == CLASSES * 6


def test_dataset_objects_give_raw_bytes_without_decoding_or_transforms(monkeypatch):
    monkeypatch.setattr(datasets.Image, "decode_example", lambda *_: 1 / 0)
    for given in (dataset().with_format("torch"), dataset(), dataset().with_transform(lambda _: 1 / 0)):
        source = open_source(given, name="<real images>")
        assert [item.read() for item in source] == FILES
        assert names(source) == PLACES
        assert labels_of(given) == CLASSES * 6


def test_row_groups_without_a_selected_image_are_not_read(tmp_path):
    path = write(
        tmp_path / "x.parquet", {"image": FILES}, row_group_size=3, compression="none", use_dictionary=False
    )
    source = open_source(path)
    data = bytearray(path.read_bytes())
    for place in (0, 9):  # the first and the last group
        at = data.find(FILES[place])
        data[at - 20 : at] = bytes(20)
    path.write_bytes(data)
    assert [item.read() for item in source.select([3, 5, 8])] == [FILES[place] for place in (3, 5, 8)]
    assert raised(DataError, list, source).code == "parquet-damaged"


# Columns ----------------------------------------------------------------------------------------------------


def test_column_of_bytes_is_sufficient(tmp_path):
    path = write(tmp_path / "x.parquet", {"id": [1, 2], "png": FILES[:2], "label": ["b", "a"]})
    source = open_source(path)
    assert [item.read() for item in source] == FILES[:2]
    assert source.source_labels().labels == ["b", "a"]
    large = write(tmp_path / "large.parquet", {"png": pa.array(FILES[:2], pa.large_binary())})
    assert [item.read() for item in open_source(large)] == FILES[:2]


def test_declared_image_column_has_priority(tmp_path):
    columns = {"mask": FILES, "image": ROWS, "other": ROWS}
    declared = {"other": {"_type": "Image"}, "mask": {"_type": "Value"}}
    assert open_source(write(tmp_path / "x.parquet", columns, metadata=declared)).columns.image == "other"
    del columns["other"]
    for metadata in (None, [1]):
        assert open_source(write(tmp_path / "x.parquet", columns, metadata=metadata)).columns.image == "image"


def test_several_columns_of_images_or_classes_are_errors(tmp_path):
    path = write(tmp_path / "x.parquet", {"left": ROWS, "right": ROWS[::-1]})
    assert raised(UsageError, open_source, path).code == "several-columns"
    names_of = {"_type": "ClassLabel", "names": CLASSES}
    columns = {"image": ROWS, "fine": [0, 1] * 6, "coarse": [1, 1, 0] * 4}
    path = write(tmp_path / "x.parquet", columns, metadata={"fine": names_of, "coarse": names_of})
    assert raised(DataError, labels_of, path).code == "no-labels"


@pytest.mark.parametrize(
    "columns",
    [
        {"label": [1, 2]},
        {"images": [[ROWS[0]], [ROWS[1]]]},
        {"image": ["a.png", "b.png"]},
        {"image": [{"path": "a.png"}]},
        {"image": pa.array([b"1", b"2"], pa.binary(1))},
    ],
    ids=["numbers", "lists", "paths", "no-bytes", "fixed-size"],
)
def test_error_of_a_file_without_images_lists_its_columns(tmp_path, columns):
    path = write(tmp_path / "x.parquet", columns)
    assert raised(DataError, open_source, path).code == "no-images"


def test_unknown_classes_are_none_and_invalid_ones_are_errors(tmp_path):
    declared = {"label": {"_type": "ClassLabel", "names": CLASSES}}
    path = write(tmp_path / "x.parquet", {"image": ROWS, "label": [0, 1, None, -1] * 3}, metadata=declared)
    assert labels_of(path) == ["cat", "dog", None, None] * 3
    for bad in (2, -2):
        path = write(tmp_path / "x.parquet", {"image": ROWS, "label": [0] * 11 + [bad]}, metadata=declared)
        with raising(DataError, "labels-damaged", rf"{bad} in column label is not a class; needed is 0 to 1"):
            labels_of(path)
    path = write(tmp_path / "x.parquet", {"image": ROWS, "label": ["x" * 1001] * 12})
    with pytest.raises(DataError, match="is not a class"):
        labels_of(path)
    path = write(tmp_path / "x.parquet", {"image": ROWS, "label": [0.5] * 12})
    assert open_source(path).source_labels() is None


# Invalid files ---------------------------------------------------------------------------------------------


def test_values_without_bytes_are_bad_images(tmp_path):
    rows = [ROWS[0], {"bytes": None, "path": "/etc/passwd"}, None, {"bytes": None, "path": None}]
    source = open_source(write(tmp_path / "x.parquet", {"image": rows}))
    good, elsewhere, null, empty = source
    assert good.read() == FILES[0]
    for item, code in ((elsewhere, "unreadable"), (null, "unreadable"), (empty, "unreadable")):
        error = raised(ImageError, item.read)
        assert (error.code, error.path) == (code, item.name)
    flat = open_source(write(tmp_path / "y.parquet", {"image": [FILES[0], None]}))
    with pytest.raises(ImageError, match="null"):
        list(flat)[1].read()


def test_large_value_of_many_rows_is_in_memory_once(tmp_path):
    path = tmp_path / "bomb.parquet"
    bomb = pa.DictionaryArray.from_arrays(pa.array(np.zeros(50_000, np.int32)), pa.array([bytes(2**22)]))
    pq.write_table(pa.table({"image": bomb}), path, store_schema=False)
    assert path.stat().st_size < 2**21
    before, peak = pa.total_allocated_bytes(), 0
    for number, item in enumerate(open_source(path)):
        assert len(item.read()) == 2**22
        peak = max(peak, pa.total_allocated_bytes() - before)
        if number == 20:
            break
    assert peak < 2**26


def test_more_rows_than_bytes_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("genpr.images.parquet._ROWS_OF_ANY_FILE", 1000)
    path = write(tmp_path / "x.parquet", {"image": pa.nulls(100_000, pa.binary())})
    assert raised(DataError, open_source, path).code == "parquet-damaged"


def test_truncated_files_are_errors(hub, tmp_path):
    whole, path = (hub / "x.parquet").read_bytes(), tmp_path / "x.parquet"
    for keep in (0.0, 0.3, 0.6, 0.9, 0.99):
        path.write_bytes(whole[: int(keep * len(whole))])
        with raising(DataError, "parquet-damaged"):
            [item.read() for item in open_source(path)]


def test_file_that_lost_rows_while_it_is_read_is_an_error(tmp_path):
    path = write(tmp_path / "x.parquet", {"image": FILES})
    items = iter(open_source(path))
    write(path, {"image": FILES[:7]})
    assert [next(items).read() for _ in range(7)] == FILES[:7]
    with pytest.raises(DataError, match="ends before row 7"):
        next(items)


def test_empty_file_is_an_error(tmp_path):
    for given in (write(tmp_path / "x.parquet", {"image": pa.array([], pa.binary())}), dataset().select([])):
        assert raised(DataError, open_source, given).code == "no-images"


def test_error_of_a_saved_dataset_names_load_from_disk(tmp_path):
    dataset().save_to_disk(tmp_path / "saved")
    with pytest.raises(DataError, match="load_from_disk"):
        open_source(tmp_path / "saved")


def test_splits_are_never_mixed(hub):
    both = datasets.DatasetDict(a=dataset(), b=dataset())
    assert raised(UsageError, open_source, both).code == "several-splits"
    with raising(DataError, "no-images", r"'\*\.parquet'"):
        open_source(hub / "down" / "data")


def test_missing_pyarrow_is_a_resource_error(hub, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    error = raised(ResourceError, open_source, hub / "x.parquet")
    assert (error.code, error.exit_code) == ("no-pyarrow", 4)


def test_dataset_of_paths_reads_only_local_regular_files(tmp_path):
    (tmp_path / "a.png").write_bytes(FILES[0])
    paths = [*map(str, (tmp_path / "a.png", tmp_path / "b.png"))]
    paths += ["https://x.org/a.png", "zip://a.png::x.zip", "/dev/zero"]
    good, *bad = open_source(dataset([{"bytes": None, "path": path} for path in paths]))
    assert good.read() == FILES[0]
    for item in bad:
        error = raised(ImageError, item.read)
        assert (error.code, error.path) == ("unreadable", item.name)
