"""Run times on made-up data: what the data are, and that their memory is bounded and given back."""

import ctypes
import itertools
import mmap
from types import SimpleNamespace

import numpy as np
import pytest
from shapevm.jit import compile_job
from shapevm.jit.compile_job import MAX_MEASURED_BYTES, Job, answer
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.llvm.target import host_target
from shapevm.jit.measure.objects import Scratch, buffer_bytes, compared_ns, made_up
from shapevm.jit.spec import Buffer, Dim, Index, Instr, Nest, to_json
from shapevm.vm.objects import parse_object, serialise_object
from shapevm.vm.work import work_of

from ..nests import bias_add

AT = (Index(0),)
GATHER = Nest(
    1,
    (
        Buffer("f32", (Dim(0),)),
        Buffer("i64", (Dim(0),)),
        Buffer("bf16", (3,)),
        Buffer("f32", (Dim(0),), True),
    ),  # fmt: skip
    (Dim(0),),
    (
        Instr("load", "i64", buffer=1, index=AT),
        Instr("load", "f32", buffer=0, index=(Index(value=0),)),
        Instr("store", "f32", (1,), buffer=3, index=AT),
    ),
)


def kernel(dims=None):
    return Kernel(compile_kernel(GATHER, dims))


def resident_bytes(memory):
    """The bytes of a mapping that the system has memory for: of no other thread's."""
    n_pages = -(-memory.nbytes // mmap.PAGESIZE)
    found = (ctypes.c_ubyte * n_pages)()
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    assert mincore(ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(memory.nbytes), found) == 0
    return sum(page & 1 for page in found) * mmap.PAGESIZE


def test_buffers_lie_apart_in_one_piece_of_memory():
    scratch, generic = Scratch(), kernel()
    for n in (0, 1, 7, 100_000, 5):
        buffers = made_up(generic, (n,), scratch)
        assert [b.shape for b in buffers] == [(n,), (n,), (3,), (n,)]
        assert [b.dtype for b in buffers] == [np.float32, np.int64, np.uint16, np.float32]
        assert not buffers[1].any() and not buffers[2].any()  # also where others have been before
        spans = sorted((b.ctypes.data, b.ctypes.data + b.nbytes) for b in buffers)
        assert all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:], strict=False))
        assert n < 1000 or abs(float(buffers[0].mean())) < 0.05
        buffers[1].fill(0)
        generic.run(buffers, (n,))
        np.testing.assert_array_equal(buffers[3], np.full(n, buffers[0][0] if n else 0))
        for b in buffers:
            b.view(np.uint8).fill(255)


def test_memory_is_used_again_and_given_back():
    scratch, objects = Scratch(), {"generic": compile_kernel(GATHER, None)}
    compared_ns(objects, (1000,), scratch=scratch)
    for n in (1_000_000, 2_000_000, 3_000_000):  # 48 MB
        assert set(compared_ns(objects, (n,), 1, scratch=scratch)) == {"generic"}
    assert scratch._memory is not None and len(scratch._memory) >= 42_000_000
    assert resident_bytes(np.frombuffer(scratch._memory, np.uint8)) == 0


def test_what_takes_too_much_memory_is_not_measured():
    generic = compile_kernel(GATHER, None)
    n = MAX_MEASURED_BYTES // 16
    job = Job(to_json(GATHER), (n,), host_target(), None, serialise_object(generic))
    made = answer(job)
    assert (made.exact_ns, made.generic_ns) == (0, 0) and parse_object(made.record).exact_dims == (n,)
    memory = compile_job._scratch()._memory
    assert memory is None or len(memory) <= MAX_MEASURED_BYTES
    assert buffer_bytes(kernel(), (n,)) > MAX_MEASURED_BYTES


def test_a_job_compiles_and_measures():
    generic = compile_kernel(GATHER, None)
    made = answer(Job(to_json(GATHER), (100,), host_target(), None, serialise_object(generic)))
    assert made.record == serialise_object(compile_kernel(GATHER, (100,)))
    assert made.exact_ns > 0 and made.generic_ns > 0 and made.cpu_seconds > 0 and not made.failure
    unmeasured = answer(Job(to_json(GATHER), (100,), host_target(), None, b""))
    assert unmeasured.record == made.record and unmeasured.exact_ns == 0
    with pytest.raises(ValueError, match="sizes are >= 0"):
        answer(Job(to_json(GATHER), (-1,), host_target(), None, b""))


def test_work_grows_with_the_sizes():
    work = work_of(compile_kernel(GATHER, None))
    assert work((0,)) == 0 and 0 < work((1000,)) < work((100_000,))


def test_a_measurement_lasts_as_long_as_it_may(monkeypatch):
    """A clock that goes on by 10 ms whenever it is looked at."""
    ticks = itertools.count()
    looks = {"perf_counter": lambda: next(ticks) / 100, "perf_counter_ns": lambda: next(ticks) * 10**7}
    monkeypatch.setattr("shapevm.jit.execute.time", SimpleNamespace(**looks))
    kernel = Kernel(compile_kernel(bias_add(), (2, 3)))
    buffers = [np.zeros(shape, np.float32) for shape in ((2, 3), (3,), (2, 3))]
    assert kernel.least_ns(buffers, (2, 3), 0.0) == 10**7
    begin = next(ticks)
    assert kernel.least_ns(buffers, (2, 3), 3.0) == 10**7
    assert 300 <= next(ticks) - begin <= 310
