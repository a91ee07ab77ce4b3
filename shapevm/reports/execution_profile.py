"""`exe.profile()`: the time of calls by kernel, compared with the machine's limits.

profile = exe.profile((x,), calls=20)
print(profile)
profile.to_chrome_trace("trace.json")      # for ui.perfetto.dev or chrome://tracing
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ..calls.checks import check_count
from ..vm.errors import ArgumentError
from ..vm.files import write_text
from ..vm.fork_lock import ForkLock
from .launch_graph import Node, launch_graph, lines_of, svg, with_layers_once
from .page import Cell, page, part, table
from .tables import table_text

if TYPE_CHECKING:
    from ..jit.measure.roofline import MachineLimits
    from .subject import Subject

#: The programs of which a profile is being taken: each has one timeline.
_PROFILED: WeakSet[Subject] = WeakSet()
_LOCK = ForkLock()
WARM_CALLS = 1  # before the timed calls: the first call at a shape makes its plan


@dataclass
class KernelTime:
    """The time of a kernel at one shape, on one tier. `source`: the model's lines that it is launched for.

    `flops`, `bytes`: of one launch, None where llvmlite is not installed; `bound` and `share`: the nearest
    limit of the machine, and the share of it that was reached ("cache": above the memory bandwidth).
    `threads`: milliseconds and tiles by system thread id.
    """

    kernel: int
    label: str
    source: str
    dims: tuple[int, ...]
    tier: str
    variant: str
    calls: int = 0
    total_ms: float = 0.0
    flops: int | None = None
    bytes: int | None = None
    rates: dict[str, Any] = field(default_factory=dict)
    threads: dict[int, dict[str, float]] = field(default_factory=dict)


class ExecutionProfile:
    """The times of the calls of a program within a `with` block: print it, or take its `to_json()`, `text()`
    or `to_chrome_trace(path)`."""

    def __init__(self, exe: Subject) -> None:
        self._exe = exe
        self._timeline: Mapping[str, Any] | None = None
        self._limits: MachineLimits | None = None
        self._kernels: list[KernelTime] | None = None

    def __enter__(self) -> ExecutionProfile:
        if self._timeline is not None:
            raise ArgumentError("the profile is taken already; call exe.profile() for another")
        with _LOCK:
            if self._exe in _PROFILED:
                raise ArgumentError("a profile of this program is being taken already; end it first")
            self._exe.machine.timeline(True)
            _PROFILED.add(self._exe)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._exe.machine.timeline(False)
            self._timeline = self._exe.machine.timeline_data()
        finally:
            _PROFILED.discard(self._exe)
        if find_spec("llvmlite") is not None:
            from ..jit.measure.roofline import machine_limits

            self._limits = machine_limits(self._timeline["otherData"]["threads"])

    @property
    def timeline(self) -> Mapping[str, Any]:
        """The events in Chrome's trace event format. Raises ArgumentError within the block."""
        if self._timeline is None:
            raise ArgumentError("the profile is not complete; read it after the with block")
        return self._timeline

    def _events(self, category: str) -> list[Mapping[str, Any]]:
        return [event for event in self.timeline["traceEvents"] if event.get("cat") == category]

    @property
    def kernels(self) -> list[KernelTime]:
        """The time of each kernel at each shape and tier, the longest first."""
        if self._kernels is None:
            self._kernels = self._kernel_times()
        return self._kernels

    def _kernel_times(self) -> list[KernelTime]:
        found: dict[Any, KernelTime] = {}
        shares, lines = _Shares(self._events("tiles")), lines_of(launch_graph(self._exe.program()))
        for event in self._events("kernel"):
            a = event["args"]
            key = (a["kernel"], tuple(a["dims"]), a["tier"], a["schedule"])
            source = lines.get(key[0], a["source"])
            row = found.setdefault(key, KernelTime(key[0], event["name"], source, *key[1:]))
            row.calls += 1
            row.total_ms += event["dur"] / 1e3
            for thread, ms, tiles in shares.of(event):
                own = row.threads.setdefault(thread, {"ms": 0.0, "tiles": 0})
                own["ms"] += ms
                own["tiles"] += tiles
        for row in found.values():
            self._add_rates(row)
        return sorted(found.values(), key=lambda row: -row.total_ms)

    def _add_rates(self, row: KernelTime) -> None:
        """Set a row's work and its rates."""
        if self._limits is None:
            return
        from ..jit.measure.roofline import operations, traffic
        from ..jit.spec_reader import from_json

        spec = from_json(self._exe.machine.kernels[row.kernel].spec)
        row.flops, row.bytes = operations(spec, row.dims), traffic(spec, row.dims)
        seconds = max(row.total_ms / 1e3 / row.calls, 1e-9)
        share = self._limits.seconds(row.flops, row.bytes) / seconds
        bound = self._limits.bound(row.flops, row.bytes)
        row.rates = {
            "gflops": row.flops / seconds / 1e9,
            "gbytes": row.bytes / seconds / 1e9,
            "bound": "cache" if bound == "memory" and share > 1 else bound,
            "share": share,
        }

    @property
    def data(self) -> dict[str, Any]:
        """Everything as plain data."""
        calls = self._events("call")
        total = sum(event["dur"] for event in calls) / 1e3
        inside = [event for kind in ("kernel", "host") for event in self._events(kind)]
        return {
            "calls": len(calls), "total_ms": total,
            "outside_ms": total - sum(event["dur"] for event in inside) / 1e3,
            "threads": self.timeline["otherData"]["threads"], "lost": self.timeline["otherData"]["lost"],
            "limits": None if self._limits is None else asdict(self._limits),
            "flops": self._limits and sum(row.calls * (row.flops or 0) for row in self.kernels),
            "kernels": [asdict(row) | {"time_share": row.total_ms / total} for row in self.kernels],
            "host": self._host(),
        }  # fmt: skip

    def _host(self) -> list[dict[str, Any]]:
        """Return the times of host functions, that is, operators that PyTorch runs."""
        times: dict[str, list[float]] = defaultdict(list)
        for event in self._events("host"):
            times[event["name"]].append(event["dur"] / 1e3)
        sources = self._exe.machine.extern_sources
        return [
            {"name": name, "source": sources[name], "calls": len(ms), "total_ms": sum(ms)}
            for name, ms in sorted(times.items(), key=lambda item: -sum(item[1]))
        ]

    def to_json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(self.data, indent=1) + "\n"

    def to_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the events for ui.perfetto.dev or chrome://tracing, kernels with their work and rates. Raises
        FileError where the file cannot be written."""
        rows = {(r.kernel, r.dims, r.tier, r.variant): r for r in self.kernels}
        events = []
        for event in self.timeline["traceEvents"]:
            if event.get("cat") == "kernel":
                a = event["args"]
                row = rows[a["kernel"], tuple(a["dims"]), a["tier"], a["schedule"]]
                event = {**event, "args": {**a, "flops": row.flops, "bytes": row.bytes, **row.rates}}
            events.append(event)
        write_text(Path(path), json.dumps({**self.timeline, "traceEvents": events}) + "\n")

    def text(self, width: int | None = None) -> str:
        """Return a table `width` columns wide (None: as the terminal, 80 in a pipe or file)."""
        data = self.data
        rows = [_cells(row, data["total_ms"]) for row in self.kernels]
        rows += [_host_cells(row, data["total_ms"]) for row in data["host"]]
        text = table_text(_TITLES, rows, 1, _summary(data), width)
        return text + "".join(f"{note}\n" for note in self._notes())

    def _notes(self) -> list[str]:
        """Return the notes below the table: threads, and the limits of the machine."""
        notes = [
            f"thread {thread}: {ms:.3f} ms in kernels, {tiles:.0f} tiles"
            for thread, ms, tiles in _by_thread(self.kernels)
        ]
        limits = self.data["limits"]
        if limits is not None:
            notes.append(
                f"limits of {limits['threads']} threads: {limits['flops'] / 1e9:.0f} GFLOP/s (f32), "
                f"{limits['bytes'] / 1e9:.1f} GB/s out of cache"
            )
        if limits is not None and self.data["total_ms"]:
            reached = self.data["flops"] / self.data["total_ms"] * 1e3
            notes.append(
                f"all calls: {reached / 1e9:.1f} GFLOP/s, {reached / limits['flops']:.0%} of the limit"
            )
        return notes

    def html(self) -> str:
        """Return one page that needs nothing else: a sortable table, and the program's graph."""
        return page(_summary(self.data), self._body())

    def _repr_html_(self) -> str | None:
        return None if self._timeline is None else part(f"<p>{escape(repr(self))}</p>{self._body()}")

    def _body(self) -> str:
        data = self.data
        total = data["total_ms"]
        rows = [_html_cells(row, total) for row in self.kernels]
        for host in data["host"]:
            text = f"{host['name']} (in PyTorch)"
            cells = _time_cells(text, host["source"], host["calls"], host["total_ms"], total)
            rows.append([*cells, *[Cell("")] * 7])
        body = table(("kernel", "line", "calls", "ms", "tier", "sizes", "variant", *_TITLES[4:]), rows)
        body += "".join(f"<p><small>{escape(note)}</small></p>" for note in self._notes())
        return f'<div class="wide">{body}</div><div class="wide">{self._graph()}</div>'

    def _graph(self) -> str:
        """Return the program's launches, each with its share of the time as its colour."""
        nodes = launch_graph(self._exe.program())
        shown, places = with_layers_once(nodes)
        times: dict[int, float] = defaultdict(float)
        for index, ms in _times_of(nodes, self._by_call(), self.kernels).items():
            times[places[index]] += ms
        most = max(times.values(), default=0.0) or 1.0
        return svg(shown, {index: (f"{ms:.3f} ms", ms / most) for index, ms in times.items()})

    def _by_call(self) -> list[list[Mapping[str, Any]]]:
        """Return the launches of each call, in order."""
        by_thread: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
        for event in sorted(self._events("kernel"), key=lambda event: event["ts"]):
            by_thread[event["tid"]].append(event)
        found = []
        for call in self._events("call"):
            own = by_thread[call["tid"]]
            first = bisect_left(own, call["ts"], key=lambda event: event["ts"])
            last = bisect_right(own, call["ts"] + call["dur"], key=lambda event: event["ts"])
            found.append(own[first:last])
        return found

    def __str__(self) -> str:
        return self.text() if self._timeline is not None else repr(self)

    def __repr__(self) -> str:
        if self._timeline is None:
            return "<shapevm.ExecutionProfile, not complete>"
        return f"<shapevm.ExecutionProfile: {_summary(self.data)}>"


