"""`exe.explain()`: the history of every call site, the sizes of its misses, and remedies for a storm."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any

from ..vm.literals import printable
from ..vm.program import Input, KernelObject, Program, SizeRange, Symbol
from ..vm.sizes import dim_symbols
from .launch_graph import Node, launch_graph, svg, with_layers_once
from .page import Cell, page, part, table
from .tables import table_text

if TYPE_CHECKING:
    from ..vm.reports import EntryStats, SiteStats
    from .subject import Subject

STORM_SIZES = 12  # distinct sizes of a dimension at which it may be a storm,
STORM_SHARE = 0.2  # if this share of its kernels' launches are misses
SHOWN_ENTRIES = 8  # of a call site, in the text
MEASURED_ENTRIES = 3  # of a call site, for the milliseconds saved
MAX_EXACT = 4  # separate sizes in a suggested table


@dataclass(frozen=True)
class Explanation:
    """The history of call sites, as plain data in `data`, and as text."""

    data: Mapping[str, Any]
    graph: Sequence[Node] = ()

    def json(self) -> str:
        """Return the data as JSON."""
        return json.dumps(self.data, indent=1) + "\n"

    def text(self, width: int | None = None) -> str:
        """Return a table `width` columns wide (None: as the terminal, 80 in a pipe or file), and the history
        of each call site."""
        titles, data = ["kernel", *(title for title, _ in _FIGURES)], printable(dict(self.data))
        rows = [[_site_text(site), *(show(site) for _, show in _FIGURES)] for site in data["sites"]]
        lines = [table_text(titles, rows, title=data["summary"], width=width)]
        for site in data["sites"]:
            entries = site["entries"]
            lines += [f"  k{site['kernel']} {_entry_text(entry)}\n" for entry in entries[:SHOWN_ENTRIES]]
            if len(entries) > SHOWN_ENTRIES:
                lines.append(f"  k{site['kernel']} and {len(entries) - SHOWN_ENTRIES} more\n")
        lines += [_storm_text(storm) + "\n" for storm in data["storms"]]
        return "".join(lines)

    __str__ = text

    def html(self) -> str:
        """Return one page that needs nothing else: a sortable table, and the program's graph, coloured by
        the share of launches that missed."""
        return page(self.data["summary"], self._body())

    def _repr_html_(self) -> str:
        return part(f"<p>{html.escape(self.data['summary'])}</p>{self._body()}")

    def _body(self) -> str:
        sites = self.data["sites"]
        parts = [f'<p class="storm">{html.escape(_storm_text(storm))}</p>' for storm in self.data["storms"]]
        rows = [_html_row(site, sites) for site in sites]
        filled = [any(row[i].text for row in rows) for i in range(len(_COLUMNS))]
        titles = compress((title for title, _ in _COLUMNS), filled)
        parts.append(
            f'<div class="wide">{table([*titles], [[*compress(row, filled)] for row in rows])}</div>'
        )
        for site in sites:
            items = "".join(f"<li>{html.escape(_entry_text(entry))}</li>\n" for entry in site["entries"])
            name = html.escape(f"k{site['kernel']} {site['label']}")
            parts.append(f"<details><summary>{name}</summary><ul>\n{items}</ul></details>")
        notes = {
            index: _note(sites[node.kernel]) for index, node in enumerate(self.graph) if node.kernel >= 0
        }
        return "\n".join([*parts, f'<div class="wide">{svg(self.graph, notes)}</div>'])


def _html_row(site: Mapping[str, Any], sites: Sequence[Mapping[str, Any]]) -> list[Cell]:
    """Return a call site's cells; the bar of a figure is its share of the greatest in its column."""
    cells = []
    for _, show in _TEXTS:
        text = show(site)
        brief = _PLACES.sub("", text)
        cells.append(Cell(brief, whole=text if brief != text else ""))
    for _, show in _FIGURES:
        text, values = show(site), [float(show(other) or 0.0) for other in sites]
        value, most = float(text or 0.0), max(values)
        has_bar = text and min(values) < most
        cells.append(Cell(text, value, value / most if has_bar else None))
    return cells


def _note(site: Mapping[str, Any]) -> tuple[str, float]:
    launches = site["hits"] + site["misses"]
    share = site["misses"] / launches if launches else 0.0
    return f"{site['misses']} misses of {launches}", share


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{what} {n}" for what, n in counts.items())


_PLACES = re.compile(r" \(axis [^()]*\)")  # the suffix that `inputs_of` adds to a size

