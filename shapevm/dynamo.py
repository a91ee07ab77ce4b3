"""torch.compile's backend.

    model = torch.compile(model, backend="shapevm", dynamic=True)

Dynamo takes the model apart into graphs, AOTAutograd makes each of them functional and, where gradients are
wanted, splits it into forward and backward; every one becomes a program of its own when it is first called.
Sizes that Dynamo keeps symbolic stay so: a new size neither traces nor compiles again.

Where no gradients are wanted, parameters and buffers are constants of the program, packed for its kernels.
Each call compares their addresses and versions: a program whose weights were changed is compiled anew, twice;
after that they are inputs. (Writes through `.data` or numpy leave no version behind: give
`options={"freeze": False}` to a model whose weights are written that way.) In training they are inputs.

What cannot be compiled runs in PyTorch: operator by operator, or, with one warning, the whole graph.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext

from .build import build_program, run_passes
from .compiler.frontends.exported_program import decomposition_table
from .compiler.frontends.fx import GraphModuleImporter
from .compiler.frontends.fx_nodes import schema_arguments
from .compiler.frontends.layout import memory_order, restored
from .executable import check_strategy, executable_of
from .specialise import check_compiler, open_store
from .vm.errors import ArgumentError, Error
from .vm.fork_lock import ForkLock

if TYPE_CHECKING:
    from .executable import Executable

MOST_CHANGES = 2  # of frozen weights, before they are inputs

aten = torch.ops.aten
#: Views that PyTorch makes of a program's results, where they would be copied in the program.
_VIEWS = (
    aten.permute.default, aten.t.default, aten.transpose.int, aten.unsqueeze.default, aten.squeeze.dim,
    aten.squeeze.dims, aten.view.default, aten.expand.default,
    aten.select.int, aten.slice.Tensor, aten.alias.default, aten.detach.default,
)  # fmt: skip


@dataclass(frozen=True)
class Options:
    """`torch.compile`'s `options`: `strategy`, `jit` and `target` as `shapevm.compile` takes them; `freeze`:
    weights are constants where no gradients are wanted."""

    strategy: str | None = None
    jit: str | None = None
    target: str | None = None
    freeze: bool = True


def backend(
    module: torch.fx.GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Return the function that runs `module`, one graph of Dynamo's. Raises ArgumentError for unknown
    options."""
    made = _options(options or {})
    compiler = aot_autograd(
        fw_compiler=partial(_compile, options=made, is_inference=False),
        inference_compiler=partial(_compile, options=made, is_inference=True),
        decompositions=dict(decomposition_table().items()),
    )
    return compiler(module, inputs)


def _options(given: Mapping[str, Any]) -> Options:
    known = Options.__dataclass_fields__
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ArgumentError(f"option {unknown[0]!r} is unknown; known are {', '.join(known)}")
    options = Options(**given)
    check_strategy(options.strategy, options.jit)
    check_compiler()
    return options


