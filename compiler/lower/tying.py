"""Tied tables: the rows of an embedding that are the columns of a product's weight, as language models have.

If the panels of a product hold a table from which kernels gather rows, the kernels read the rows from the
panels, and the table is not stored. Each element of a row is then in a separate cache line: a row of 768
takes 16 times the bytes, which is little compared with a model's computation for each token. Panels of byte
integers whose groups of steps have scales hold the integers of a quantised table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import sympy

from ...jit.evaluation import from_memory
from ...jit.families.concat.spec import Concat
from ...jit.families.matmul.grouped import BYTE, Groups, groups_of
from ...jit.families.matmul.layouts import layout_of
from ...jit.families.matmul.schedules import PANEL
from ...jit.families.matmul.spec import Matmul
from ...jit.llvm.dtypes import DTYPES
from ...jit.spec import Body, Buffer, Index, Instr, KernelSpec, Nest, bodies, map_bodies
from ...vm.shares import in_shares
from ..ir.graph import Graph, Node, Value
from .access import shape_of
from .launches import unbound_kernels

Spec = KernelSpec[sympy.Expr]
PANEL_BITS = PANEL.bit_length() - 1
COMPARED = 64  # panels at once


def tie(graph: Graph) -> None:
    """Read tables from the panels of products that hold the same values."""
    packed = dict(_panels_of_products(graph))  # in the order of the program
    yielded = {value for block in graph.blocks() for value in block.results}
    for table in [node.result for node in graph.nodes() if node.op == "constant"]:
        readers = dict.fromkeys(table.users)
        is_table = readers and table not in yielded and all(_only_gathers(node, table) for node in readers)
        if not is_table:
            continue
        found = next((panels for panels, beside in packed.items() if _holds(panels, beside, table)), None)
        if found is None:
            continue
        _move_to_front(graph, found.definition)
        for node in readers:
            _read_panels(node, table, found, packed[found])


def _panels_of_products(graph: Graph) -> Iterator[tuple[Value, int]]:
    """Yield the constants that products read as panels, and the adjacent steps of a column there."""
    for node in unbound_kernels(graph):
        spec = node.attrs["spec"]
        if isinstance(spec, Matmul) and layout_of(spec).is_readable:
            yield node.arg(_inputs(spec).index(spec.product.b)), layout_of(spec).beside


def _inputs(spec: Spec) -> list[int]:
    """Return the positions of the input buffers, one for each argument of the kernel's node."""
    return [i for i, buffer in enumerate(spec.buffers) if not buffer.is_output]


def _buffers_of(node: Node, value: Value) -> list[int]:
    """Return the buffers in which a kernel reads `value`."""
    return [b for b, arg in zip(_inputs(node.attrs["spec"]), node.args, strict=True) if arg is value]


def _only_gathers(node: Node, table: Value) -> bool:
    """Return True for a kernel that uses a matrix only to load elements of gathered rows."""
    spec = node.attrs["spec"] if node.op == "kernel" else None
    if not isinstance(spec, Nest | Concat | Matmul) or len(shape_of(table)) != 2:
        return False
    operands = [spec.product.a, spec.product.b] if isinstance(spec, Matmul) else []
    return all(
        buffer not in operands
        and spec.buffers[buffer].shape == shape_of(table)
        and all(_is_row(load) for body in bodies(spec) for load in body if load.buffer == buffer)
        for buffer in _buffers_of(node, table)
    )


def _is_row(load: Instr[sympy.Expr]) -> bool:
    row = load.index[0]
    return row.value is not None and row == Index(value=row.value)


def _groups(panels: Value, beside: int, columns: int) -> Groups | None:
    """Return the layout of panels of byte integers, `beside` steps of a column side by side, followed by the
    scales of their group, of tables with `columns` columns; None for other panels."""
    shape = shape_of(panels)
    if panels.tensor.dtype != "u8" or len(shape) != 3:
        return None
    found = groups_of(columns, int(shape[1]), int(shape[2]), beside)
    return found if found is not None and found.dtype == BYTE else None