_TITLES = ("kernel", "calls", "ms", "time", "GFLOP/s", "GB/s", "bound by", "of limit")


def _cells(row: KernelTime, total_ms: float) -> tuple[str, ...]:
    at = f" {list(row.dims)}" if row.dims else ""
    lines = [f"k{row.kernel} {row.label}", row.source, f"{row.tier}{at}, {row.variant}"]
    rates = ("", "", "", "")
    if row.rates:
        rates = (f"{row.rates['gflops']:.1f}" if row.flops else "", f"{row.rates['gbytes']:.1f}",
                 row.rates["bound"], _of_limit(row.rates))  # fmt: skip
    text = "\n".join(line for line in lines if line)
    return (text, str(row.calls), f"{row.total_ms:.3f}", f"{row.total_ms / total_ms:.0%}", *rates)


def _time_cells(name: str, source: str, calls: int, ms: float, total_ms: float) -> list[Cell]:
    share = ms / total_ms if total_ms else 0.0
    return [Cell(name), Cell(source), Cell(str(calls), calls), Cell(f"{ms:.3f} ({share:.0%})", ms, share)]


def _html_cells(row: KernelTime, total_ms: float) -> list[Cell]:
    cells = _time_cells(f"k{row.kernel} {row.label}", row.source, row.calls, row.total_ms, total_ms)
    cells += [Cell(row.tier), Cell(", ".join(map(str, row.dims))), Cell(row.variant)]
    if not row.rates:
        return [*cells, *[Cell("")] * 4]
    flops, n_bytes, share = (row.rates[name] for name in ("gflops", "gbytes", "share"))
    rates = [
        Cell(f"{flops:.1f}" if flops else "", flops),
        Cell(f"{n_bytes:.1f}", n_bytes),
        Cell(row.rates["bound"]),
    ]
    of_limit = _of_limit(row.rates)
    return [*cells, *rates, Cell(of_limit, share, share if of_limit else None)]


