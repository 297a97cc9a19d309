"""An emulated GPU for tests: tensors on `cuda:0` whose values are computed on the CPU, with the errors and costs of CUDA.

    with practice_device() as device:
        genpr.precision_recall(real, fake, device="cuda")
    print(device.report())

Inside the block torch reports one GPU. `.to("cuda")`, `.cuda()` and factories give tensors of the class `PracticeTensor`,
whose `.device` is `cuda:0`. `python scripts/practice_cuda.py SCRIPT [ARGUMENTS]` runs a script in this way and prints the report.

It raises where CUDA raises: operands on two devices, `.numpy()` of a device tensor, a generator of the other device, types
without a CUDA kernel, shapes that `torch._int_mm` refuses, and memory beyond `limit` bytes. It also refuses products of int32, which overflow in
indices of large matrices. It differs from the CPU where
CUDA may: float32 products are rounded to TF32 where torch's settings allow it, sums and products are added in another order
(`reorder`), and sums of fewer than 16 rows in yet another (`by_shape`). It counts kernels, synchronizations by line of
genpr, copies between host and device, the peak of memory, kernels that are not deterministic on CUDA, and estimates the
time on an H200 from its bandwidth and arithmetic rate. The estimate is not a measurement.

It does not emulate races between streams, asynchronous errors, or several GPUs.
"""

import functools
import runpy
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, Self
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("cuda", 0)
IS_POSSIBLE = hasattr(torch._C, "_ensureCUDADeviceGuardSet")  # else torch is too old
_PACKAGE, _TORCH = str(Path(__file__).resolve().parents[1] / "genpr"), str(Path(torch.__file__).parent)
_lock = threading.RLock()


@dataclass
class PracticeDevice:
    """Settings of the emulated GPU, and its counters since the start or the last reset."""

    limit: int = 8 * 2**30  # bytes of its memory
    reorder: bool = True  # add float sums and products in another order than the CPU
    by_shape: bool = (
        False  # sums of rows: only those of fewer than 16 rows, as a reduction on CUDA depends on the shape
    )
    by_line: bool = False  # count kernels and time of each line of genpr, which is slow
    kernels: int = 0
    seconds: float = 0.0
    bytes_now: int = 0
    peak_bytes: int = 0
    synchronizations: Counter[tuple[str, str]] = field(default_factory=Counter)  # by operation and line
    nondeterministic: Counter[tuple[str, str]] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)  # "to device" and "to host"
    copied_bytes: Counter[str] = field(default_factory=Counter)
    kernels_of_line: Counter[str] = field(default_factory=Counter)
    seconds_of_line: Counter[str] = field(default_factory=Counter)
    refusals: list[str] = field(default_factory=list)  # errors that it raised, other than of memory

    def reset(self) -> None:
        """Reset all counters."""
        self.kernels, self.seconds, self.peak_bytes = 0, 0.0, self.bytes_now
        for each in vars(self).values():
            if isinstance(each, Counter | list):
                each.clear()

    def report(self, most: int = 20) -> str:
        """Format the counters, with the lines of genpr with the highest counts first."""
        lines = [
            f"{self.kernels} kernels, {self.synchronizations.total()} synchronizations",
            f"estimated {self.seconds * 1e3:.1f} ms on an H200, peak {self.peak_bytes / 1e6:.1f} MB",
            *(f"copies {way}: {n}, {self.copied_bytes[way] / 1e6:.1f} MB" for way, n in self.copies.items()),
        ]
        for title, counts in (("sync", self.synchronizations), ("not deterministic", self.nondeterministic)):
            lines += [f"{title} {n:6d}  {name} at {line}" for (name, line), n in counts.most_common(most)]
        for line, seconds in self.seconds_of_line.most_common(most):
            lines.append(f"kernels {self.kernels_of_line[line]:6d}, {seconds * 1e3:8.2f} ms at {line}")
        return "\n".join(lines)

    def synchronize(self, name: str) -> None:
        """Count that the host waits for the device."""
        with _lock:
            self.synchronizations[name, _line()] += 1
            self.seconds += _SYNC_SECONDS


