"""`shapevm show`: every stage of a compilation as text, from the imported graph to assembly."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .build import build_program, import_model, run_passes
from .compiler.dims import evaluate
from .compiler.ir import Graph, Node
from .compiler.text import format_graph
from .specialise import open_store

Stage = tuple[str, str]  # name, text


def all_stages(
    arguments: Mapping[str, Any],
    wanted: Sequence[str] = (),
    kernel: int | None = None,
    sizes: Mapping[str, int] | None = None,
) -> list[Stage]:
    """Return the stages of compiling `arguments` (as for `shapevm.compile`), those `wanted` or all.

    A pass is shown as its difference to the stage before; one that changed nothing is left out. `kernel`, `sizes`: which
    kernel's LLVM text and assembly, and for which sizes (None: any, the generic kernel).
    Raises ValueError for a stage or kernel that does not exist.
    """
    stages: list[Stage] = []
    graph = import_model(
        arguments["model"],
        arguments.get("args", ()),
        arguments.get("kwargs"),
        arguments.get("dynamic_shapes"),
    )
    previous = format_graph(graph)
    stages.append(("import", previous))

    def watch(name: str, graph: Graph) -> None:
        nonlocal previous
        text = format_graph(graph)
        if name in wanted:
            stages.append((name, text))
        elif text != previous:
            stages.append((name, _difference(previous, text)))
        previous = text

    run_passes(graph, watch=watch)
    stages.append(("lowered", previous))
    stages += _machine_stages(graph, kernel, sizes)
    names = [name for name, _ in stages]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise ValueError(f"stage {unknown[0]!r} does not exist; there are {', '.join(names)}")
    return [stage for stage in stages if not wanted or stage[0] in wanted]


def _difference(before: str, after: str) -> str:
    """Return the changed lines between two texts, marked - and +."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++")))


def _machine_stages(graph: Graph, kernel: int | None, sizes: Mapping[str, int] | None) -> list[Stage]:
    """Return bytecode, and one kernel's LLVM text and assembly."""
    from .jit.compiler import assembly, kernel_text
    from .vm.disassembler import disassemble

    store = open_store()
    stages = [("bytecode", disassemble(build_program(graph, store)))]
    node = _kernel_node(graph, kernel or 0)
    if node is not None:
        spec, dims = node.attrs["spec"], None
        if sizes is not None:
            dims = tuple(evaluate(dim, sizes) for dim in node.attrs["dims"])
        stages.append(("llvm", kernel_text(spec, dims, store.target)[0]))
        stages.append(("asm", assembly(spec, dims, store.target)))
    return stages


def _kernel_node(graph: Graph, index: int) -> Node | None:
    """Return the first node of the kernel with that index in the kernel table, None in a graph without kernels."""
    nodes: dict[Any, Node] = {}
    for node in graph.nodes():
        if node.op == "kernel":
            nodes.setdefault(node.attrs["spec"], node)
    if not nodes:
        return None
    if not 0 <= index < len(nodes):
        raise ValueError(f"kernel {index} does not exist; there are 0 to {len(nodes) - 1}")
    return list(nodes.values())[index]


def write_stages(stages: Sequence[Stage], folder: Path) -> list[Path]:
    """Write one numbered file a stage, such as 03-fold_constants.ir; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    endings = {"bytecode": "dis", "llvm": "ll", "asm": "s"}
    paths = []
    for i, (name, text) in enumerate(stages):
        path = folder / f"{i:02}-{name}.{endings.get(name, 'ir')}"
        path.write_text(text + "\n")
        paths.append(path)
    return paths
