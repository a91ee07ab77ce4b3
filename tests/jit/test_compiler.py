"""compile_kernel: one path to code objects; what it refuses; that it leaks nothing."""

import gc
import threading
from dataclasses import astuple
from time import perf_counter

import numpy as np
import pytest
from shapevm.jit import compiler
from shapevm.jit.compiler import assembly, bounds, compile_kernel, target_for
from shapevm.jit.execute import Kernel
from shapevm.jit.llvm.target import TARGETS, find_target, host_target
from shapevm.jit.spec import Buffer, Dim, Index, Instr, Nest

from .families.attention.test_attention import attention
from .nests import M, N, bias_add, gelu, layer_norm


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dims", [None, (5, 37)])
def test_compiles_for_every_target(target, dims):
    code = compile_kernel(bias_add(), dims, target)
    assert code.target == target_for(bias_add(), target) and code.exact_dims == dims
    assert code.n_dims == 2 and code.llvm_ir == ""
    assert len(code.code.data) > 32 and code.timings is not None
    assert 0 <= code.timings.emit < code.timings.total


def test_the_same_arguments_give_the_same_code():
    assert compile_kernel(layer_norm(), (3, 0)) == compile_kernel(layer_norm(), (3, 0))


@pytest.mark.parametrize("target", TARGETS)
def test_code_does_not_depend_on_what_was_compiled_before(target):
    """Parts that are known are linked, new ones are compiled with their kernel: the bytes are the same."""
    spec = attention(64, 64, mask="padding")
    for dims in ((1, 2, 37, 37), None):
        compiler._PARTS = compiler.Parts()
        first = compile_kernel(spec, dims, target)
        assert compile_kernel(spec, dims, target).code == first.code
        f, _ = compiler._generate(spec, dims, compiler.target_for(spec, target), None)
        assert compiler._PARTS.known(f, compiler.target_for(spec, target))


@pytest.mark.parametrize("target", TARGETS)
def test_a_long_operation_is_compiled_once_for_all_kernels(target):
    compiler._PARTS = compiler.Parts()
    place = (Index(loop=0),)
    for ops in (("digamma",), ("abs", "digamma", "neg")):
        steps = [Instr(op, "f32", (i,)) for i, op in enumerate(ops)]
        body = (Instr("load", "f32", buffer=0, index=place), *steps)
        body += (Instr("store", "f32", (len(ops),), buffer=1, index=place),)
        spec = Nest(2, (Buffer("f32", (N,)), Buffer("f32", (N,), True)), (N,), body)
        f, _ = compiler._generate(spec, None, target_for(spec, target), None)
        assert "digamma" in str(list(f.functions())) and "call <" in f.whole_text()
        known = compiler._PARTS.known(f, target_for(spec, target))
        assert bool(known) is (len(ops) > 1), list(known)
        compile_kernel(spec, None, target)


def test_ir_is_kept_on_request_and_assembly_is_text():
    assert "define void @kernel" in compile_kernel(bias_add(), None, keep_ir=True).llvm_ir
    assert "zmm" in assembly(bias_add(), (64, 64), "x86-64-v4") and "zmm" not in assembly(
        bias_add(), None, "x86-64-v3"
    )


def test_the_times_of_a_compilation_are_parts_of_it():
    begin = perf_counter()
    timings = compile_kernel(gelu(), (61, 67)).timings  # sizes that no other test compiles
    elapsed = perf_counter() - begin
    assert timings is not None
    parts = astuple(timings)
    assert all(part >= 0 for part in parts) and min(parts[:3]) > 0 and sum(parts) <= elapsed