def _of_limit(rates: Mapping[str, Any]) -> str:
    """Return the share as text; "" for kernels that read from caches, whose speed is not measured."""
    return "" if rates["bound"] == "cache" else f"{rates['share']:.0%}"


def _times_of(
    nodes: Sequence[Node], calls: Sequence[Sequence[Mapping[str, Any]]], rows: Sequence[KernelTime]
) -> dict[int, float]:
    """Return the milliseconds of each launch in the graph: from all calls whose launches match it in order;
    if none does, as in a loop, a kernel's time divided among its launches."""
    launches = [(index, node.kernel) for index, node in enumerate(nodes) if node.kernel >= 0]
    times: dict[int, float] = defaultdict(float)
    for call in calls:
        if [event["args"]["kernel"] for event in call] == [kernel for _, kernel in launches]:
            for (index, _), event in zip(launches, call, strict=True):
                times[index] += event["dur"] / 1e3
    if not times:
        total: dict[int, float] = defaultdict(float)
        for row in rows:
            total[row.kernel] += row.total_ms
        places = Counter(kernel for _, kernel in launches)
        times.update({index: total[kernel] / places[kernel] for index, kernel in launches})
    return dict(times)


def _host_cells(row: Mapping[str, Any], total_ms: float) -> tuple[str, ...]:
    text = "\n".join(line for line in (row["name"], row["source"], "in PyTorch") if line)
    return (text, str(row["calls"]), f"{row['total_ms']:.3f}", f"{row['total_ms'] / total_ms:.0%}", *[""] * 4)


