import pytest
import torch
from search_cases import SEARCH_KINDS, place, sq_radii
from torch.overrides import TorchFunctionMode

from genpr.neighbors.counts import cross_counts
from genpr.neighbors.engine import Engine
from genpr.neighbors.nearest import nearest_between


class _DeviceCheck(TorchFunctionMode):
    """Records tensors that are created without a device."""

    _MAKERS = frozenset(
        {torch.empty, torch.zeros, torch.ones, torch.full, torch.arange, torch.eye, torch.tensor}
    )

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        asks_for_default = func is torch.empty and args == (0,) and not kwargs  # as `plain_state` does
        if func in self._MAKERS and "device" not in (kwargs or {}) and not asks_for_default:
            self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", SEARCH_KINDS)
@pytest.mark.parametrize("copies", [1, 8])
def test_tensors_are_created_on_the_device_of_the_data_and_of_its_type(kind, copies, rng, set_sizes):
    # Empty portions, too, must be on the device of the data, which only a GPU would check.
    set_sizes(min_pairs=1)
    sets, engine, check = rng.normal(size=(2, 6, 5)).repeat(copies, axis=1), Engine(16, 16), _DeviceCheck()

    def search():
        x, y = place(*torch.from_numpy(sets).float(), kind=kind)
        with check:
            radii = sq_radii(x, [3], engine=engine)
            some, none = (
                cross_counts(x, y, real_sq_radii=each, engine=engine)
                for each in (radii, torch.full_like(radii, -torch.inf))
            )
            nearest = nearest_between(x, y, 3, engine=engine)
        return [radii, some.real_balls_per_fake, none.fakes_per_real_ball, *nearest]

    expected = search()
    torch.set_default_dtype(torch.float64)
    try:
        found = search()
    finally:
        torch.set_default_dtype(torch.float32)
    assert not check.seen
    for one, other in zip(expected, found, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
