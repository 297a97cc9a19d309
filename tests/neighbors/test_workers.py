import threading

import pytest
import torch

from genpr.neighbors.engine import ENGINE

CPU = torch.device("cpu")
counts = pytest.mark.parametrize("count", [1, 2, 5])


@counts
@pytest.mark.parametrize("items", [0, 1, 3, 40])
def test_results_are_in_the_order_of_the_items(count, items):
    torch.set_num_threads(count)  # a fixture of all tests restores it
    with ENGINE.search(CPU) as search:
        assert list(search.map(lambda item: item**2, range(items))) == [item**2 for item in range(items)]
        assert list(search.map("{}".format, "ab")) == ["a", "b"]  # again


@counts
def test_work_runs_concurrently_in_single_threaded_workers(count):
    torch.set_num_threads(count)  # a fixture of all tests restores it
    together = threading.Barrier(count, timeout=20)

    def work(_):
        together.wait()
        return torch.get_num_threads(), threading.get_ident()

    with ENGINE.search(CPU) as search:
        done = list(search.map(work, range(count)))
    assert {threads for threads, _ in done} == {1}
    assert len({ident for _, ident in done}) == count
    assert torch.get_num_threads() == count
    assert (threading.get_ident() in {ident for _, ident in done}) == (count == 1)


@counts
def test_errors_of_the_work_are_raised_and_threads_restored(count):
    torch.set_num_threads(count)  # a fixture of all tests restores it

    def work(item):
        if item == 3:
            raise ValueError("three")
        return item

    with pytest.raises(ValueError, match="three"), ENGINE.search(CPU) as search:
        list(search.map(work, range(50)))
    assert torch.get_num_threads() == count


@counts
def test_work_runs_without_gradients_and_in_plain_float32(count, request):
    torch.set_num_threads(count)  # a fixture of all tests restores it
    request.addfinalizer(lambda: torch.set_float32_matmul_precision("highest"))
    torch.set_float32_matmul_precision("medium")

    def state(_=None):
        precision = torch.get_float32_matmul_precision()
        return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), precision

    with torch.autocast("cpu", dtype=torch.bfloat16):
        with ENGINE.search(CPU) as search:
            assert {state(), *search.map(state, range(9))} == {(False, False, "highest")}
        assert state() == (True, True, "medium")