Shown = Callable[[Mapping[str, Any]], str]
#: The data of a call site: title and format.
_TEXTS: tuple[tuple[str, Shown], ...] = (
    ("kernel", lambda s: f"k{s['kernel']} {s['label']}"),
    ("line", lambda s: s["source"]),
    ("state", lambda s: s["state"]),
    ("tiers", lambda s: _counts(s["tiers"])),
    ("new sizes", lambda s: _counts(s["causes"])),
)
_FIGURES: tuple[tuple[str, Shown], ...] = (
    ("entries", lambda s: str(len(s["entries"]))),
    ("hits", lambda s: str(s["hits"])),
    ("misses", lambda s: str(s["misses"])),
    ("outside", lambda s: str(s["outside"] or "")),
    ("gain", lambda s: "" if s["gain"] is None else f"{s['gain']:.2f}"),
    ("compile ms", lambda s: _ms(s["compile_ms"] or None)),
    ("saved ms", lambda s: _ms(s["saved_ms"])),
    ("code bytes", lambda s: str(s["code_bytes"] or "")),
)
_COLUMNS = (*_TEXTS, *_FIGURES)


def _site_text(site: Mapping[str, Any]) -> str:
    """Return the texts of a call site, a line each."""
    kernel, line, state, tiers, causes = (show(site) for _, show in _TEXTS)
    lines = (kernel, line, f"{state}: {tiers}" if tiers else state, f"new: {causes}" if causes else "")
    return "\n".join(text for text in lines if text)


def _entry_text(entry: Mapping[str, Any]) -> str:
    failure = f", failed: {entry['failure']}" if entry["failure"] else ""
    took = f", {entry['compile_ms']:.2f} ms to compile" if entry["compile_ms"] is not None else ""
    if entry["pays_after"] is not None:
        took += f", compiling pays after {entry['pays_after']}"
    if entry["state"] == "declined":
        took += ", not compiled: generic is as fast"
    code = f"{entry['tier']} ({entry['schedule']})" if entry["schedule"] else entry["tier"]
    return f"{entry['dims']} {code}, {entry['hits']} hits{took}; missed for {entry['because']}{failure}"


def _storm_text(storm: Mapping[str, Any]) -> str:
    return (
        f"storm: {storm['symbol']} ({storm['inputs']}) has had {storm['sizes']} sizes, {storm['min']} to "
        f"{storm['max']}; {storm['share']:.0%} of the launches that depend on it were misses. Compile with "
        f"shapevm.Options(buckets={storm['buckets']}) or --buckets {storm['option']}"
    )


# Gathering ----------------------------------------------------------------------------------------------


def explain(exe: Subject, measure: bool = False) -> Explanation:
    """Return the history of the call sites of `exe`.

    `measure`: also run kernels on made-up data, to measure the savings of exact code.
    """
    machine = exe.machine
    machine.check_open()
    program = exe.program()
    symbols, made = dim_symbols(program), exe.specialisation
    seconds, gains, pays_after = made.seconds, made.gains, made.pays_after
    sites = []
    for index, info in enumerate(machine.kernels):
        site = machine.site(index)
        known = symbols.get(index, [(frozenset(), False)] * info.n_dims)
        took = {dims: s * 1e3 for (kernel, dims), s in seconds.items() if kernel == index}
        entries = sorted(site.entries, key=lambda e: -e.hits)
        sites.append(
            {
                "kernel": index, "label": info.label, "source": info.source, "state": site.state,
                "hits": site.hits, "misses": site.misses, "outside": site.outside,
                "causes": _causes(site, known, program),
                "tiers": dict(Counter(e.tier for e in entries)),
                "code_bytes": sum(e.code_bytes for e in entries if e.tier == "exact"),
                "compile_ms": sum(took.values()),
                "saved_ms": _saved(program, exe, index, entries) if measure else None,
                "gain": gains.get(index),
                "entries": [
                    _entry(e, known, program, took.get(e.dims), pays_after.get((index, e.dims)))
                    for e in entries
                ],
            }
        )  # fmt: skip
    counters = machine.stats()
    summary = f"{counters['calls']} calls, {counters['replays']} replays, {counters['n_plans']} plans"
    storms = _storms(program, machine.kernels, sites, symbols)
    graph, _ = with_layers_once(launch_graph(program))
    return Explanation({"summary": summary, "sites": sites, "storms": storms}, graph)


def _entry(
    e: EntryStats, known: Sequence[tuple[frozenset[str], bool]], program: Program, took: float | None,
    pays_after: int | None,
) -> dict[str, Any]:  # fmt: skip
    """Return an entry's data; `because`: the sizes that were new when it was made, or whose combination was
    new."""
    causes = [_cause(known[i], i, program, e.dims[i]) for i in e.new_dims or range(len(e.dims))]
    because = ", ".join(dict.fromkeys(causes)) or "the first call"
    if causes and not e.new_dims:
        because = f"the first time together: {because}"
    return {
        "dims": list(e.dims), "tier": e.tier, "schedule": e.schedule, "state": e.state, "hits": e.hits,
        "failure": e.failure,
        "compile_ms": took, "pays_after": pays_after, "because": because,
    }  # fmt: skip