def _holds(panels: Value, beside: int, table: Value) -> bool:
    """Return True if element [row, column] of a table equals element [row / PANEL, column, row % PANEL] of
    panels, or [row / PANEL, column / 2, row % PANEL, column % 2] of panels of pairs, bit for bit, after
    widening from the panels' dtype. Panels with `_groups` have further bytes behind each group."""
    (rows, columns), dtype = shape_of(table), table.tensor.dtype
    wanted, found = table.definition.attrs["array"], panels.definition.attrs["array"]
    groups, held = _groups(panels, beside, int(columns)), panels.tensor.dtype
    n_panels, steps, *rest = shape_of(panels)
    if groups is not None:
        steps, rest, held = groups.count * groups.steps, [], "i8"
    if not rows or (n_panels, steps * (rest[1] if len(rest) > 1 else 1)) != (-(-rows // PANEL), columns):
        return False
    if dtype not in ("f32", held) or held == "u8":
        return False
    differences: list[int] = []  # the index of one, if there is any

    def compare(begin: int, end: int) -> None:
        for at in range(begin, end, COMPARED):
            part = found[at : min(at + COMPARED, end)]
            if groups is not None:
                part = part[..., : groups.steps * PANEL].reshape(len(part), -1, PANEL, beside)
                part = part.swapaxes(2, 3).reshape(len(part), -1, PANEL).view(np.int8)
            if differences or not _are_rows(part, held, wanted[at * PANEL :], dtype):
                differences.append(at)
                return

    in_shares(len(found), compare, COMPARED)
    return not differences


def _are_rows(panels: np.ndarray, held: str, rest: np.ndarray, dtype: str) -> bool:
    """Return True if the panels, of dtype `held`, contain the first rows of `rest`."""
    rows = panels.swapaxes(1, 2).reshape(len(panels) * PANEL, -1)[: len(rest)]
    if held != dtype:
        rows = from_memory(rows, held).astype(np.float32)
    bits = f"u{DTYPES[dtype].bytes}"
    return np.array_equal(rows.view(bits), rest[: len(rows)].view(bits))


def _move_to_front(graph: Graph, constant: Node) -> None:
    """Move a constant before all its possible readers."""
    for block in graph.blocks():
        if constant in block.nodes:
            block.nodes.remove(constant)
    graph.body.nodes.insert(0, constant)


def _read_panels(node: Node, table: Value, panels: Value, beside: int) -> None:
    """Let a kernel read its rows of `table` from `panels`."""
    dtype = panels.tensor.dtype
    for buffer in _buffers_of(node, table):
        spec: Spec = map_bodies(node.attrs["spec"], partial(_from_panels, buffer, panels, beside, table))
        buffers = list(spec.buffers)
        buffers[buffer] = Buffer(dtype, shape_of(panels))
        node.attrs["spec"] = replace(spec, buffers=tuple(buffers))
    node.set_args([panels if arg is table else arg for arg in node.args])


def _from_panels(
    buffer: int, panels: Value, beside: int, table: Value, body: Body[sympy.Expr]
) -> Body[sympy.Expr]:
    """Return a body whose loads of `buffer`, a table, read `panels`."""
    rows, columns = shape_of(table)
    dtype, has_pairs = panels.tensor.dtype, len(shape_of(panels)) > 3
    groups = _groups(panels, beside, int(columns))
    made: list[Instr[sympy.Expr]] = []
    ids: list[int] = []

    def emit(instr: Instr[sympy.Expr]) -> int:
        made.append(instr)
        return len(made) - 1

    for old in body:
        index = tuple(replace(x, value=None if x.value is None else ids[x.value]) for x in old.index)
        instr = replace(old, args=tuple(ids[arg] for arg in old.args), index=index)
        if instr.buffer != buffer:
            ids.append(emit(instr))
            continue
        row, column = index
        assert row.value is not None
        checked = emit(Instr("checked", "i64", (row.value, row.value), size=rows))
        shift, mask = (emit(Instr("const", "i64", value=value)) for value in (PANEL_BITS, PANEL - 1))
        panel, lane = (
            Index(value=emit(Instr(op, "i64", (checked, by)))) for op, by in (("shr", shift), ("and", mask))
        )
        place: tuple[Index[sympy.Expr], ...] = (panel, column, lane)
        if has_pairs:
            step = _position(column, emit)
            one = emit(Instr("const", "i64", value=1))
            pair, which = (Index(value=emit(Instr(op, "i64", (step, one)))) for op in ("shr", "and"))
            place = (panel, pair, lane, which)
        elif groups is not None:
            place = (panel, *_in_group(groups, _position(column, emit), lane, emit))
        loaded = emit(Instr("load", dtype, buffer=buffer, index=place))
        ids.append(loaded if dtype == old.dtype else emit(Instr("cast", old.dtype, (loaded,))))
    return tuple(made)


def _in_group(
    groups: Groups, column: int, lane: Index[sympy.Expr], emit: Callable[[Instr[sympy.Expr]], int]
) -> tuple[Index[sympy.Expr], Index[sympy.Expr]]:
    """Return the group of a column, and the byte of a lane's integer in it."""
    assert lane.value is not None

    def by(op: str, x: int, number: int) -> int:
        return emit(Instr(op, "i64", (x, emit(Instr("const", "i64", value=number)))))

    group, step = by("shr", column, groups.steps.bit_length() - 1), by("and", column, groups.steps - 1)
    if groups.together == 1:
        byte = emit(Instr("add", "i64", (by("mul", step, PANEL), lane.value)))
        return Index(value=group), Index(value=byte)
    row, which = by("shr", step, 1), by("and", step, 1)
    pair = emit(Instr("add", "i64", (by("mul", row, PANEL), lane.value)))
    return Index(value=group), Index(value=emit(Instr("add", "i64", (by("shl", pair, 1), which))))


def _position(index: Index[sympy.Expr], emit: Callable[[Instr[sympy.Expr]], int]) -> int:
    """Return the value of a column's index as an instruction."""

    def number(size: sympy.Expr | int) -> int:
        is_known = isinstance(size, int)
        return emit(Instr("const", "i64", value=size) if is_known else Instr("dim", "i64", size=size))

    if index.loop is None:
        return number(index.offset)
    position = emit(Instr("iota", "i64", loop=index.loop))
    for op, size, nothing in (("mul", index.scale, 1), ("add", index.offset, 0)):
        if size != nothing:
            position = emit(Instr(op, "i64", (position, number(size))))
    return position