def test_threads_compile_at_once():
    expected = compile_kernel(bias_add(), (7, 7)).code
    found: list[bytes] = []
    threads = [
        threading.Thread(
            target=lambda: found.extend(compile_kernel(bias_add(), (7, 7)).code for _ in range(5))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 20


def test_compiling_does_not_leak():
    def resident() -> int:
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * 4096

    for n in range(30):
        compile_kernel(bias_add(), (n, 3))
    grown = []
    for columns in (4, 5, 6):  # other threads take memory too, but hardly in every round
        before = resident()
        for n in range(150):
            compile_kernel(bias_add(), (n, columns))
        grown.append(resident() - before)
        if grown[-1] < 150 * 20_000:  # a ModulePassManager alone leaked 88 KB per kernel
            return
    raise AssertionError(grown)


@pytest.mark.parametrize(
    ("dims", "message"), [((1,), "1 sizes given, its spec has 2"), ((1, -2), "size n1 is -2; sizes are >= 0")]
)
def test_wrong_sizes_are_refused(dims, message):
    with pytest.raises(ValueError, match=message):
        compile_kernel(bias_add(), dims)


def test_unknown_target_schedule_and_op_are_refused():
    with pytest.raises(ValueError, match="'sparc' is unknown; known are x86-64-v4"):
        compile_kernel(bias_add(), None, "sparc")
    with pytest.raises(ValueError, match="'fast' is unknown; known are vectors, vectors-unasked"):
        compile_kernel(bias_add(), None, schedule="fast")
    strange = Nest(
        0,
        (Buffer("f32", (4,)),),
        (4,),
        (Instr("load", "f32", buffer=0, index=(Index(0),)), Instr("frob", "f32", (0,))),
    )
    with pytest.raises(ValueError, match="frob"):
        compile_kernel(strange, ())


def shifted(offset: int | Dim, scale: int = 1) -> Nest:
    """out[i] = x[scale * i + offset]."""
    place = Index(loop=0, scale=scale, offset=offset)
    body = (
        Instr("load", "f32", buffer=0, index=(place,)),
        Instr("store", "f32", (0,), buffer=1, index=(Index(0),)),
    )
    return Nest(3, (Buffer("f32", (M,)), Buffer("f32", (N,), True)), (N,), body)


def test_bounds_that_shapes_decide_are_none():
    assert bounds(bias_add()) == () and bounds(layer_norm()) == ()


def test_bounds_of_a_slice():
    assert bounds(shifted(Dim(2))) == ((N, 1, Dim(2), M),)
    assert bounds(shifted(2), (5, 7, 0)) == ()
    with pytest.raises(ValueError, match="buffer 0 is read or written at 7 along axis 0 of size 7"):
        bounds(shifted(3), (5, 7, 0))
    with pytest.raises(ValueError, match="at -1 along axis 0 of size 7"):
        bounds(shifted(4, -1), (6, 7, 0))
    assert bounds(shifted(99), (0, 7, 0)) == ()


def test_bounds_hold_at_a_generic_launch():
    kernel = Kernel(compile_kernel(shifted(Dim(2)), None))
    x, out = np.arange(9, dtype=np.float32), np.zeros(5, np.float32)
    kernel.run([x, out], (5, 9, 4))
    assert out.tolist() == [4, 5, 6, 7, 8]
    with pytest.raises(ValueError, match="indices 5 to 9 leave an axis of size 9"):
        kernel.run([x, out], (5, 9, 5))


@pytest.mark.parametrize(
    ("buffers", "message"),
    [
        ([np.zeros((2, 3), np.float32)] * 2, "2 buffers given, it takes 3"),
        (
            [np.zeros((2, 3), np.float64), np.zeros(3, np.float32), np.zeros((2, 3), np.float32)],
            "buffer 0 is float64",
        ),
        (
            [np.zeros((2, 3), np.float32), np.zeros(4, np.float32), np.zeros((2, 3), np.float32)],
            "buffer 1 .* 12 bytes",
        ),
        (
            [np.zeros((3, 2), np.float32).T, np.zeros(3, np.float32), np.zeros((2, 3), np.float32)],
            "contiguous",
        ),
    ],
)
def test_wrong_buffers_are_refused(buffers, message):
    with pytest.raises(ValueError, match=message):
        Kernel(compile_kernel(bias_add(), None)).run(buffers, (2, 3))


def test_an_exact_kernel_refuses_other_sizes():
    kernel = Kernel(compile_kernel(bias_add(), (2, 3)))
    with pytest.raises(ValueError, match=r"sizes \(3, 3\) given, it is for \(2, 3\)"):
        kernel.run([np.zeros((3, 3), np.float32)] * 3, (3, 3))


def test_the_host_runs_its_target():
    assert host_target() in TARGETS and find_target(host_target()).needs


@pytest.mark.parametrize("spec", [bias_add(), layer_norm(), attention(64, 64)], ids=lambda spec: spec.family)
def test_what_a_compilation_used_is_freed_at_once(spec):
    """No cycles, which would stay until the garbage collector's last generation is due."""
    compile_kernel(spec, None)
    gc.collect()
    gc.disable()
    try:
        compile_kernel(spec, None)
        assert gc.collect() == 0
    finally:
        gc.enable()
