"""`shapevm inspect`: what an artifact takes, gives and holds."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

from .vm.artifact import read
from .vm.instruction import decode_all
from .vm.program import Function, Program


def inspection(path: str) -> dict[str, Any]:
    """Return everything as plain data. Raises ArtifactError or VerifyError for a file that is not sound."""
    program = read(path)
    externs = sorted({name for function in program.functions for name in _externs(program, function)})
    weights = sum(c.value.nbytes for c in program.constants if c.dtype is not None)
    objects = [item for kernel in program.kernels for item in kernel.objects]
    return {
        "file_bytes": os.path.getsize(path),
        "weight_bytes": weights,
        "code_bytes": sum(len(item.code) for item in objects),
        "targets": sorted({item.target for item in objects}),
        "symbols": [{"name": s.name, "min": s.min, "max": s.max, "multiple_of": s.multiple_of} for s in program.symbols],
        "inputs": [
            {"name": i.name, "kind": i.kind, "dtype": i.dtype, "shape": [a.text(program.symbols) for a in i.axes]}
            for i in program.inputs
        ],
        "outputs": [output.name for output in program.outputs],
        "instructions": sum(1 for function in program.functions for _ in decode_all(function.code)),
        "kernels": [
            {"label": k.label, "source": k.source, "generic": sum(o.exact_dims is None for o in k.objects),
             "exact": [list(o.exact_dims) for o in k.objects if o.exact_dims is not None]}
            for k in program.kernels
        ],
        "fallback_operators": externs,
        "standalone": not externs and all(k.objects for k in program.kernels),
    }  # fmt: skip


def _externs(program: Program, function: Function) -> list[str]:
    return [program.strings[i["name"]] for i in decode_all(function.code) if i.op.name == "extern"]


def inspect_text(path: str) -> str:
    """Return the inspection for people."""
    data = inspection(path)
    lines = [
        f"{path}: {data['file_bytes']:,} bytes (weights {data['weight_bytes']:,}, machine code {data['code_bytes']:,})"
    ]
    lines.append(f"targets: {', '.join(data['targets']) or 'none'}")
    for symbol in data["symbols"]:
        top = symbol["max"] if symbol["max"] is not None else "any"
        step = f", a multiple of {symbol['multiple_of']}" if symbol["multiple_of"] != 1 else ""
        lines.append(f"size {symbol['name']}: {symbol['min']} to {top}{step}")
    for row in data["inputs"]:
        kind = f"{row['dtype']}[{', '.join(row['shape'])}]" if row["kind"] == "tensor" else row["kind"]
        lines.append(f"input {row['name']}: {kind}")
    lines += [f"output {name}" for name in data["outputs"]]
    lines.append(f"{data['instructions']} instructions, {len(data['kernels'])} kernels:")
    for (label, n_exact), count in Counter((k["label"], len(k["exact"])) for k in data["kernels"]).items():
        exact = f", {n_exact} exact" if n_exact else ""
        lines.append(f"  {count} x {label} (generic{exact})")
    lines.append(f"operators that PyTorch must run: {', '.join(data['fallback_operators']) or 'none'}")
    lines.append(f"runs with shapevm-run: {'yes' if data['standalone'] else 'no'}")
    return "\n".join(lines)
