"""`shapevm show`: every stage of a compilation as text, from the imported graph to assembly."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compiler.ir.dims import evaluate
from ..compiler.ir.graph import Graph, Node
from ..compiler.ir.text import format_graph
from ..compiler.lower.launches import Launch, launches_of
from ..compiler.passes.pipeline import PASSES
from ..specialise.kernel_store import open_store
from ..vm.errors import ArgumentError, FileError
from ..vm.files import write_text
from .build import Progress, build_program, check_sizes, format_sizes, import_model, run_passes
from .options import check_options

if TYPE_CHECKING:
    from ..jit.store import KernelStore

STAGES = ("import", *dict.fromkeys(step.__name__ for step, _ in PASSES), "lowered", "bytecode", "llvm", "asm")
#: The stages printed by default: LLVM text and assembly run to thousands of lines.
PRINTED = STAGES[: STAGES.index("llvm")]
UNCHANGED = "no change"
MAX_OPERATORS = 6  # kinds of nodes that a pass's line names
_ENDINGS = {"bytecode": "dis", "llvm": "ll", "asm": "s"}
_LONG_ARRAY = re.compile(r"([(\[])((?:[^()\[\],]+, ){4})(?:[^()\[\],]+, )*[^()\[\],]+([)\]])")
_LONG_LINE = 400


@dataclass(frozen=True)
class Stage:
    """One stage: `name` for `--stage`, `title`, the whole text, and for a pass the difference from the text
    before it and a summary ("" for other stages)."""

    name: str
    title: str
    text: str
    difference: str = ""
    summary: str = ""


def all_stages(
    arguments: Mapping[str, Any],
    wanted: Sequence[str] = (),
    kernel: int = 0,
    sizes: Mapping[str, int] | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> list[Stage]:
    """Return the stages of compiling `arguments` (as for `shapevm.compile`), those `wanted` or all.

    `kernel`, `sizes`: which kernel's LLVM text and assembly, and for which sizes (None: any, the generic
    kernel). Raises ArgumentError for a stage, kernel or sizes that do not exist.
    """
    for name in wanted:
        if name not in STAGES:
            raise ArgumentError(f"stage {name!r} does not exist; there are {', '.join(STAGES)}")
    options = check_options(arguments.get("options"))
    store = open_store(options.targets[0])
    graph = import_model(**arguments, progress=progress)
    check_sizes(graph, [sizes] if sizes is not None else [])
    stages = [Stage("import", "import", format_graph(graph))]
    operators = _operators(graph)

    def watch(name: str, graph: Graph) -> None:
        nonlocal operators
        text, before, operators = format_graph(graph), operators, _operators(graph)
        difference = _difference(stages[-1].text, text)
        summary = _summary(before, operators, difference)
        stages.append(Stage(name, f"pass {len(stages)}: {name}", text, difference, summary))

    run_passes(graph, progress, watch)
    stages.append(Stage("lowered", "lowered", stages[-1].text))
    stages += _machine_stages(graph, store, wanted or STAGES, kernel, sizes, progress)
    return [stage for stage in stages if not wanted or stage.name in wanted]


def _operators(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph.nodes())


def _summary(before: Counter[str], after: Counter[str], difference: str) -> str:
    """Summarise a pass in one line: the removed and the new nodes, or else how many lines changed."""
    gone, new = before - after, after - before
    parts = [f"{sign} {_counted(nodes)}" for sign, nodes in (("-", gone), ("+", new)) if nodes]
    if parts or difference == UNCHANGED:
        return "; ".join(parts) or UNCHANGED
    lines = Counter(line[:1] for line in difference.splitlines())
    return f"{max(lines.values())} lines changed"


def _counted(nodes: Counter[str]) -> str:
    """Return the most frequent operators with their counts."""
    shown = [op if n == 1 else f"{n} {op}" for op, n in nodes.most_common(MAX_OPERATORS)]
    n_more = nodes.total() - sum(n for _, n in nodes.most_common(MAX_OPERATORS))
    return ", ".join(shown) + (f" and {n_more} more" if n_more else "")


def _difference(before: str, after: str) -> str:
    """Return the changed lines of two graphs, marked - and +. Nodes that are only removed, which is all that
    `dce` does, are named in one line."""
    old, new = before.splitlines(), after.splitlines()
    lines = list(difflib.unified_diff(old, new, lineterm="", n=0))[2:]
    lines = [line for line in lines if not line.startswith("@@")]
    if lines and all(line.startswith("-") for line in lines):
        names = ", ".join(line[1:].strip().partition(":")[0] for line in lines)
        return f"- {len(lines)} nodes without uses: {names}"
    return "\n".join(lines) or UNCHANGED


def _machine_stages(
    graph: Graph,
    store: KernelStore,
    wanted: Sequence[str],
    kernel: int,
    sizes: Mapping[str, int] | None,
    progress: Progress,
) -> list[Stage]:
    """Return the wanted stages among bytecode and one kernel's LLVM text and assembly."""
    from ..jit.compiler import assembly, kernel_text
    from ..vm.disassembler import disassemble

    stages = []
    if "bytecode" in wanted:
        text = disassemble(build_program(graph, store, progress=progress), specs=False)
        stages.append(Stage("bytecode", "bytecode", text))
    found = _kernel_node(graph, kernel)
    if found is None:
        return stages
    node, (spec, dims_of_spec) = found
    dims = None if sizes is None else tuple(evaluate(dim, sizes) for dim in dims_of_spec)
    form = "generic" if sizes is None else f"exact for {format_sizes(sizes)}"
    title = f"kernel {kernel}, {node.attrs['label']}, {form}, {store.target}"
    if "llvm" in wanted:
        stages.append(Stage("llvm", f"llvm: {title}", kernel_text(spec, dims, store.target)[0]))
    if "asm" in wanted:
        stages.append(Stage("asm", f"asm: {title}", assembly(spec, dims, store.target)))
    return stages


