"""From a module to an executable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..compiler.ir.dims import DimExpr, symbol
from ..compiler.ir.graph import Graph, SymbolInfo
from ..compiler.ir.types import TensorType
from ..inputs import InputSpec, read_inputs
from ..pytree import LEAF, paths, to_json
from ..vm.errors import ArgumentError
from .module import Module
from .tensor import Tensor
from .trace import CURRENT, Trace

if TYPE_CHECKING:
    from ..executable import Executable
    from ..options import Options

#: The least and the greatest value of a size; None: no greatest.
Sizes = Mapping[str, tuple[int, int | None]]
_TAKEN = ("forward", "main", "initial_state")  # no names of functions besides main


def compile(
    module: Module,
    inputs: Mapping[str, Any],
    sizes: Sizes | None = None,
    *,
    functions: Mapping[str, Mapping[str, Any]] | None = None,
    strategy: str | None = None,
    options: Options | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Executable:
    """Compile `module` for every shape its contract allows, without PyTorch.

    `inputs`: the shape of each argument of `forward`, by name, or a pair of its shape and dtype (f32 where
    nothing is said): {"ids": (("batch", "length"), "i64")}. A size is an int or a name; equal names are equal
    sizes. `sizes`: the least and greatest value of a name, {"length": (1, 512)}; without, any. `functions`:
    other methods of the module by name, with the inputs of each: they become functions of the same program,
    with the same weights and the same state, which `Executable.call` runs. `strategy`, `options`,
    `progress`: as `shapevm.compile` takes them.

    Raises ArgumentError for inputs, sizes, options and parameters that cannot be; ShapeError, DtypeError and
    UnsupportedOp with the module's line.
    """
    from ..build import Source, build
    from ..compiler_packages import check_compiler
    from ..kernel_store import open_store
    from ..limits import check_strategy
    from ..opening import executable_of
    from ..options import check_options

    check_compiler(is_torch=False)
    strategy, options = check_strategy(strategy), check_options(options)
    graph, *others = graphs_of(module, inputs, functions or {}, sizes or {})
    stores = [open_store(target) for target in options.targets]
    notify = progress or (lambda stage, done, total: None)
    program = build(Source(graph, None, None, None, others=others), stores, options, notify)
    return executable_of(program, strategy, stores)


def graphs_of(
    module: Module, inputs: Mapping[str, Any], functions: Mapping[str, Mapping[str, Any]], sizes: Sizes
) -> list[Graph]:
    """Return the graphs of a module: of `forward`, which is main, then of the other methods."""
    for name in functions:
        if name in _TAKEN or not callable(getattr(module, name, None)):
            kind = type(module).__name__
            raise ArgumentError(
                f"functions names {name!r}, which is no method of {kind} that can be a function"
            )
    methods = {"forward": inputs, **functions}
    specs = {name: read_inputs(each) for name, each in methods.items()}
    _check_sizes([spec for each in specs.values() for spec in each], sizes)
    return [
        graph_of(module, "main" if name == "forward" else name, getattr(module, name), each, sizes)
        for name, each in specs.items()
    ]


def _check_sizes(specs: Sequence[InputSpec], sizes: Sizes) -> None:
    """Raise ArgumentError for a range of no input's size, and for one that holds nothing."""
    known = dict.fromkeys(str(_size(size)) for spec in specs for size in spec.shape or ())
    for name, (low, high) in sizes.items():
        if name not in known:
            named = ", ".join(each for each in known if not each.isdigit()) or "none"
            raise ArgumentError(f"sizes names {name!r}, which is no size of an input; they are {named}")
        if low < 0 or (high is not None and high < low):
            raise ArgumentError(
                f"sizes gives {name} the range {low} to {high}; it must be 0 <= least <= most"
            )


def graph_of(
    module: Module, name: str, method: Callable[..., Any], specs: Sequence[InputSpec], sizes: Sizes
) -> Graph:
    """Return the graph of a method of `module`, which calls know by `name`."""
    trace = Trace(module, name)
    graph = trace.importer.graph
    arguments = {spec.name: Tensor(graph.input(spec.name, _type(spec))) for spec in specs}
    _add_symbols(graph, specs, sizes)
    trace.add_state(module)
    if name != "main" and not graph.inputs:
        raise ArgumentError(
            f"function {name!r} has no inputs and the module no buffers; compute it once instead"
        )
    token = CURRENT.set(trace)
    try:
        result = method(**arguments)
        leaves, structure = _flat(result)
        values = [trace.value(leaf) for leaf in leaves]
    finally:
        CURRENT.reset(token)
    state = trace.state(module)
    graph.outputs = [path or "output" for path in paths(structure)] + [f"state.{name}" for name in state]
    graph.body.results = [*values, *state.values()]
    signature = {"positional": list(arguments), "parameters": dict.fromkeys(arguments, LEAF)}
    graph.structure["inputs"], graph.structure["outputs"] = to_json(signature), to_json(structure)
    return graph


def _type(spec: InputSpec) -> TensorType:
    if spec.shape is None:
        raise ArgumentError(f'input "{spec.name}" has no shape; give its sizes, such as ("batch", 16)')
    return TensorType(spec.dtype or "f32", tuple(map(_size, spec.shape)))


def _size(size: Any) -> DimExpr:
    return size if isinstance(size, int) else symbol(str(getattr(size, "__name__", size)))


def _add_symbols(graph: Graph, specs: Sequence[InputSpec], sizes: Sizes) -> None:
    """Put the symbols of the inputs into the contract."""
    for spec in specs:
        for size in spec.shape or ():
            if not isinstance(size, int):
                name = str(_size(size))
                if not name.isidentifier():
                    raise ArgumentError(
                        f'input "{spec.name}" has the size {name!r}; use a name such as "batch"'
                    )
                low, high = sizes.get(name, (0, None))
                graph.symbols[name] = SymbolInfo(name, low, high, why=f"inputs: {name}")


def _flat(result: Any) -> tuple[list[Any], Any]:
    """Return the tensors of what `forward` returned, and their structure (`shapevm.pytree`)."""
    if isinstance(result, Tensor):
        return [result], LEAF
    if isinstance(result, dict) and all(isinstance(key, str) for key in result):
        parts = [_flat(each) for each in result.values()]
        structure: Any = {"dict": dict(zip(result, (inner for _, inner in parts), strict=True))}
    elif isinstance(result, list | tuple):
        parts = [_flat(each) for each in result]
        structure = {type(result).__name__: [inner for _, inner in parts]}
    else:
        raise ArgumentError(
            f"forward returned a {type(result).__name__}; it must return tensors, or tuples, lists "
            "or dicts of them"
        )
    return [leaf for leaves, _ in parts for leaf in leaves], structure
