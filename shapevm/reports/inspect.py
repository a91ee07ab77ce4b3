"""`shapevm inspect`: the inputs, outputs and contents of an artifact."""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..calls.value_info import ValueInfo, infos
from ..vm.artifact import read_verified
from ..vm.instruction import decode_all
from ..vm.layout import INT_MIN
from ..vm.literals import printable
from ..vm.program import NUMPY_DTYPES, Function, KernelKey, Program, SizeRange, format_key
from .invariance.verdicts import along, along_text, exceptions, row_symbols
from .launch_graph import launch_graph, svg, with_layers_once
from .page import Cell, part, table
from .weight_report import weight_table

if TYPE_CHECKING:
    from .subject import Subject

MAX_JOINED = 4096  # keys of kernels that are compared at once
_SYMBOL_FIELDS = ("name", "min", "max", "multiple_of")


def inspection(path: Path) -> dict[str, Any]:
    """Return everything as plain data. Raises ArtifactError or VerifyError for an invalid file."""
    program = read_verified(path)
    externs = Counter(name for function in program.functions for name, _ in _externs(program, function))
    lines = dict(
        call for function in reversed(program.functions) for call in _externs(program, function)[::-1]
    )
    weights = sum(c.value.nbytes for c in program.constants if c.dtype is not None)
    objects = [item for kernel in program.kernels for item in kernel.objects]
    return {
        "file_bytes": os.path.getsize(path),
        "weight_bytes": weights,
        "cache": _cache(program),
        "packed": program.meta.get("packed", ""),
        "rounded_weights": program.meta.get("weights", []),
        "code_bytes": sum(len(item.code.data) for item in objects),
        "targets": sorted({item.target for item in objects}),
        "symbols": [{name: getattr(s, name) for name in _SYMBOL_FIELDS} for s in program.symbols],
        "inputs": [row._asdict() for row in infos(program.inputs, program.symbols)],
        "outputs": [row._asdict() for row in infos(program.outputs, program.symbols)],
        "functions": [
            {"name": program.functions[entry.function].name,
             "inputs": [row._asdict() for row in infos(entry.inputs, program.symbols)],
             "outputs": [row._asdict() for row in infos(entry.outputs, program.symbols)]}
            for entry in program.entry_points
        ],
        "along": along(row_symbols(program)),
        "exceptions": exceptions(program),
        "instructions": sum(1 for function in program.functions for _ in decode_all(function.code)),
        "kernels": [
            {"label": k.label, "source": k.source, "generic": sum(o.key is None for o in k.objects),
             "exact": [list(o.exact_dims) for o in k.objects if o.exact_dims is not None],
             "buckets": [format_key(o.key) for o in k.objects if o.ranges is not None],
             "schedules": {format_key(o.key): o.schedule for o in k.objects},
             "bucket_table": shown_keys([o.key for o in k.objects if o.ranges is not None])}
            for k in program.kernels
        ],
        "fallback_operators": [
            {"name": name, "calls": externs[name], "source": lines[name]} for name in sorted(externs)
        ],
        "standalone": not externs and all(k.objects for k in program.kernels),
    }  # fmt: skip


def _externs(program: Program, function: Function) -> list[tuple[str, str]]:
    """Return (name, the model's line) of every call of a host function."""
    calls = (i for i in decode_all(function.code) if i.op.name in ("call_packed", "call_dps"))
    return [(program.strings[i["name"]], function.source(i.pc)) for i in calls]


def _cache(program: Program) -> dict[str, Any]:
    """Return the tokens of a language model's cache, their dtype and the bytes of one; {} without one."""
    n_state = len(program.meta.get("structure", {}).get("state", []))
    if "language" not in program.meta or not n_state:
        return {}
    sizes = [[axis.offset for axis in row.axes] for row in program.inputs[-n_state:]]
    dtypes = [row.dtype or "" for row in program.inputs[-n_state:]]
    each = sum(math.prod(s[1:]) * NUMPY_DTYPES[d].itemsize for s, d in zip(sizes, dtypes, strict=True))
    return {"tokens": sizes[0][0], "dtype": dtypes[0], "token_bytes": each}


def _cache_text(tokens: int, dtype: str, token_bytes: int) -> list[str]:
    error = ", with a scale for each token and head: errors of at most 1/254 of its greatest number"
    return [f"cache: {tokens:,} tokens of {token_bytes:,} bytes, in {dtype}{error if dtype == 'i8' else ''}"]


def _times(n: int) -> str:
    return f", {n} times" if n > 1 else ""