def _kernel_node(graph: Graph, index: int) -> tuple[Node, Launch] | None:
    """Return the first node that launches the kernel with this index in the kernel table, and its launch;
    None in a graph without kernels."""
    nodes: dict[Any, tuple[Node, Launch]] = {}
    for node in graph.nodes():
        for launch in launches_of(node) if node.op == "kernel" else ():
            nodes.setdefault(launch[0], (node, launch))
    if not nodes and index == 0:
        return None
    if not 0 <= index < len(nodes):
        raise ArgumentError(
            f"kernel {index} does not exist; there are {f'0 to {len(nodes) - 1}' if nodes else 'none'}"
        )
    return list(nodes.values())[index]


def shown_text(stage: Stage, whole: bool) -> str:
    """Return the readable text of a stage: its difference (the text if `whole` or if there is no difference),
    with long arrays and lines cut."""
    text = stage.difference or stage.text if not whole else stage.text
    if stage.name in ("llvm", "asm"):
        return text
    lines = (_LONG_ARRAY.sub(r"\1\2...\3", line) if "const" in line else line for line in text.splitlines())
    return "\n".join(line if len(line) <= _LONG_LINE else f"{line[:_LONG_LINE]} ..." for line in lines)


def sections(stages: Sequence[Stage], whole: bool, diff: bool) -> list[tuple[str, str]]:
    """Return the sections to print with their titles: the `whole` stages; with `diff` the differences of
    passes; otherwise one line for each pass in one section after the imported graph."""
    if whole:
        return [(stage.title, shown_text(stage, whole)) for stage in stages]
    if diff:
        return [(title, shown_text(stage, whole)) for title, stage in _grouped(stages)]
    passes = [stage for stage in stages if stage.summary]
    width = max(len(stage.name) for stage in passes)
    lines = [f"{i:3} {stage.name:{width}}  {stage.summary}" for i, stage in enumerate(passes, start=1)]
    found = [(stage.title, shown_text(stage, whole)) for stage in stages if not stage.summary]
    return [found[0], ("passes", "\n".join(lines)), *found[1:]]


def _grouped(stages: Sequence[Stage]) -> list[tuple[str, Stage]]:
    """Return stages with the titles of their differences; consecutive passes that change nothing share
    one."""
    rows: list[tuple[str, Stage]] = []
    for stage in stages:
        if rows and stage.difference == rows[-1][1].difference == UNCHANGED:
            rows[-1] = (f"{rows[-1][0]}, {stage.name}", stage)
        else:
            rows.append((stage.title, stage))
    return rows


def write_stages(stages: Sequence[Stage], folder: Path) -> list[Path]:
    """Write the whole text of each stage to a numbered file such as 03-cse.ir; return the paths. Raises
    FileError."""
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder} cannot be written: {error.strerror}") from None
    for i, stage in enumerate(stages):
        path = folder / f"{i:02}-{stage.name}.{_ENDINGS.get(stage.name, 'ir')}"
        write_text(path, stage.text.rstrip("\n") + "\n")
        paths.append(path)
    return paths
