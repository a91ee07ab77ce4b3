"""The launches of a program as a graph of reads and writes, drawn as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

from ..vm.instruction import Instruction, decode_all
from ..vm.program import Program

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 190, 44, 24, 30  # of a box, between boxes, in pixels
_SHOWN, _SHOWN_BELOW = 24, 26  # characters of a label; of a source line and a note
MAX_NODES = 2000
MIN_LAYER = 3  # least number of launches in a layer that is drawn once


@dataclass
class Node:
    """An input, a launch or a call of a host function. `kernel`: of a launch, else -1; `reads`: the nodes
    that wrote what it reads; `count`: the number of equal layers that it represents."""

    label: str
    source: str = ""
    kernel: int = -1
    reads: set[int] = field(default_factory=set)
    layer: int = 0
    count: int = 1


def launch_graph(program: Program) -> list[Node]:
    """Return main's inputs, launches and calls of host functions, in order. A loop's body appears once."""
    function = program.functions[0]
    nodes = [Node(row.name) for row in program.inputs]
    writer: dict[int, int] = dict(enumerate(range(len(nodes))))  # register -> the node that wrote its tensor
    for i in decode_all(function.code):
        if i.op.name in ("kernel", "call_packed", "call_dps") and len(nodes) < MAX_NODES:
            node = _node(i, program, function.source(i.pc))
            reads, writes = _registers(i, program)
            node.reads = {writer[r] for r in reads if r in writer}
            writer |= dict.fromkeys(writes, len(nodes))
            node.layer = 1 + max((nodes[n].layer for n in node.reads), default=0)
            nodes.append(node)
        elif i.op.name != "kernel":
            found = [writer[r] for r in i.of_kind("sS") if r in writer]
            for register in i.of_kind("dD"):
                writer.pop(register, None)
                if found and i.op.name != "alloc":
                    writer[register] = found[0]
    return nodes


def _node(i: Instruction, program: Program, source: str) -> Node:
    if i.op.name in ("call_packed", "call_dps"):
        return Node(program.strings[i["name"]], source)
    kernel = program.kernels[i["kernel"]]
    return Node(kernel.label, source or kernel.source, i["kernel"])


def _registers(i: Instruction, program: Program) -> tuple[list[int], list[int]]:
    """Return the registers whose tensors an instruction reads, and those that it writes."""
    if i.op.name in ("call_packed", "call_dps"):
        return list(i["args"]), list(i["results" if i.op.name == "call_packed" else "outputs"])
    pairs = list(zip(i["buffers"], program.kernels[i["kernel"]].buffers, strict=True))
    return [r for r, b in pairs if not b.is_output], [r for r, b in pairs if b.is_output]


def lines_of(nodes: Sequence[Node]) -> dict[int, str]:
    """Return the model's lines that each kernel is launched for: "modeling_bert.py:175, 176, 177"."""
    found: dict[int, dict[str, None]] = {}
    for node in nodes:
        if node.kernel >= 0 and node.source:
            found.setdefault(node.kernel, {})[node.source] = None
    return {kernel: _joined(list(sources)) for kernel, sources in found.items()}


def _joined(sources: Sequence[str]) -> str:
    """Join source positions, repeating the file name only when it changes."""
    parts, before = [], ""
    for source in sources:
        file, _, line = source.rpartition(":")
        parts.append(line if file == before else source)
        before = file
    return ", ".join(parts)


def with_layers_once(nodes: Sequence[Node]) -> tuple[list[Node], list[int]]:
    """Return a graph in which the first of consecutive equal layers represents all, and for each node its
    representative."""
    kept: list[Node] = []
    places: list[int] = []
    kinds = [(node.kernel, node.label, node.source) for node in nodes]
    while len(places) < len(nodes):
        start = len(places)
        length, count = _repeated(kinds, start) if nodes[start].layer else (1, 1)
        for node in nodes[start : start + length]:
            reads = {places[other] for other in node.reads}
            layer = 1 + max((kept[other].layer for other in reads), default=0) if node.layer else 0
            places.append(len(kept))
            kept.append(replace(node, reads=reads, layer=layer, count=count))
        places += places[start:] * (count - 1)
    return kept, places


