"""Patterns of paths: braces and globs, and several containers as one source."""

import os
from functools import partial
from pathlib import Path

import pytest
from image_files import PNG, raised, write_files

from genpr.errors import DataError, ImageError, UsageError
from genpr.images.paths import expand
from genpr.images.source import open_source, subset


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Write empty files in the working directory."""
    monkeypatch.chdir(tmp_path)
    return partial(write_files, tmp_path, data=b"")


def found(pattern) -> list[str]:
    paths = expand(pattern)
    assert paths is not None
    return [str(path) for path in paths]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("s/a-{000..002}.tar", ["s/a-000.tar", "s/a-001.tar", "s/a-002.tar"]),
        ("s/a-{002..000}.tar", ["s/a-000.tar", "s/a-001.tar", "s/a-002.tar"]),
        ("s/b-{8..10}.tar", ["s/b-10.tar", "s/b-8.tar", "s/b-9.tar"]),
        ("s/{a-000,b-8,a-000}.tar", ["s/a-000.tar", "s/b-8.tar"]),
        ("s/?-00[0-1].tar", ["s/a-000.tar", "s/a-001.tar"]),
        ("s/a-00[!01].tar", ["s/a-002.tar"]),
        ("*/a-*.tar", ["s/a-000.tar", "s/a-001.tar", "s/a-002.tar"]),
        ("./s/a-000*", ["s/a-000.tar"]),
        ("s/{b-8}*", ["s/{b-8}.tar"]),
        ("s/{x,.h}*", ["s/.hidden.tar", "s/x.tar"]),
        ("s/*x.tar", ["s/x.tar"]),
    ],
)
def test_patterns_are_expanded_in_byte_order(here, pattern, expected):
    here(*(f"s/a-{n:03d}.tar" for n in range(3)), *(f"s/b-{n}.tar" for n in range(8, 11)))
    here("s/.hidden.tar", "s/.x.tar", "s/x.tar", "s/{b-8}.tar", "other/c.txt")
    assert found(pattern) == expected


@pytest.mark.parametrize("text", ["", "s", "missing.tar", "s/{x}.tar", "s/{.tar", "nul\0byte", "x" * 5000])
def test_text_without_pattern_characters_is_a_path(here, text):
    here("s/a.tar")
    assert expand(text) is None


def test_name_of_an_existing_file_is_not_a_pattern(here):
    here("[v1]/a.tar", "v/a.tar", "s{1,2}.tar", "s1.tar", "s2.tar", "*.tar")
    for name in ("[v1]/a.tar", "s{1,2}.tar", "*.tar"):
        assert expand(name) is None
    assert found("[v1]/*.tar") == ["[v1]/a.tar"]
    assert found("?v1]/*.tar") == ["[v1]/a.tar"]
    assert found("*/[a].tar") == ["[v1]/a.tar", "v/a.tar"]
    Path("v/[a].tar").touch()
    assert found("*/[a].tar") == ["[v1]/a.tar", "v/[a].tar"]
    Path("b{0..1}").symlink_to("nowhere")
    assert expand("b{0..1}") is None


@pytest.mark.parametrize("pattern", ["s/*.zip", "s/{00..99}.tar", "nowhere/*.tar", "s/a.tar/*", "n\0/*.tar"])
def test_pattern_without_a_match_is_an_error(here, pattern):
    here("s/a.tar")
    error = raised(UsageError, expand, pattern)
    assert (error.code, error.path) == ("path-not-found", pattern)


def test_folder_that_cannot_be_listed_is_an_error(here, monkeypatch):
    here("a/x.tar", "locked/x.tar")
    for name in ("listdir", "scandir"):
        listed = getattr(os, name)

        def denied(path, listed=listed):
            if os.fspath(path).startswith("locked"):
                raise PermissionError(13, "Permission denied")
            return listed(path)

        monkeypatch.setattr(os, name, denied)
    error = raised(DataError, expand, "*/*.tar")
    assert (error.code, error.path) == ("unreadable", "locked")


def test_missing_shards_are_counted_and_the_first_is_named(here):
    here(*(f"s/{n:03d}.tar" for n in range(100) if n not in {7, 80, 81}))
    error = raised(UsageError, expand, "s/{000..099}.tar")
    assert (error.code, error.path) == ("path-not-found", "s/007.tar")
    assert raised(UsageError, expand, "{s/*,x*}").path == "x*"


@pytest.mark.parametrize(
    "pattern",
    [
        *("{0..99999999}", "{0..9}" * 7, "{0..99999}{a,b,c}{0..9}"),
        *("{x,{0..999999}}{a,b}", "{1..99999}" * 99, "**/*.tar"),
    ],
)
def test_huge_patterns_are_errors_without_expansion(here, pattern):
    assert raised(UsageError, expand, pattern).code == "bad-pattern"


@pytest.mark.parametrize(
    "text", ["s3://b/{0..9}.tar", "https://x.org/a.tar", "hdfs://x/y", "pipe:cat x.tar", "hf://datasets/x"]
)
def test_remote_addresses_are_errors_and_run_nothing(here, text, monkeypatch):
    def never(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr("subprocess.Popen", never)
    monkeypatch.setattr("os.system", never)
    error = raised(UsageError, open_source, text)
    assert error.code == "remote-source"
    assert "\n" not in str(error)


def test_number_sign_in_an_existing_name_is_part_of_it(here, make_zip):
    here()
    make_zip({"a.png": PNG}, name="issue#9.zip")
    assert len(open_source("issue#9.zip")) == 1
    assert raised(UsageError, open_source, "issue#8.zip").code == "path-not-found"


# Several containers as one source ---------------------------------------------------------------------------


def test_shards_are_one_source(here, make_tar):
    for shard in "ba":
        make_tar({f"{n}.png": PNG for n in (1, 0)}, name=f"{shard}.tar")
    here()
    source = open_source("{a,b}.tar")
    assert source.name == "{a,b}.tar"
    assert len(source) == 4
    assert [item.name for item in source] == ["a.tar/0.png", "a.tar/1.png", "b.tar/0.png", "b.tar/1.png"]
    assert all(item.read() == PNG for item in source)
    assert len(list(subset(source, 3, seed=0))) == 3


def test_empty_damaged_and_other_shards_are_errors_that_name_them(here, make_tar, make_zip):
    make_tar({"x.png": PNG}, name="a.tar")
    make_tar({"x.txt": b""}, name="b.tar")
    make_zip({"x.png": PNG}, name="a.zip")
    here("c.tar", data=b"<html>")
    for pattern, code, path in (
        ("{a,b}.tar", "no-images", "b.tar"),
        ("[ac].tar", "archive-damaged", "c.tar"),
        ("a.*", "mixed-kinds", None),
    ):
        error = raised((DataError, UsageError), open_source, pattern)
        assert (error.code, error.path if path else None) == (code, path)


def test_bad_image_is_named_with_its_shard(here, make_tar):
    for name in ("a.tar", "b.tar"):
        make_tar({"x.png": PNG}, name=name)
    here()
    source = open_source("[ab].tar")
    Path("b.tar").write_bytes(b"")
    good, bad = source
    assert good.read() == PNG
    error = raised(ImageError, bad.read)
    assert str(error).startswith("b.tar/x.png: ")
    assert error.path == "b.tar/x.png"
    assert error.code == "unreadable"
