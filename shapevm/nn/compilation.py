"""From a module to an executable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..build.compile import compile_graphs
from ..build.inputs import InputSpec, read_inputs
from ..calls.pytree import LEAF, form, to_json
from ..compiler.ir.dims import DimExpr, parse_dim, symbol, symbols_of
from ..compiler.ir.graph import Graph, SymbolInfo
from ..compiler.ir.types import TensorType
from ..vm.errors import ArgumentError
from .current import CURRENT
from .module import Module
from .tensor import Tensor
from .trace import Trace

if TYPE_CHECKING:
    from ..build.options import Options
    from ..program.executable import Executable
    from ..vm.codes import Strategy

#: The least and the greatest value of a size; None: unbounded.
Sizes = Mapping[str, tuple[int, int | None]]
_TAKEN = ("forward", "main", "initial_state")  # reserved: not allowed as names of further functions


def compile(
    module: Module,
    inputs: Mapping[str, Any],
    sizes: Sizes | None = None,
    *,
    functions: Mapping[str, Mapping[str, Any]] | None = None,
    strategy: Strategy | None = None,
    options: Options | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Executable:
    """Compile `module` for every shape its contract allows, without PyTorch.

    `inputs`: the shape of each argument of `forward`, by name, or a pair of its shape and dtype (by default
    f32): {"ids": (("batch", "length"), "i64")}. A size is an int, a name or an expression of other inputs'
    names, such as "batch + 1"; equal names are equal sizes.
    `sizes`: the least and greatest value of a name, {"length": (1, 512)}; without, any. `functions`: other
    methods of the module by name, with the inputs of each: they become functions of the same program, with
    the same weights and the same state, which `Executable.call` runs. `strategy`, `options`, `progress`: as
    `shapevm.compile` takes them.

    Raises ArgumentError for invalid inputs, sizes, options and parameters; ShapeError, DtypeError and
    UnsupportedOp with the module's line.
    """
    return compile_graphs(
        lambda: graphs_of(module, inputs, functions or {}, sizes or {}), strategy, options, progress
    )


def graphs_of(
    module: Module, inputs: Mapping[str, Any], functions: Mapping[str, Mapping[str, Any]], sizes: Sizes
) -> list[Graph]:
    """Return the graphs of a module: that of `forward`, which is main, then those of the other methods."""
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
    """Raise ArgumentError for a range of a size that no input has, and for an empty range."""
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
    """Return the graph of a method of `module`, which is called by `name`."""
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
    graph.outputs = [path or "output" for path in form(structure).paths()] + [
        f"state.{name}" for name in state
    ]
    graph.body.results = [*values, *state.values()]
    signature = {"positional": list(arguments), "parameters": dict.fromkeys(arguments, LEAF)}
    graph.structure["inputs"], graph.structure["outputs"] = to_json(signature), to_json(structure)
    return graph


def _type(spec: InputSpec) -> TensorType:
    if spec.shape is None:
        raise ArgumentError(f'input "{spec.name}" has no shape; give its sizes, such as ("batch", 16)')
    return TensorType(spec.dtype or "f32", tuple(map(_size, spec.shape)))


def _size(size: Any) -> DimExpr:
    text = str(getattr(size, "__name__", size))
    try:
        return size if isinstance(size, int) else parse_dim(text)
    except ValueError:
        return symbol(text)  # _add_symbols refuses it


def _add_symbols(graph: Graph, specs: Sequence[InputSpec], sizes: Sizes) -> None:
    """Put the symbols of the inputs into the contract: names that are sizes themselves."""
    given = [(spec.name, size) for spec in specs for size in spec.shape or () if not isinstance(size, int)]
    for name in dict.fromkeys(str(_size(size)) for _, size in given):
        if name.isidentifier():
            low, high = sizes.get(name, (0, None))
            graph.symbols[name] = SymbolInfo(name, low, high, why=f"inputs: {name}")
    for name, size in given:
        if not symbols_of(_size(size)) <= graph.symbols.keys():
            raise ArgumentError(
                f'input "{name}" has the size {str(size)!r}; use a name such as "batch", or an expression of '
                "names that are sizes of inputs"
            )


def _flat(result: Any) -> tuple[list[Any], Any]:
    """Return the tensors of what `forward` returned, and their structure (`shapevm.calls.pytree`)."""
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