def inspect_text(path: Path) -> str:
    """Return the inspection as text."""
    data = printable(inspection(path))
    lines = [
        f"{path}: {data['file_bytes']:,} bytes "
        f"(weights {data['weight_bytes']:,}, machine code {data['code_bytes']:,})"
    ]
    lines.append(f"targets: {', '.join(data['targets']) or 'none'}")
    for symbol in data["symbols"]:
        top = symbol["max"] if symbol["max"] is not None else "any"
        step = f", a multiple of {symbol['multiple_of']}" if symbol["multiple_of"] != 1 else ""
        low = symbol["min"] if symbol["min"] != INT_MIN else "any"
        lines.append(f"size {symbol['name']}: {low} to {top}{step}")
    for function in data["functions"]:
        is_main = function is data["functions"][0]
        lines += [] if is_main else [f"function {function['name']}:"]
        indent = "" if is_main else "  "
        lines += [f"{indent}input {ValueInfo(**row)}" for row in function["inputs"]]
        lines += [f"{indent}output {ValueInfo(**row)}" for row in function["outputs"]]
    lines += [*along_text(data["along"]), *(f"exception: {text}" for text in data["exceptions"])]
    if data["packed"]:
        names = [row["name"] for row in data["inputs"]]
        is_mask = data["packed"] in names
        lines.append(f"packed tokens: those of {data['packed']}" if is_mask else data["packed"])
    lines.append(f"{data['instructions']} instructions, {len(data['kernels'])} kernels:")
    for index, kernel in enumerate(data["kernels"]):
        way = kernel["schedules"].get("generic")
        code = [f"generic ({way})"] * bool(kernel["generic"])
        code += [f"exact for {dims}" for dims in kernel["exact"]]
        code += [f"bucket {ranges}" for ranges in kernel["bucket_table"]]
        source = f" ({kernel['source']})" if kernel["source"] else ""
        lines.append(f"  k{index} {kernel['label']}{source}: {', '.join(code) or 'no code'}")
    lines += _cache_text(**data["cache"]) if data["cache"] else []
    if data["rounded_weights"]:
        lines.append(f"weights of products:\n{weight_table(data['rounded_weights']).rstrip()}")
    called = data["fallback_operators"]
    lines.append(f"operators that PyTorch must run: {len(called) or 'none'}")
    lines += [
        f"  {row['name']}{_times(row['calls'])}{' (' + row['source'] + ')' if row['source'] else ''}"
        for row in called
    ]
    lines.append(f"runs with shapevm-run: {'yes' if data['standalone'] else 'no'}")
    return "\n".join(lines)


def shown_keys(keys: Sequence[KernelKey]) -> list[str]:
    """Return kernels' keys as text; adjacent ones whose sizes round up to neighbouring multiples are joined:
    "1..512 round 16,384"."""
    shown: list[str] = []
    known = (key for key in keys if key is not None)
    rest: list[tuple[int | SizeRange, ...]] = []
    while rest := rest or list(itertools.islice(known, MAX_JOINED)):
        n, axis = _run(rest)
        texts = [str(size) for size in rest[0]]
        if n > 2:
            (first, _), (_, last), step = _ends(rest[0][axis]), _ends(rest[n - 1][axis]), _step(rest, axis)
            texts[axis] = f"{first}..{last} round {step}"
        shown.append(",".join(texts))
        del rest[: n if n > 2 else 1]
    return shown


def _ends(size: int | SizeRange) -> tuple[int, int | None]:
    return (size, size) if isinstance(size, int) else (size.min, size.max)


def _step(keys: Sequence[tuple[int | SizeRange, ...]], axis: int) -> int:
    """Return the distance between the ends of the first two."""
    first, second = (_ends(key[axis])[1] for key in keys[:2])
    return second - first if first is not None and second is not None else 0


def _run(keys: Sequence[tuple[int | SizeRange, ...]]) -> tuple[int, int]:
    """Return the number of leading keys that differ in one axis, by one multiple each, and that axis."""
    if len(keys) < 2:
        return 1, 0
    axis = next((i for i, (a, b) in enumerate(zip(*keys[:2], strict=True)) if a != b), 0)
    n, step = 1, _step(keys, axis)
    for before, after in itertools.pairwise(keys):
        (_, end), (begin, last) = _ends(before[axis]), _ends(after[axis])
        is_alike = before[:axis] + before[axis + 1 :] == after[:axis] + after[axis + 1 :]
        if not is_alike or end is None or last is None or begin <= end or end % step or last - end > step:
            break
        n += 1
    return n, axis


def executable_html(exe: Subject) -> str:
    """Return an executable for a notebook: its sizes, inputs, outputs, kernels and their graph."""
    lines = f"<p>{escape(repr(exe))}</p>"
    if not exe.machine.is_open:
        return part(lines)
    program = exe.program()
    rows = [[Cell(f"input {row.name}"), Cell(row.type)] for row in exe.inputs]
    rows += [[Cell(f"output {row.name}"), Cell(row.type)] for row in exe.outputs]
    kernels = [
        [Cell(f"k{index} {kernel.label}"), Cell(kernel.source)]
        for index, kernel in enumerate(exe.machine.kernels)
    ]
    tables = table(("value", "type"), rows) + table(("kernel", "line"), kernels)
    return part(
        f'{lines}{tables}<div class="wide">{svg(with_layers_once(launch_graph(program))[0], {})}</div>'
    )


def specs_text(program: Program) -> str:
    """Return every kernel's spec as text, after its number and label. Raises SpecError for an invalid one,
    ArtifactError if the text is too long."""
    from ..vm.disassembler import bounded_text

    return bounded_text(_spec_lines(program)) if program.kernels else ""


def _spec_lines(program: Program) -> Iterator[str]:
    from ..jit.spec_reader import from_json
    from ..jit.text import format_spec

    texts: dict[str, list[str]] = {}
    for index, kernel in enumerate(program.kernels):
        if kernel.spec not in texts:
            texts[kernel.spec] = format_spec(from_json(kernel.spec)).splitlines()
        yield from [""] * bool(index)
        yield f"spec @{kernel.spec_hash[:16]} of k{index}, {printable(kernel.label)}"
        yield from (f"  {line}" for line in texts[kernel.spec])