def _summary(data: Mapping[str, Any]) -> str:
    n, lost = data["calls"], data["lost"]
    each = data["total_ms"] / n if n else 0.0
    outside = data["outside_ms"] / data["total_ms"] if data["total_ms"] else 0.0
    text = f"{n} call{'' if n == 1 else 's'} of {each:.3f} ms, {outside:.0%} outside of kernels"
    return text + (f"; {lost:,} events had no room" if lost else "")


def _by_thread(rows: Sequence[KernelTime]) -> list[tuple[int, float, float]]:
    """Return (thread, milliseconds, tiles), most time first; nothing if one thread ran all."""
    total: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows:
        for thread, own in row.threads.items():
            total[thread][0] += own["ms"]
            total[thread][1] += own["tiles"]
    found = [(thread, ms, tiles) for thread, (ms, tiles) in total.items()]
    return sorted(found, key=lambda each: -each[1]) if len(found) > 1 else []


class _Shares:
    """The shares of threads in launches: launches do not overlap, so a launch's shares lie within its
    time."""

    def __init__(self, events: Sequence[Mapping[str, Any]]) -> None:
        self._events = sorted(events, key=lambda event: event["ts"])
        self._starts = [event["ts"] for event in self._events]

    def of(self, launch: Mapping[str, Any]) -> list[tuple[int, float, int]]:
        """Return (thread, milliseconds, tiles) of a launch."""
        first = bisect_left(self._starts, launch["ts"])
        last = bisect_right(self._starts, launch["ts"] + launch["dur"])
        own = [e for e in self._events[first:last] if e["args"]["kernel"] == launch["args"]["kernel"]]
        if not own:
            return [(launch["tid"], launch["dur"] / 1e3, launch["args"]["tiles"])]
        return [(e["tid"], e["dur"] / 1e3, e["args"]["tiles"]) for e in own]


def profile(exe: Subject, inputs: Any = None, calls: int = 10) -> ExecutionProfile:
    """Return a profile of `calls` calls with `inputs`, after one that is not timed; without inputs, return a
    context manager. See `Executable.profile`."""
    made = ExecutionProfile(exe)
    if inputs is None:
        return made
    check_count("calls", calls)
    is_named = isinstance(inputs, Mapping)
    args = () if is_named else tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)

    def call() -> None:
        exe.run(inputs) if is_named else exe(*args)

    for _ in range(WARM_CALLS):
        call()
    with made:
        for _ in range(calls):
            call()
    return made