_device = PracticeDevice()  # the one in use


def _line() -> str:
    """Return the innermost line of genpr on the stack, else that of the script or test."""
    frame, other = sys._getframe(2), None
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_PACKAGE):
            return f"genpr{name[len(_PACKAGE) :]}:{frame.f_lineno}"
        if other is None and name != __file__ and not name.startswith(_TORCH):
            other = f"{Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back
    return other or "elsewhere"


def _refuse(error: Exception) -> NoReturn:
    _device.refusals.append(str(error))
    raise error


# Tensors and their memory


class PracticeTensor(torch.Tensor):
    """A tensor on the emulated GPU; its `values` are on the CPU."""

    values: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    def __new__(cls, values: Tensor) -> Self:
        layout = {"strides": values.stride(), "storage_offset": values.storage_offset()}
        with torch.inference_mode(False):  # a wrapper made in inference mode could not be detached later
            made = Tensor._make_wrapper_subclass(
                cls, values.shape, **layout, dtype=values.dtype, device=DEVICE
            )
        made.values = values
        _account(values.untyped_storage())
        return made

    def __repr__(self, **_: object) -> str:
        return f"practice({self.values!r})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else repr(self)

    def __deepcopy__(self, memo: dict[int, object]) -> object:
        return memo.setdefault(id(self), self.detach().clone().requires_grad_(self.requires_grad))

    def numpy(self, *, force: bool = False) -> object:
        if force:
            return self.detach().cpu().numpy()
        _refuse(TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first."))

    def __array__(self, *_: object, **__: object) -> object:
        return self.numpy()

    def tolist(self) -> object:
        _device.synchronize("tolist")
        return self.values.detach().tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _dispatch(func, args, kwargs or {})


_storages: set[int] = set()  # of device tensors that are alive
_pinned: set[int] = set()  # of pinned host memory


def _account(storage: torch.UntypedStorage) -> None:
    """Count the memory of a tensor until it is freed."""
    key, count, device = storage._cdata, -(-storage.nbytes() // 512) * 512, _device

    def freed() -> None:
        with _lock:
            _storages.discard(key)
            device.bytes_now -= count

    with _lock:
        if key not in _storages:
            _storages.add(key)
            weakref.finalize(storage, freed)
            device.bytes_now += count
            device.peak_bytes = max(device.peak_bytes, device.bytes_now)


def _pin(tensor: Tensor, *_: object) -> Tensor:
    if isinstance(tensor, PracticeTensor):
        _refuse(RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned"))
    return tensor if _is_pinned(tensor) else _marked_as_pinned(tensor.clone())


def _marked_as_pinned(tensor: Tensor) -> Tensor:
    storage = tensor.untyped_storage()
    _pinned.add(storage._cdata)
    weakref.finalize(storage, _pinned.discard, storage._cdata)
    return tensor


def _is_pinned(tensor: Tensor, *_: object) -> bool:
    return not isinstance(tensor, PracticeTensor) and tensor.untyped_storage()._cdata in _pinned


def _record_stream(tensor: Tensor, *_: object) -> None:
    if not isinstance(tensor, PracticeTensor):
        _refuse(RuntimeError("record_stream is only for tensors on CUDA"))


# What CUDA refuses

_COPIES = {"_to_copy", "copy_", "copy", "set_"}
_INDEXING = {"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_"}
_TAKE_CPU_SCALARS = {"masked_fill", "masked_fill_", "fill", "fill_", "where", "clamp", "index_fill_"}
_PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "addbmm", "linear"}
_INTEGERS = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
# Types with a kernel on the CPU and none on CUDA, by torch's own table of operations (torch.testing, op_db).
_NO_KERNEL = {
    **dict.fromkeys((*_PRODUCTS, "convolution", "avg_pool2d", "max_pool2d_with_indices"), _INTEGERS),
    "_upsample_bilinear2d_aa": {torch.uint8},
    "histc": {torch.float16, torch.bfloat16},
}


def _check_devices(func: Any, name: str, args: Any, tensors: list[Tensor]) -> None:
    """Raise if operands are on two devices; CPU scalars of pointwise operations and CPU indices are allowed."""
    host = [x for x in tensors if not isinstance(x, PracticeTensor)]
    if not host or name in _COPIES:
        return
    if name in _INDEXING and isinstance(args[0], PracticeTensor):
        values = args[2] if len(args) > 2 else args[0]
        if isinstance(values, PracticeTensor) or values.dim() == 0:
            if any(x is not None and not isinstance(x, PracticeTensor) for x in _leaves(args[1])):
                _device.synchronize(f"{name} by CPU indices")
            return
    elif all(x.dim() == 0 for x in host) and (torch.Tag.pointwise in func.tags or name in _TAKE_CPU_SCALARS):
        return
    _refuse(RuntimeError(f"Expected all tensors of {name} on the same device, but found cuda:0 and cpu"))


def _check_types(name: str, tensors: list[Tensor]) -> None:
    dtype = next((x.dtype for x in tensors if isinstance(x, PracticeTensor)), None)
    if dtype in _NO_KERNEL.get(name, ()):
        _refuse(RuntimeError(f"{name!r} is not implemented on CUDA for {dtype}"))
    if name in {"mul", "mul_", "floor_divide"} and dtype == torch.int32:
        _refuse(OverflowError("the index of an element of a large matrix needs int64"))


def _check_int_mm(left: Tensor, right: Tensor) -> None:
    rows, inner, columns = left.shape[0], left.shape[1], right.shape[1]
    are_int8 = left.dtype == right.dtype == torch.int8
    if not (are_int8 and rows > 16 and inner > 0 and inner % 8 == 0 and columns > 0 and columns % 8 == 0):
        _refuse(RuntimeError(f"_int_mm takes no {rows} x {inner} by {inner} x {columns} of {left.dtype}"))
    if left.stride(1) != 1 or right.stride(0) != 1:
        _refuse(RuntimeError("_int_mm takes a row-major by a column-major matrix"))


# Arithmetic that differs from the CPU's


def _allows_tf32(convolution: bool) -> bool:
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    if not hasattr(cudnn, "conv"):  # torch < 2.9
        return bool(cudnn.allow_tf32 if convolution else matmul.allow_tf32)
    own = (cudnn.conv if convolution else matmul).fp32_precision
    return (torch.backends.fp32_precision if own == "none" else own) == "tf32"


def _rounded_to_tf32(x: object) -> object:
    if not (isinstance(x, Tensor) and x.dtype == torch.float32 and x.dim() >= 2):
        return x
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32).where(x.isfinite(), x)


def _product(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Float32 products: of TF32 where that is allowed, else added in two parts."""
    tensors = [x for x in args if isinstance(x, Tensor)]
    if (
        func is torch.ops.aten.mm.dtype
    ):  # with float32 sums that err as much as truncation on tensor cores may
        left, right = tensors[0].float(), tensors[1].float()
        return (left @ right).sub_(left.abs() @ right.abs(), alpha=left.shape[1] * 2.0**-23)
    if tensors[0].dtype != torch.float32:
        return func(*args, **kwargs)
    if _allows_tf32(name == "convolution"):
        return func(*map(_rounded_to_tf32, args), **kwargs)
    if not (_device.reorder and name == "mm" and set(kwargs) <= {"out"} and args[0].shape[1] > 3):
        return func(*args, **kwargs)
    left, right = args
    cut = left.shape[1] // 3
    result = torch.mm(left[:, :cut], right[:cut]).add_(torch.mm(left[:, cut:], right[cut:]))
    return kwargs["out"].copy_(result) if "out" in kwargs else result


def _sum(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """Sums of floats from the last to the first."""
    x = args[0]
    is_plain = _device.by_shape and x.dim() == 2 and len(x) >= 16
    if is_plain or not _device.reorder or x.dtype not in {torch.float32, torch.float64}:
        return func(*args, **kwargs)
    dims = args[1] if len(args) > 1 and args[1] is not None else ()
    dims = [dims] if isinstance(dims, int) else list(dims) or list(range(x.dim()))
    return func(x.flip(dims), *args[1:], **kwargs)


def _batch_norm(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    return (*torch.native_batch_norm(*args), torch.empty(0, dtype=torch.uint8))


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    **dict.fromkeys((*_PRODUCTS, "convolution"), _product),
    "sum": _sum,
    "cudnn_batch_norm": _batch_norm,
}


# What things cost: an H200 by its data sheet, a launch and a synchronization as commonly measured

_FLOPS = {torch.float64: 60e12, torch.float32: 50e12, torch.int8: 1400e12}
_FLOPS |= dict.fromkeys((torch.float16, torch.bfloat16), 790e12)
_TF32_FLOPS, _BANDWIDTH, _HOST_BANDWIDTH = 380e12, 4.3e12, 25e9
_LAUNCH_SECONDS, _SYNC_SECONDS, _KERNEL_SECONDS = 5e-6, 15e-6, 2e-6
_WAITS = {
    *("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim"),
    *("unique_consecutive", "repeat_interleave", "bincount", "histc", "_linalg_eigh", "_linalg_svd"),
    *("linalg_qr", "_linalg_solve_ex", "linalg_cholesky_ex"),
}
# Float sums in any order on CUDA, by the list of torch.use_deterministic_algorithms.
_ATOMIC = {"index_add", "scatter_add", "scatter_reduce", "index_reduce", "put", "cumsum", "bincount", "histc"}
_ATOMIC |= {"median", "kthvalue", "embedding_dense_backward"}
_MANY_PASSES = {"sort", "argsort", "_unique2", "topk"}


def _seconds(name: str, tensors: list[Tensor], results: list[Tensor]) -> float:
    """The time of one kernel, by the bytes it moves and the products it forms."""
    moved = sum(x.nbytes for x in (*tensors, *results))
    if name in {"index", "gather", "index_select"}:  # reads what it gathers, not all
        moved = 2 * sum(x.nbytes for x in results)
    elif name in {"index_put_", "_index_put_impl_"}:
        moved = 2 * sum(x.nbytes for x in tensors[1:])
    seconds = moved * (6 if name in _MANY_PASSES else 1) / _BANDWIDTH
    matrices = [x for x in tensors if x.dim() >= 2][-2:]
    if name in {*_PRODUCTS, "_int_mm"} and len(matrices) == 2:
        left, right = matrices
        is_tf32 = left.dtype == torch.float32 and _allows_tf32(False)
        rate = _TF32_FLOPS if is_tf32 else _FLOPS.get(left.dtype, 30e12)
        seconds = max(seconds, 2 * left.numel() * right.shape[-1] / rate)
    return max(seconds, _KERNEL_SECONDS) + _LAUNCH_SECONDS


def _count_copy(name: str, args: Any, kwargs: Any, to_device: bool) -> bool:
    """Count a copy between host and device; return whether it is one."""
    target, source = (None, args[0]) if name == "_to_copy" else args[:2]
    from_device = isinstance(source, PracticeTensor)
    if from_device == to_device:
        return False
    host = target if from_device else source  # torch itself pins the memory of a new tensor
    is_asynchronous = kwargs.get("non_blocking") or args[2:3] == (True,)
    way = "to host" if from_device else "to device"
    with _lock:
        _device.copies[way] += 1
        _device.copied_bytes[way] += source.nbytes
        _device.seconds += source.nbytes / _HOST_BANDWIDTH + _LAUNCH_SECONDS
        if not (is_asynchronous and (host is None or _is_pinned(host))):
            _device.synchronize(f"copy {way}")
    return True


def _count_kernel(func: Any, name: str, args: Any, tensors: list[Tensor], results: list[Tensor]) -> None:
    if _is_view(func) or name.startswith(("empty", "new_empty", "_unsafe_view")):
        return
    seconds = _seconds(name, tensors, results)
    plain, indices = name.rstrip("_"), args[1] if name in _INDEXING else ()
    masks = any(x is not None and x.dtype == torch.bool for x in _leaves(indices))
    adds = plain in _ATOMIC or (plain in {"index_put", "_index_put_impl"} and True in args[3:])
    with _lock:
        _device.kernels += 1
        _device.seconds += seconds
        if name in _WAITS or masks:
            _device.synchronize(name)
        if adds and any(x.is_floating_point() for x in tensors):
            _device.nondeterministic[name, _line()] += 1
        if _device.by_line:
            _device.kernels_of_line[_line()] += 1
            _device.seconds_of_line[_line()] += seconds


# Dispatch


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)([_mapped(function, each) for each in value])
    return function(value)


def _unwrapped(x: Any) -> Any:
    return x.values if isinstance(x, PracticeTensor) else x


def _wrapped(x: Any) -> Any:
    return PracticeTensor(x) if isinstance(x, Tensor) and not isinstance(x, PracticeTensor) else x


@functools.cache
def _is_composite(func: Any) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    return bool(has and func._can_decompose())


@functools.cache
def _is_view(func: Any) -> bool:
    infos = [each.alias_info for each in func._schema.returns]
    return any(info is not None and not info.is_write for info in infos)


@functools.cache
def _written(func: Any) -> list[tuple[int, str]]:
    """Places and names of the arguments that an operation writes to."""
    infos = [(i, each.name, each.alias_info) for i, each in enumerate(func._schema.arguments)]
    return [(i, name) for i, name, info in infos if info is not None and info.is_write]


class PracticeMode(TorchDispatchMode):
    """Handles operations without a device tensor among the operands: factories and copies to the device."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch would import its compiler, which takes seconds

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _dispatch(func, args, kwargs or {})


def _dispatch(func: Any, args: Any, kwargs: Any) -> Any:
    name = func._schema.name.removeprefix("aten::")
    leaves = [*_leaves(args), *_leaves(list(kwargs.values()))]
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    is_there = any(isinstance(x, PracticeTensor) for x in tensors)
    target_device = next((torch.device(x) for x in leaves if isinstance(x, torch.device)), None)
    to_device = is_there if target_device is None else target_device.type == "cuda"
    if (is_there or to_device) and _is_composite(func):  # in inference mode torch does not take them apart
        with PracticeMode():
            return func.decompose(*args, **kwargs)
    if to_device and any(isinstance(x, torch.Generator) for x in leaves):
        _refuse(RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'"))
    if name == "copy_":
        to_device = isinstance(args[0], PracticeTensor)
    is_pinned = kwargs.pop("pin_memory", None)
    if not is_there and not to_device:
        made = func(*args, **kwargs)
        return _marked_as_pinned(made) if is_pinned else made
    _check_devices(func, name, args, tensors)
    _check_types(name, tensors)
    if name == "_int_mm":
        _check_int_mm(*args)
    crosses = name in {"_to_copy", "copy_"} and _count_copy(name, args, kwargs, to_device)
    out = _computed(func, name, args, kwargs)
    results = [x for x in _leaves(out) if isinstance(x, Tensor)]
    device_tensors = [x for x in tensors if isinstance(x, PracticeTensor)]
    if not crosses:
        _count_kernel(func, name, args, device_tensors, results)
    if not to_device:
        return out
    new = {x.untyped_storage()._cdata: x.untyped_storage().nbytes() for x in results}
    if _device.bytes_now + sum(count for key, count in new.items() if key not in _storages) > _device.limit:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate on the practice device.")
    return _as_device_tensors(func, name, args, kwargs, out)


def _computed(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    on_cpu = {key: _mapped(_unwrapped, each) for key, each in kwargs.items() if key != "non_blocking"}
    if on_cpu.get("device") is not None:
        on_cpu["device"] = torch.device("cpu")
    args = _mapped(lambda x: torch.device("cpu") if isinstance(x, torch.device) else _unwrapped(x), args)
    compute = _ARITHMETIC.get(name)
    return func(*args, **on_cpu) if compute is None else compute(func, name, args, on_cpu)


def _as_device_tensors(func: Any, name: str, args: Any, kwargs: Any, out: Any) -> Any:
    """Results on the device; those that are arguments written to are these arguments."""
    writes = [args[i] if i < len(args) else kwargs.get(argument) for i, argument in _written(func)]
    targets = [x for x in _leaves(writes) if isinstance(x, PracticeTensor)]
    for each in targets:
        if each.shape != each.values.shape:  # as squeeze_ and unsqueeze_ do
            with torch._C._DisableTorchDispatch():
                func(*args, **kwargs)
    same = {id(x.values): x for x in targets}
    return _mapped(lambda x: same.get(id(x)) if id(x) in same else _wrapped(x), out)


# torch.cuda


class _InOrder:
    """A stream, an event or a device guard: all operations run immediately and in order."""

    device, cuda_stream = DEVICE, 0

    def __init__(self, *_: object, **__: object) -> None:
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def synchronize(self) -> None:
        _device.synchronize("stream or event")

    def query(self) -> bool:
        return True

    record = record_event = wait = wait_event = wait_stream = __exit__


def _of_torch_cuda() -> dict[str, object]:
    """Replacements of members of torch.cuda while the GPU is emulated."""
    properties = SimpleNamespace(
        name="Practice GPU", major=9, minor=0, total_memory=8 * 2**30, uuid="practice"
    )

    def answers(value: object) -> Callable[..., object]:
        return lambda *_, **__: value

    def reset_peak(*_: object) -> None:
        _device.peak_bytes = _device.bytes_now

    constants = {
        **dict.fromkeys(
            ("_lazy_init", "init", "set_device", "empty_cache", "manual_seed", "manual_seed_all")
        ),
        **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported"), True),
        **dict.fromkeys(("get_rng_state", "set_rng_state"), torch.empty(0)),
        "device_count": 1,
        "current_device": 0,
        "get_device_name": properties.name,
        "get_device_capability": (9, 0),
        "get_device_properties": properties,
    }
    in_order = ("Stream", "Event", "current_stream", "default_stream", "stream", "device")
    return {
        **{name: answers(value) for name, value in constants.items()},
        **dict.fromkeys(in_order, _InOrder),
        "memory_reserved": lambda *_: _device.bytes_now,
        "memory_allocated": lambda *_: _device.bytes_now,
        "max_memory_allocated": lambda *_: _device.peak_bytes,
        "reset_peak_memory_stats": reset_peak,
        "mem_get_info": lambda *_: (max(0, _device.limit - _device.bytes_now), _device.limit),
        "synchronize": lambda *_: _device.synchronize("synchronize"),
    }


@contextmanager
def practice_device(**settings: Any) -> Iterator[PracticeDevice]:
    """Make torch report one emulated GPU inside a `with` block, with these settings of `PracticeDevice`."""
    global _device
    torch._C._ensureCUDADeviceGuardSet()
    run, before, lifts = threading.Thread.run, _device, torch._C._only_lift_cpu_tensors()
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()

    def run_with_mode(thread: threading.Thread) -> None:  # a mode belongs to one thread
        with PracticeMode():
            run(thread)

    with ExitStack() as stack:
        stack.enter_context(patch.multiple(torch.cuda, **_of_torch_cuda()))
        stack.enter_context(
            patch.multiple(Tensor, pin_memory=_pin, is_pinned=_is_pinned, record_stream=_record_stream)
        )
        stack.enter_context(patch.object(threading.Thread, "run", run_with_mode))
        stack.callback(torch._C._set_only_lift_cpu_tensors, lifts)
        torch._C._set_only_lift_cpu_tensors(True)
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, overwrites)
        torch.__future__.set_overwrite_module_params_on_conversion(True)  # `.data =` takes no other class
        _device = PracticeDevice(**settings)
        try:
            with PracticeMode():
                yield _device
        finally:
            _device = before


if __name__ == "__main__":
    with practice_device(by_line=True) as practiced:
        sys.argv = sys.argv[1:]
        runpy.run_path(sys.argv[0], run_name="__main__")
    print(practiced.report())
