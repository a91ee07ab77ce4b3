"""From a model to a program: the stages of compilation in order, each announced to whoever watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .buckets import Buckets, add_keys, cells, keys_of_buckets
from .compiler.dims import evaluate
from .compiler.emit import emit
from .compiler.ir import Graph, Node
from .compiler.passes.pipeline import PASSES, run
from .inputs import apply_inputs, read_inputs, sizes_of
from .settings import settings
from .vm.errors import ArgumentError
from .vm.program import Symbol

if TYPE_CHECKING:
    from .jit.spec import KernelSpec
    from .jit.store import KernelStore
    from .vm.program import KernelObject, Program

#: Called as work goes on: (stage, steps done, steps in all).
Progress = Callable[[str, int, int], None]
#: Called with every stage's name and graph.
Watch = Callable[[str, Graph], None]


#: What becomes of operators that cannot be compiled: PyTorch is called, or compiling fails.
FALLBACKS = ("torch", "error")
#: Who draws random numbers: the program, from a seed that is its state, or PyTorch, as eager would.
RANDOM = ("native", "torch")


def _silent(stage: str, done: int, total: int) -> None:
    """Show nothing."""


def import_model(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    progress: Progress = _silent,
    fallback: str = "torch",
    inputs: Any = None,
    random: str = "native",
) -> Graph:
    """Return the graph of an nn.Module (exported here), an ExportedProgram, a .pt2 file's path or a
    torch.fx.GraphModule. `inputs`: see `shapevm.inputs`.

    Raises ArgumentError for a `fallback` that is none of `FALLBACKS` or a `random` that is none of `RANDOM`,
    and for `inputs` that do not fit.
    """
    for name, value, known in (("fallback", fallback, FALLBACKS), ("random", random, RANDOM)):
        if value not in known:
            raise ArgumentError(f"{name} {value!r} is unknown; known are {', '.join(known)}")
    specs = None if inputs is None else read_inputs(inputs)
    if specs is not None and dynamic_shapes is None:
        dynamic_shapes = sizes_of(specs)
    graph = _import(model, args, kwargs, dynamic_shapes, progress, fallback, random)
    if specs is not None:
        apply_inputs(graph, specs)
    return graph


def _import(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    progress: Progress,
    fallback: str,
    random: str,
) -> Graph:
    from .compiler.frontends import exported_program as door
    from .compiler.frontends.fx import import_graph_module, is_graph_module

    progress("export", 0, 1)
    if is_graph_module(model):
        return import_graph_module(model, tuple(args), dict(kwargs or {}), dynamic_shapes, fallback, random)
    if isinstance(model, str | Path):
        exported = door.load_program(model)
    elif hasattr(model, "graph_signature"):
        exported = model
    else:
        exported = door.export_model(model, tuple(args), dict(kwargs or {}), dynamic_shapes)
    progress("import", 0, 1)
    return door.import_program(exported, dynamic_shapes=dynamic_shapes, fallback=fallback, random=random)


def needs_examples(model: Any) -> bool:
    """Return True for a module that must be run or traced on example inputs: one that is no traced graph."""
    if not hasattr(model, "forward") or hasattr(model, "graph_signature"):
        return False
    from .compiler.frontends.fx import is_aten, is_graph_module

    return not is_graph_module(model) or not is_aten(model)


def run_passes(graph: Graph, progress: Progress = _silent, watch: Watch | None = None) -> None:
    """Run the pipeline on `graph` in place. `watch(name, graph)` is called after each pass."""
    done = 0

    def after(name: str, graph: Graph) -> None:
        nonlocal done
        done += 1
        progress(name, done, len(PASSES))
        if watch is not None:
            watch(name, graph)

    run(graph, check=settings.verify, watch=after)


def build_program(
    graph: Graph,
    store: KernelStore,
    sizes: Sequence[Mapping[str, int]] = (),
    progress: Progress = _silent,
    buckets: Buckets | None = None,
) -> Program:
    """Compile the kernels of a lowered graph and emit its program.

    Every kernel gets its generic code; `sizes` (values of the contract's symbols) also their exact code,
    `buckets` that of their ranges.
    """
    wanted = exact_dims(graph, sizes)
    n_kernels, done = len(wanted), 0

    def compile_spec(spec: KernelSpec) -> list[KernelObject]:
        nonlocal done
        progress("kernels", done, n_kernels)
        done += 1
        return [*store.generic(spec), *(store.object(spec, dims) for dims in wanted[spec])]

    program = emit(graph, compile=compile_spec)
    keys, text = keys_of_buckets(program, buckets or {})
    return add_keys(program, store, keys, lambda done, total: progress(text, done, total))


def check_sizes(graph: Graph, sizes: Sequence[Mapping[str, int]]) -> None:
    """Raise ArgumentError for sizes that lack a symbol of the contract, name another, or break its bounds."""
    for values in sizes:
        what = f"sizes {format_sizes(values)}"
        if set(values) != set(graph.symbols):
            raise ArgumentError(
                f"{what} must give a value for each of {', '.join(graph.symbols) or 'no symbols'}"
            )
        for name, info in graph.symbols.items():
            value, top = values[name], "" if info.max is None else f" and at most {info.max}"
            if value < info.min or (info.max is not None and value > info.max) or value % info.multiple_of:
                step = f", a multiple of {info.multiple_of}" if info.multiple_of != 1 else ""
                raise ArgumentError(f"{what}: {name} is {value}; it must be at least {info.min}{top}{step}")


def check_buckets(graph: Graph, buckets: Buckets) -> None:
    """Raise ArgumentError for buckets that the contract has no room for."""
    cells(buckets, [Symbol(name, i.min, i.max, i.multiple_of) for name, i in graph.symbols.items()])


def format_sizes(sizes: Mapping[str, int]) -> str:
    """Return sizes as the command line takes them: "batch=1,length=16"."""
    return ",".join(f"{name}={value}" for name, value in sizes.items())


def exact_dims(graph: Graph, sizes: Sequence[Mapping[str, int]]) -> dict[KernelSpec, list[tuple[int, ...]]]:
    """Return, for every spec, the distinct dims that it has at `sizes`, which `check_sizes` has seen."""
    wanted: dict[KernelSpec, list[tuple[int, ...]]] = {}
    for node in _kernels(graph):
        found = wanted.setdefault(node.attrs["spec"], [])
        for values in sizes:
            dims = tuple(evaluate(dim, values) for dim in node.attrs["dims"])
            if dims and dims not in found:
                found.append(dims)
    return wanted


def _kernels(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes() if node.op == "kernel"]
