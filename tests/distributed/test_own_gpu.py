"""Which GPU a launched process takes: number LOCAL_RANK, if there is one."""

from __future__ import annotations

import pytest

from genpr.distributed import _own_gpu
from genpr.errors import ResourceError, UsageError


@pytest.mark.parametrize(("said", "gpu"), [("0", 0), ("3", 3), (None, 0)])
def test_each_process_takes_one(monkeypatch, said, gpu):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if said is not None:
        monkeypatch.setenv("LOCAL_RANK", said)
    assert _own_gpu(4) == gpu


def test_more_processes_than_gpus_are_refused(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "4")
    with pytest.raises(ResourceError, match="process 5 on a machine with 4 GPUs") as caught:
        _own_gpu(4)
    assert caught.value.code == "no-cuda"


@pytest.mark.parametrize(
    "said", ["x", "", "-1", "1.0", "²", "9" * 5000], ids=["x", "empty", "-1", "1.0", "square", "long"]
)
def test_what_is_no_number_of_a_process_is_refused(monkeypatch, said):
    monkeypatch.setenv("LOCAL_RANK", said)
    with pytest.raises(UsageError, match="LOCAL_RANK") as caught:
        _own_gpu(4)
    assert caught.value.code == "bad-option"
