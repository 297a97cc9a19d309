"""Parquet files, saved data sets and objects of Hugging Face's `datasets`: raw bytes, one row group at a time."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tracemalloc
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_data import CLASSES, FILES, PIXELS, ROWS, dataset, write
from image_files import names, raised, read_in_threads
from PIL import Image

from genpr.errors import DataError, GenprError, ImageError, ResourceError, UsageError
from genpr.evaluation.labels import open_labels
from genpr.features.inputs import pictures_of
from genpr.images.decode import decode
from genpr.images.policy import DecodePolicy
from genpr.images.source import open_source, subset

PLACES = [f"[{place}]" for place in range(12)]


@pytest.fixture(scope="module")
def hub(tmp_path_factory) -> Path:
    """The same images in every form."""
    datasets.disable_progress_bars()
    folder = tmp_path_factory.mktemp("hub")
    dataset().to_parquet(folder / "x.parquet", batch_size=5)
    dataset().save_to_disk(folder / "saved", num_shards=3)
    datasets.DatasetDict(train=dataset(), test=dataset()).save_to_disk(folder / "splits")
    datasets.DatasetDict(only=dataset()).save_to_disk(folder / "one_split")
    (folder / "down" / "data").mkdir(parents=True)
    for shard in range(3):
        part = dataset().shard(3, shard, contiguous=True)
        part.to_parquet(folder / "down" / "data" / f"train-{shard:05d}-of-00003.parquet")
    (folder / "down" / "README.md").write_text("---")
    with (
        pa.OSFile(str(folder / "file.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, dataset().data.schema) as writer,
    ):
        writer.write_table(dataset().data.table)
    return folder


FORMS = [
    "x.parquet",
    "saved",
    "one_split",
    "splits/test",
    "down",
    "down/data",
    "down/data/train-*.parquet",
    "file.arrow",
]


def objects(hub):
    whole = datasets.load_from_disk(hub / "saved")
    return [
        whole,
        whole.with_format("torch"),
        dataset(),
        whole.to_iterable_dataset(),
        whole.with_transform(lambda _: 1 / 0),
    ]


def labels_of(source) -> list:
    opened = open_source(source)
    return open_labels(None, opened, "real").match(names(opened), range(12), 12)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_bytes_as_they_are(hub, form):
    source = open_source(hub / form)
    assert source.name == str(hub / form)
    assert len(source) == 12
    assert [item.read() for item in source] == FILES
    assert list(source.names()) == names(source)
    assert len(set(names(source))) == 12
    assert list(read_in_threads(source).values()) == FILES
    assert labels_of(hub / form) == CLASSES * 6


def test_objects_give_their_bytes_and_nothing_decodes_or_transforms_them(hub, monkeypatch):
    monkeypatch.setattr(datasets.Image, "decode_example", lambda *_: 1 / 0)
    for given in objects(hub):
        source = open_source(given, name="<real images>")
        assert [item.read() for item in source] == FILES
        assert names(source) == PLACES
        assert labels_of(given) == CLASSES * 6


def test_a_dataset_that_was_selected_and_shuffled_keeps_its_order():
    part = dataset().shuffle(seed=1).select(range(2, 9))
    order = [
        FILES.index(row["bytes"]) for row in part.cast_column("image", datasets.Image(decode=False))["image"]
    ]
    assert order != sorted(order)
    assert [item.read() for item in open_source(part)] == [FILES[place] for place in order]


def test_images_are_not_turned_by_their_exif_orientation(tmp_path):
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(PIXELS[0]).save(file, "PNG", exif=exif)
    (item,) = open_source(dataset([{"bytes": file.getvalue(), "path": None}]))
    decoded = decode(item.read(), name="x", policy=DecodePolicy())
    assert np.array_equal(decoded.pixels, PIXELS[0])
    assert decoded.flags == ("exif-orientation",)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_sample(hub, form):
    whole = open_source(hub / form)
    part = subset(whole, 5, seed=2)
    chosen = part.rows
    assert [item.read() for item in part] == [FILES[place] for place in chosen]
    assert [item.name for item in part] == [names(whole)[place] for place in chosen]


def test_row_groups_without_a_chosen_image_are_not_read(tmp_path):
    path = write(
        tmp_path / "x.parquet", {"image": FILES}, row_group_size=3, compression="none", use_dictionary=False
    )
    source = open_source(path)
    data = bytearray(path.read_bytes())
    for place in (0, 9):  # the first and the last group
        at = data.find(FILES[place])
        data[at - 20 : at] = bytes(20)
    path.write_bytes(data)
    assert [item.read() for item in source.pick([3, 5, 8])] == [FILES[place] for place in (3, 5, 8)]
    assert raised(DataError, list, source).code == "parquet-damaged"


def test_a_row_group_is_never_held_whole(tmp_path):
    rng = np.random.default_rng(0)
    images = [rng.bytes(2**20) for _ in range(48)]
    path = write(
        tmp_path / "x.parquet",
        {"image": images},
        compression="none",
        data_page_size=2**20,
        write_batch_size=1,
    )
    assert pq.ParquetFile(path).num_row_groups == 1
    del images
    before = pa.total_allocated_bytes()
    peak = 0
    tracemalloc.start()
    for item in open_source(path):
        item.read()
        peak = max(peak, pa.total_allocated_bytes() - before)
    peak += tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 2**20


# Columns ----------------------------------------------------------------------------------------------------


def test_a_column_of_bytes_alone_is_enough(tmp_path):
    path = write(tmp_path / "x.parquet", {"id": [1, 2], "png": FILES[:2], "label": ["b", "a"]})
    source = open_source(path)
    assert [item.read() for item in source] == FILES[:2]
    assert source.stated_labels().labels == ["b", "a"]
    large = write(tmp_path / "large.parquet", {"png": pa.array(FILES[:2], pa.large_binary())})
    assert [item.read() for item in open_source(large)] == FILES[:2]


def test_what_is_said_to_be_the_image_counts_before_what_may_be(tmp_path):
    columns = {"mask": FILES, "image": ROWS, "other": ROWS}
    said = write(
        tmp_path / "said.parquet", columns, metadata={"other": {"_type": "Image"}, "mask": {"_type": "Value"}}
    )
    assert open_source(said).columns.image == "other"
    only = write(tmp_path / "struct.parquet", {"mask": FILES, "image": ROWS})
    assert open_source(only).columns.image == "image"
    broken = write(tmp_path / "broken.parquet", {"mask": FILES, "image": ROWS}, metadata=[1])  # type: ignore[arg-type]
    assert open_source(broken).columns.image == "image"


def test_several_columns_of_images_are_listed_and_one_may_be_named(tmp_path, monkeypatch):
    path = write(tmp_path / "x.parquet", {"left": ROWS, "right": ROWS[::-1]})
    error = raised(UsageError, open_source, path)
    assert error.code == "several-columns"
    assert f"{path}#left" in str(error)
    monkeypatch.chdir(tmp_path)
    for given in (f"{path}#right", "*.parquet#right", f"{tmp_path}#right"):
        assert [item.read() for item in open_source(given)] == FILES[::-1]
    for choice, code in (("none", "no-column"), (",none", "no-column")):
        assert raised(UsageError, open_source, f"{path}#{choice}").code == code


def test_a_sign_in_the_name_of_a_file_is_part_of_it(tmp_path, make_zip):
    path = make_zip({"a.png": FILES[0]}, name="issue#9.zip")
    assert len(open_source(path)) == 1
    odd = write(tmp_path / "x.parquet#y", {"png": FILES})
    with pytest.raises(UsageError, match="unknown kind"):
        open_source(odd)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a.png").write_bytes(FILES[0])
    assert len(open_source(f"{tmp_path}/run")) == 1
    with pytest.raises(UsageError, match="there is nothing at"):
        open_source(f"{tmp_path}/issue#8.zip")
    make_zip({"a.png": FILES[0]}, name="b.zip")
    assert raised(UsageError, open_source, f"{tmp_path}/b*.zip#image").code == "no-column"


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
def test_files_without_images_list_their_columns(tmp_path, columns):
    path = write(tmp_path / "x.parquet", columns)
    assert raised(DataError, open_source, path).code == "no-images"


def test_several_columns_of_classes_are_listed_and_one_may_be_named(tmp_path):
    names_of = {"_type": "ClassLabel", "names": CLASSES}
    columns = {"image": ROWS, "fine": [0, 1] * 6, "coarse": [1, 1, 0] * 4}
    path = write(tmp_path / "x.parquet", columns, metadata={"fine": names_of, "coarse": names_of})
    error = raised(DataError, labels_of, path)
    assert error.code == "no-labels"
    assert f"{path}#image,fine" in str(error)
    assert labels_of(f"{path}#,fine") == CLASSES * 6
    assert labels_of(f"{path}#image,coarse") == ["dog", "dog", "cat"] * 4


def test_unknown_classes_are_none_and_others_are_refused(tmp_path):
    said = {"label": {"_type": "ClassLabel", "names": CLASSES}}
    path = write(tmp_path / "x.parquet", {"image": ROWS, "label": [0, 1, None, -1] * 3}, metadata=said)
    assert labels_of(path) == ["cat", "dog", None, None] * 3
    for bad in (2, -2):
        path = write(tmp_path / "x.parquet", {"image": ROWS, "label": [0] * 11 + [bad]}, metadata=said)
        with pytest.raises(
            DataError, match=rf"{bad} in column label is no class; needed is 0 to 1"
        ) as caught:
            labels_of(path)
        assert caught.value.code == "labels-damaged"
    path = write(tmp_path / "x.parquet", {"image": ROWS, "label": ["x" * 1001] * 12})
    with pytest.raises(DataError, match="is no class"):
        labels_of(path)
    path = write(tmp_path / "x.parquet", {"image": ROWS, "label": [0.5] * 12})
    assert open_source(path).stated_labels() is None


# What nobody should write -----------------------------------------------------------------------------------


def test_values_that_hold_no_bytes_are_bad_images(tmp_path):
    rows = [ROWS[0], {"bytes": None, "path": "/etc/passwd"}, None, {"bytes": None, "path": None}]
    source = open_source(write(tmp_path / "x.parquet", {"image": rows}))
    good, elsewhere, null, empty = source
    assert good.read() == FILES[0]
    for item, code in ((elsewhere, "image-elsewhere"), (null, "unreadable"), (empty, "unreadable")):
        error = raised(ImageError, item.read)
        assert (error.code, error.path) == (code, item.name)
    flat = open_source(write(tmp_path / "y.parquet", {"image": [FILES[0], None]}))
    with pytest.raises(ImageError, match="null"):
        list(flat)[1].read()


def test_values_too_large_to_be_images_are_not_copied(tmp_path, monkeypatch):
    monkeypatch.setattr("genpr.images.arrow.MAX_ENCODED_BYTES", 10)
    small, large = open_source(write(tmp_path / "x.parquet", {"image": [b"1" * 10, b"1" * 11]}))
    assert small.read() == b"1" * 10
    assert raised(ImageError, large.read).code == "image-too-large"


def test_one_large_value_that_stands_a_million_times_is_held_once(tmp_path):
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


def test_more_rows_than_bytes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("genpr.images.parquet._ROWS_OF_ANY_FILE", 1000)
    path = write(tmp_path / "x.parquet", {"image": pa.nulls(100_000, pa.binary())})
    assert raised(DataError, open_source, path).code == "parquet-damaged"


@pytest.mark.parametrize("form", ["x.parquet", "file.arrow", "saved/data-00001-of-00003.arrow"])
def test_files_that_were_cut_are_refused(hub, tmp_path, form):
    whole = (hub / form).read_bytes()
    path = tmp_path / f"x{Path(form).suffix}"
    for keep in (0.0, 0.3, 0.6, 0.9, 0.99):
        path.write_bytes(whole[: int(keep * len(whole))])
        with pytest.raises(DataError) as caught:
            [item.read() for item in open_source(path)]
        assert caught.value.code == f"{path.suffix[1:]}-damaged"
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", ["x.parquet", "file.arrow", "saved/data-00000-of-00003.arrow"])
def test_changed_bytes_give_images_or_one_clear_error(hub, tmp_path, form, rng):
    whole = (hub / form).read_bytes()
    path = tmp_path / f"x{Path(form).suffix}"
    outcomes = set()
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            # Half of them in the last part, where the footer of a parquet file describes the rest.
            start = 0 if rng.random() < 0.5 else len(data) * 3 // 4
            data[rng.integers(start, len(data))] = rng.integers(256)
        path.write_bytes(data)
        try:
            source = open_source(path)
            assert len(source) < 200_000
            read = 0
            for item in source:
                try:
                    read += len(item.read()) > 0
                except ImageError as error:
                    outcomes.add(error.code)
            source.stated_labels()
            outcomes.add(read == len(source))
        except GenprError as error:
            outcomes.add(error.code)
    assert {True, f"{path.suffix[1:]}-damaged"} <= outcomes


def test_an_arrow_file_that_points_outside_is_refused(hub, tmp_path):
    """Offsets of values lie in the file: whoever wrote it may have made them point anywhere in memory."""
    path = tmp_path / "x.arrow"
    table = pa.table({"image": FILES})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data = path.read_bytes()
    second = len(FILES[0]).to_bytes(4, "little") + (len(FILES[0]) + len(FILES[1])).to_bytes(4, "little")
    assert data.count(second) == 1
    path.write_bytes(
        data.replace(second, len(FILES[0]).to_bytes(4, "little") + (2**30).to_bytes(4, "little"))
    )
    assert raised(DataError, open_source, path).code == "arrow-damaged"


def test_a_parquet_file_that_changed_is_told(hub, tmp_path):
    path = tmp_path / "x.parquet"
    shutil.copy(hub / "x.parquet", path)
    source = open_source(path)
    dataset(ROWS[:3]).to_parquet(path)
    with pytest.raises(DataError) as caught:
        [item.read() for item in source]
    assert caught.value.code == "parquet-damaged"
    path.unlink()
    assert raised(DataError, list, source).code == "unreadable"


def test_a_parquet_file_that_lost_rows_does_not_end_in_silence(tmp_path):
    path = write(tmp_path / "x.parquet", {"image": FILES})
    source = open_source(path)
    write(path, {"image": FILES[:7]})
    items = iter(source)
    assert [next(items).read() for _ in range(7)] == FILES[:7]
    with pytest.raises(DataError, match="ends before row 7") as caught:
        next(items)
    assert caught.value.code == "parquet-damaged"


def test_splits_are_never_mixed(hub, tmp_path):
    for given in (hub / "splits", datasets.DatasetDict(a=dataset(), b=dataset())):
        assert raised(UsageError, open_source, given).code == "several-splits"
    folder = tmp_path / "down"
    shutil.copytree(hub / "down", folder)
    shutil.copy(hub / "x.parquet", folder / "data" / "test-00000-of-00001.parquet")
    error = raised(UsageError, open_source, folder)
    assert error.code == "several-splits"
    assert f"{folder}/data/test-*.parquet" in str(error)
    assert len(open_source(f"{folder}/data/train-*.parquet")) == 12


@pytest.mark.parametrize(
    "state",
    [
        {"_data_files": [{"filename": "../x.arrow"}]},
        {"_data_files": [{"filename": "/etc/passwd"}]},
        {"_data_files": [{"filename": 3}]},
        {"_data_files": [{"filename": "data-1.arrow"}]},
        {"_data_files": []},
        {"_data_files": None},
        {},
        [],
        {"_indices_files": [{"filename": "i"}], "_data_files": []},
    ],
)
def test_a_broken_saved_dataset_is_refused(tmp_path, state):
    (tmp_path / "state.json").write_text(json.dumps(state))
    assert raised(DataError, open_source, tmp_path).code == "arrow-damaged"


def test_without_pyarrow_the_way_to_get_it_is_told(hub, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for form in ("x.parquet", "saved", "down", "file.arrow"):
        error = raised(ResourceError, open_source, hub / form)
        assert (error.code, error.exit_code) == ("no-pyarrow", 4)


def test_an_empty_one_is_no_source(tmp_path):
    path = write(tmp_path / "x.parquet", {"image": pa.array([], pa.binary())})
    for given in (path, dataset().select([])):
        assert raised(DataError, open_source, given).code == "no-images"


def test_a_dataset_of_files_reads_them_and_nothing_far_away(tmp_path):
    (tmp_path / "a.png").write_bytes(FILES[0])
    paths = [
        str(tmp_path / "a.png"),
        str(tmp_path / "b.png"),
        "https://x.org/a.png",
        "zip://a.png::x.zip",
        "/dev/zero",
    ]
    good, *bad = open_source(dataset([{"bytes": None, "path": path} for path in paths]))
    assert good.read() == FILES[0]
    for item in bad:
        error = raised(ImageError, item.read)
        assert (error.code, error.path) == ("unreadable", item.name)


def test_a_stream_that_knows_no_columns_is_told_how_to_say(hub):
    stream = datasets.IterableDataset.from_generator(lambda: iter([{"photo": FILES[0]}]))
    with pytest.raises(UsageError, match="cast_column"):
        open_source(stream)


def test_pictures_of_a_few_rows_read_no_others(tmp_path):
    path = write(
        tmp_path / "x.parquet", {"image": FILES}, row_group_size=2, compression="none", use_dictionary=False
    )
    pictures = pictures_of(path, PLACES)
    data = bytearray(path.read_bytes())
    at = data.find(FILES[0])
    data[at - 20 : at] = bytes(20)
    path.write_bytes(data)
    found = pictures.read([9, 4])
    assert {row: image.tolist() for row, image in found.items()} == {
        row: PIXELS[row].tolist() for row in (4, 9)
    }


def test_what_is_no_regular_file_is_not_waited_for(tmp_path):
    for suffix in (".parquet", ".tar", ".zip", ".txt", ".arrow"):
        os.mkfifo(tmp_path / f"x{suffix}")
        assert raised(UsageError, open_source, tmp_path / f"x{suffix}").code == "source-kind"


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_names_of_files_may_be_any_bytes(hub, tmp_path, suffix):
    form = {".parquet": "x.parquet", ".arrow": "file.arrow"}[suffix]
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff" + suffix.encode()))
    shutil.copy(hub / form, path)
    assert len(open_source(path)) == 12
