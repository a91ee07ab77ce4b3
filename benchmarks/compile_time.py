"""How long one exact kernel of the encoder takes to compile: LLVM text, parsing, code, linking."""

from __future__ import annotations

import sys
from pathlib import Path

import llvmlite.binding as llvm
import torch
from measure import Figure, median, percentile, seconds
from shapevm.jit.llvm.target import find_target, host_target, target_machine

import shapevm

sys.path.append(str(Path(__file__).parent.parent / "examples"))
from encoder import dynamic_shapes, example_inputs, load_bert


def figures() -> list[Figure]:
    """Compile every kernel of the encoder for 12 shapes, as calls would; return the figures."""
    sizes = [
        {"batch": b, "length": n}
        for b, n in (
            (1, 1),
            (1, 5),
            (1, 16),
            (1, 37),
            (1, 64),
            (1, 128),
            (1, 197),
            (1, 512),
            (2, 33),
            (4, 61),
            (8, 128),
            (32, 17),
        )
    ]
    with shapevm.settings.scope(cache=False, strategy="generic"):
        times = kernel_seconds(sizes)
        floor = empty_seconds()
    text = f"{median(times) * 1e3:.1f} / {percentile(times, 0.99) * 1e3:.1f} ms ({len(times)} kernels)"
    return [
        Figure("one exact kernel of a program just compiled, median / p99", text, "at most 6 / 40 ms"),
        Figure("of which LLVM takes for a function that does nothing", f"{floor * 1e3:.1f} ms"),
    ]


def kernel_seconds(sizes: list[dict[str, int]]) -> list[float]:
    """Return the seconds of each exact kernel's compilation, behind that of the generic ones."""
    from shapevm.build.build import exact_dims, import_model, run_passes
    from shapevm.specialise.kernel_store import open_store

    with torch.no_grad():
        graph = import_model(load_bert(), (), example_inputs(), dynamic_shapes())
    run_passes(graph)
    store, exact = open_store(), exact_dims([graph], sizes)
    for spec in exact:
        store.generic(spec)
    store.stats.seconds.clear()
    for spec, dims in exact.items():
        for values in dims:
            store.record(spec, values)
    return list(store.stats.seconds)


def empty_seconds() -> float:
    """Return the median seconds that LLVM takes to make an object of an empty function."""
    target, machine = find_target(host_target()), target_machine(host_target())
    text = f"define void @nothing() #0 {{ ret void }}\nattributes #0 = {{ {target.attributes} }}\n"

    def emit() -> None:
        with llvm.create_context() as context, llvm.parse_assembly(text, context) as module:
            machine.emit_object(module)

    return median([seconds(emit) for _ in range(100)])