def _cause(
    known: tuple[frozenset[str], bool], position: int, program: Program, size: int | None = None
) -> str:
    """Return the name of a kernel's dim, with the inputs that it comes from, and its value if given."""
    names = sorted(known[0])
    inputs = "; ".join(inputs_of(program.inputs, program.symbols, name) for name in names)
    what = ", ".join(names) or f"n{position}, which depends on data or is fixed"
    if size is not None:
        what += f" = {size}" if len(names) < 2 else f": {size}"
    return f"{what} ({inputs})" if inputs else what


def _causes(
    site: SiteStats, known: Sequence[tuple[frozenset[str], bool]], program: Program
) -> dict[str, int]:
    """Return the number of misses that each new size caused; "together": misses by a new combination of
    sizes."""
    causes: Counter[str] = Counter()
    for position, count in enumerate(site.by_dim):
        if count:
            causes[_cause(known[position], position, program)] += count
    causes["together"] = site.by_combination
    return {cause: n for cause, n in causes.items() if n}


def inputs_of(inputs: Sequence[Input], symbols: Sequence[Symbol], name: str) -> str:
    """Return where a symbol comes from: "axis 1 of ids, axis 1 of mask"."""
    index = next(i for i, symbol in enumerate(symbols) if symbol.name == name)
    axes = [f"axis {a} of {row.name}" for row in inputs for a, x in enumerate(row.axes) if x.symbol == index]
    return ", ".join(axes + [row.name for row in inputs if row.symbol == index])


def _saved(program: Program, exe: Subject, kernel: int, entries: Iterable[EntryStats]) -> float | None:
    """Return the milliseconds that exact code of the busiest entries saved compared with generic code."""
    from ..jit.measure.objects import measured_ns
    from ..vm.artifact import parse_object

    have = [*program.kernels[kernel].objects, *map(parse_object, exe.machine.installed(kernel))]
    target = exe.machine.kernels[kernel].target
    found: dict[Any, KernelObject] = {o.key: o for o in have if o.target == target}
    total, is_measured = 0.0, False
    for e in [e for e in entries if e.tier == "exact" and e.dims][:MEASURED_ENTRIES]:
        if None in found and e.dims in found:
            total += (measured_ns(found[None], e.dims) - measured_ns(found[e.dims], e.dims)) * e.hits * 1e-6
            is_measured = True
    return total if is_measured else None


# Storms -------------------------------------------------------------------------------------------------


def _storms(
    program: Program, kernels: Sequence[Any], sites: Sequence[Mapping[str, Any]],
    symbols: Mapping[int, Sequence[tuple[frozenset[str], bool]]],
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the dimensions whose sizes keep missing, the one with the most sizes first."""
    storms, symbols = [], {kernel: dims for kernel, dims in symbols.items() if sites[kernel]["entries"]}
    for symbol in program.symbols:
        seen: Counter[int] = Counter()
        launches = misses = 0
        for kernel, dims in symbols.items():
            places = [i for i, (names, is_itself) in enumerate(dims) if is_itself and symbol.name in names]
            if not any(symbol.name in names for names, _ in dims):
                continue
            site = sites[kernel]
            launches += site["hits"] + site["misses"]
            misses += site["misses"]
            for entry in site["entries"]:
                for place in places[:1]:
                    seen[entry["dims"][place]] += entry["hits"] + 1
        if len(seen) >= STORM_SIZES and misses >= STORM_SHARE * launches:
            storms.append(_storm(program, symbol, seen, misses / launches))
    return sorted(storms, key=lambda storm: -storm["sizes"])


def _storm(program: Program, symbol: Symbol, seen: Counter[int], share: float) -> dict[str, Any]:
    table = suggest(symbol, seen)
    texts = [str(item if isinstance(item, int) else SizeRange(*item)) for item in table]
    return {
        "symbol": symbol.name, "inputs": inputs_of(program.inputs, program.symbols, symbol.name),
        "sizes": len(seen), "min": min(seen), "max": max(seen), "share": share,
        "buckets": {symbol.name: table}, "option": f"{symbol.name}={','.join(texts)}",
    }  # fmt: skip


def suggest(symbol: Symbol, seen: Mapping[int, int]) -> list[Any]:
    """Return a bucket table: separate entries for outstanding sizes, then doubling ranges over all others."""
    total = sum(seen.values())
    often = sorted(seen, key=lambda size: -seen[size])[:MAX_EXACT]
    table: list[Any] = sorted(size for size in often if seen[size] > 2 * total / len(seen))
    low, top = min(seen), max(seen)
    while low <= top:
        high = 16
        while high < low:
            high *= 2
        high = min(high, top)
        table.append((low, high) if low < high else low)
        low = high + 1
    return table