def _repeated(kinds: Sequence[Any], start: int) -> tuple[int, int]:
    """Return the length and the repetitions of the layer that begins at `start`, with the length that covers
    the most nodes; (1, 1) if none is repeated."""
    best, end = (1, 1), len(kinds)
    for length in range(MIN_LAYER, (end - start) // 2 + 1):
        if best[0] * best[1] + length > end - start:
            break  # the rest is shorter than a layer
        if kinds[start] == kinds[start + length]:
            places = range(start + length, end)
            last = next((i for i in places if kinds[i] != kinds[i - length]), end)
            count = (last - start) // length
            if count > 1 and length * count > best[0] * best[1]:
                best = length, count
    return best


def _at(nodes: Sequence[Node]) -> tuple[list[tuple[float, float]], float, float]:
    """Return the position of each box, and the size of the picture: a row for each layer."""
    rows: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        rows.setdefault(node.layer, []).append(index)
    width = max(map(len, rows.values()), default=1) * (_WIDTH + _GAP_X)
    places = [(0.0, 0.0)] * len(nodes)
    for y, layer in enumerate(sorted(rows)):
        left = (width - len(rows[layer]) * (_WIDTH + _GAP_X) + _GAP_X) / 2
        for x, index in enumerate(rows[layer]):
            places[index] = left + x * (_WIDTH + _GAP_X), 8.0 + y * (_HEIGHT + _GAP_Y)
    return places, width, 16 + len(rows) * (_HEIGHT + _GAP_Y) - _GAP_Y


def _below(source: str, note: str) -> str:
    """Return the second line of a box: the note, or the end of the source if there is no room for both."""
    room = _SHOWN_BELOW - len(note) - (2 if note else 0)
    shown = source if len(source) <= room else f"…{source[1 - room :]}" if room > 1 else ""
    return "  ".join(text for text in (shown, note) if text)


def heat(share: float) -> str:
    """Return a colour from white for 0 to red for 1."""
    cold = round(255 - 190 * min(max(share, 0.0), 1.0) ** 0.5)
    return f"rgb(255,{cold},{cold})"


def svg(nodes: Sequence[Node], notes: Mapping[int, tuple[str, float]]) -> str:
    """Return the graph as SVG. `notes`: by node, a text (such as its time) and its share, which determines
    its colour."""
    places, width, height = _at(nodes)
    parts = [
        f'<svg class="graph" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="system-ui, sans-serif" font-size="12">'
    ]
    for (x, y), node in zip(places, nodes, strict=True):
        for other in sorted(node.reads):
            x0, y0 = places[other][0] + _WIDTH / 2, places[other][1] + _HEIGHT
            x1, middle = x + _WIDTH / 2, (y0 + y) / 2
            path = f"M{x0:.0f},{y0:.0f} C{x0:.0f},{middle:.0f} {x1:.0f},{middle:.0f} {x1:.0f},{y:.0f}"
            parts.append(f'<path d="{path}" fill="none" stroke="#888" stroke-opacity=".55"/>')
    for index, ((x, y), node) in enumerate(zip(places, nodes, strict=True)):
        text, share = notes.get(index, ("", 0.0))
        is_launch = node.layer > 0
        name = f"k{node.kernel} {node.label}" if node.kernel >= 0 else node.label
        name = f"{node.count} × {name}" if node.count > 1 else name
        short = name if len(name) <= _SHOWN else f"{name[: _SHOWN - 1]}…"
        title = "\n".join(line for line in (name, node.source, text) if line)
        below = _below(node.source.rsplit("/", 1)[-1], text)
        parts.append(
            f'<g><title>{escape(title)}</title><rect x="{x:.0f}" y="{y:.0f}" width="{_WIDTH}" '
            f'height="{_HEIGHT}" rx="{4 if is_launch else 20}" stroke="#555" '
            f'fill="{heat(share) if is_launch else "#e8eef7"}"/>'
            f'<text x="{x + 8:.0f}" y="{y + (18 if below else 27):.0f}">{escape(short)}</text>'
            f'<text x="{x + 8:.0f}" y="{y + 35:.0f}" fill="#555">{escape(below)}</text></g>'
        )
    return "\n".join([*parts, "</svg>"])