def _compile(
    module: torch.fx.GraphModule, inputs: Sequence[Any], *, options: Options, is_inference: bool
) -> Callable[[list[Any]], list[Any]]:
    """Return the function of one functional graph of AOTAutograd's: it takes a list, which it empties."""
    name_attention(module.graph)
    context = TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []  # we write to no saved tensor: backward may run again
    weights = _weights() if is_inference and options.freeze else ()
    compiled = CompiledGraph(module, options, weights)

    def run(args: list[Any]) -> list[Any]:
        return compiled(args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def name_attention(graph: torch.fx.Graph) -> None:
    """Call attention by its general name where only the result of the CPU's implementation is used, not what
    its gradient needs as well."""
    target = aten._scaled_dot_product_flash_attention_for_cpu.default
    for node in graph.find_nodes(op="call_function", target=target):
        results = list(node.users)
        if not all(user.target is operator.getitem and user.args[1] == 0 for user in results):
            continue
        q, k, v, dropout, is_causal, mask, scale = schema_arguments(node)
        with graph.inserting_before(node):
            args = (q, k, v, mask, dropout, is_causal)
            named = graph.call_function(aten.scaled_dot_product_attention.default, args, {"scale": scale})
        for result in results:
            named.meta = result.meta
            result.replace_all_uses_with(named)
            graph.erase_node(result)
        graph.erase_node(node)


def _weights() -> tuple[int, ...]:
    """Return the positions of the inputs that are parameters and buffers which the graph does not change."""
    context = TracingContext.try_get()
    found = context.fw_metadata if context is not None else None
    if found is None:
        return ()
    return tuple(i for i in found.static_input_indices or () if not found.input_info[i].mutates_data)


# Results --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """How one result of a graph comes about: a `constant`, or the argument or the program's result at
    `position`, with its axes laid out in `order` (None: contiguous), seen through `views`."""

    kind: str  # "constant", "argument" or "result"
    position: int = 0
    constant: Any = None
    order: tuple[int, ...] | None = None
    views: tuple[tuple[Any, tuple[Any, ...]], ...] = ()

    def make(self, args: Sequence[Any], results: Sequence[Any]) -> Any:
        """Return it."""
        if self.kind == "constant":
            return self.constant
        value = args[self.position] if self.kind == "argument" else results[self.position]
        if self.order is not None:
            value = value.permute(self.order).contiguous().permute(restored(self.order))
        for view, rest in self.views:
            value = view(value, *rest)
        return value


def plan_results(module: torch.fx.GraphModule) -> tuple[list[Result], list[torch.fx.Node]]:
    """Return how the results of `module` come about, and the nodes that its program computes for that.

    PyTorch's layouts are kept: code traced after this graph relies on them.
    """
    nodes = list(module.graph.nodes)
    arguments = {node: i for i, node in enumerate(n for n in nodes if n.op == "placeholder")}
    plans: list[Result] = []
    computed: dict[torch.fx.Node, int] = {}
    for found in nodes[-1].args[0]:
        if not isinstance(found, torch.fx.Node):
            plans.append(Result("constant", constant=found))
            continue
        base, views = _base(found)
        if base not in arguments and _order(found) is None:
            base, views = found, ()
        same = next((n for n in arguments if _is_same_size(n, base)), base)
        if same in arguments:
            plans.append(Result("argument", arguments[same], views=views))
        else:
            position = computed.setdefault(base, len(computed))
            plans.append(Result("result", position, order=_order(base), views=views))
    return plans, list(computed)


def _base(node: torch.fx.Node) -> tuple[torch.fx.Node, tuple[Any, ...]]:
    """Return what a chain of views at fixed places starts from, and the chain."""
    views: list[Any] = []
    while node.target in _VIEWS and len(node.all_input_nodes) == 1 and not node.kwargs:
        views.insert(0, (node.target, tuple(node.args[1:])))
        node = node.all_input_nodes[0]
    return node, tuple(views)


def _is_same_size(argument: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Return True for a number that an argument is as well."""
    mine, other = argument.meta.get("val"), node.meta.get("val")
    if argument is node:
        return True
    if not isinstance(mine, torch.SymInt) or not isinstance(other, torch.SymInt):
        return False
    return bool(mine.node.expr == other.node.expr)


def _order(node: torch.fx.Node) -> tuple[int, ...] | None:
    found = node.meta.get("val")
    return memory_order(found) if isinstance(found, torch.Tensor) else None


# Calls ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Version:
    """A program, the positions of the arguments that it takes, and the weights that are constants of it.

    `key`: their addresses and versions; `weights` keeps their memory, so that no address comes again.
    """

    executable: Executable | None  # None: PyTorch runs the graph
    inputs: tuple[int, ...]
    key: tuple[Any, ...] | None
    weights: tuple[torch.Tensor, ...]


class CompiledGraph:
    """One graph, called with a list of its arguments, which it empties. Threads may share it."""

    def __init__(self, module: torch.fx.GraphModule, options: Options, weights: Sequence[int] = ()) -> None:
        self._module, self._options = module, options
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._positions = tuple(i for i in weights if has_fixed_shape(placeholders[i]))  # of constants
        self._results, self._computed = plan_results(module)
        self._version: Version | None = None
        self._n_changes = 0
        self._lock = ForkLock()

    def __call__(self, args: list[Any]) -> list[Any]:
        """Run the graph."""
        version = self._version
        if version is None or (version.key is not None and version.key != self._key(args)):
            version = self._compile(args)
        if version.executable is None:
            return list(self._module(*args))
        results = version.executable.machine.call([args[i] for i in version.inputs])
        made = [result.make(args, results) for result in self._results]
        args.clear()
        return made

    def _key(self, args: Sequence[Any]) -> tuple[Any, ...] | None:
        """Return what changes with the weights; None where that cannot be told."""
        try:
            return tuple([(args[i].data_ptr(), args[i]._version) for i in self._positions])
        except RuntimeError:  # tensors of inference mode have no version
            return None

    def _compile(self, args: Sequence[Any]) -> Version:
        """Return the program for these weights."""
        with self._lock:
            version, key = self._version, self._key(args)
            if version is not None and version.key == key:
                return version  # another thread was here
            if version is not None:
                self._n_changes += 1
            if key is None or self._n_changes > MOST_CHANGES:
                self._positions, key = (), ()
            self._version = self._new_version(args, key)
            return self._version

    def _new_version(self, args: Sequence[Any], key: tuple[Any, ...]) -> Version:
        placeholders = [node for node in self._module.graph.nodes if node.op == "placeholder"]
        weights = {placeholders[i]: args[i].detach() for i in self._positions}
        inputs = [i for i, node in enumerate(placeholders) if node not in weights and is_needed(node)]
        kept = [placeholders[i] for i in inputs]
        try:
            importer = GraphModuleImporter(self._module, "main", may_call_torch=True)
            graph = importer.run_part(kept, weights, self._computed)
            executable = _executable(graph, self._options)
        except Error as error:
            warnings.warn(f"a graph of the model runs in PyTorch: {error}", stacklevel=2)
            return Version(None, (), None, ())
        return Version(executable, tuple(inputs), key or None, tuple(weights.values()))


def is_needed(node: torch.fx.Node) -> bool:
    """Return True for an argument that a program reads, or that gives a size."""
    found = node.meta.get("val")
    sizes = found.shape if isinstance(found, torch.Tensor) else [found]
    read = any(user.op != "output" for user in node.users)
    return read or any(isinstance(size, torch.SymInt) for size in sizes)


def has_fixed_shape(node: torch.fx.Node) -> bool:
    """Return True for a tensor whose sizes are all numbers."""
    found = node.meta.get("val")
    return isinstance(found, torch.Tensor) and all(isinstance(size, int) for size in found.shape)


def _executable(graph: Any, options: Options) -> Executable:
    store = open_store(options.target)
    run_passes(graph)
    strategy = check_strategy(options.strategy, options.jit)
    return executable_of(build_program(graph, store), strategy, store)
