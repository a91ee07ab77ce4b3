"""torch.compile's backend.

    model = torch.compile(model, backend="shapevm", dynamic=True)

Dynamo splits the model into graphs; AOTAutograd makes each of them functional and, if gradients are needed,
splits it into forward and backward; each becomes a separate program at its first call. Sizes that Dynamo
keeps symbolic stay symbolic: a new size causes neither tracing nor compilation.

Without gradients, parameters and buffers are constants of the program, packed for its kernels. Each call
compares their addresses and versions: a program whose weights were changed is recompiled, at most twice;
after that they are inputs. Writes through `.data` or numpy do not change the version; to detect these, each
call compares a few words of every weight, spread over its memory. That finds any change of a weight as a
whole; pass `options={"freeze": False}` for a model in which single elements are written that way. In training
weights are inputs.

LSTM, GRU and RNN layers are compiled if no gradients are needed (`dynamo_layers`), also with packed
sequences; otherwise Dynamo leaves them to PyTorch.

What cannot be compiled runs in PyTorch: operator by operator, or the whole graph, with one warning of the
logger `shapevm`. A call that the program refuses runs in PyTorch as well.
"""

from __future__ import annotations

import logging
import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext

from ..build.build import build_program, open_stores, rounding_of, run_passes
from ..build.collector import paused
from ..build.options import BackendOptions
from ..build.progress import waiting
from ..compiler.frontends.decompositions import instead_of_torch_own
from ..compiler.frontends.exported_program import decomposition_table
from ..compiler.frontends.fx import GraphModuleImporter
from ..compiler.frontends.fx_nodes import schema_arguments
from ..compiler.packages import check_compiler
from ..program import torch_profiler
from ..program.limits import check_strategy
from ..program.opening import executable_of
from ..vm.codes import Strategy
from ..vm.errors import (
    ArgumentError,
    CompileError,
    DeviceError,
    DtypeError,
    Error,
    GuardError,
    InternalError,
    KernelError,
    KindError,
    ShapeError,
    TargetError,
)
from ..vm.fork_lock import ForkLock
from ..vm.spelling import unknown_name
from .dynamo_layers import let_dynamo_trace
from .graph_results import plan_results

if TYPE_CHECKING:
    from ..program.executable import Executable

MAX_CHANGES = 2  # of frozen weights, before they are inputs

aten = torch.ops.aten
_LOG = logging.getLogger("shapevm")
#: Errors of a program that cannot run a call which PyTorch may be able to run. ArgumentError: one of
#: PyTorch's operators returned fewer results than when traced.
REFUSALS = (
    ArgumentError, ShapeError, DtypeError, KindError, DeviceError, GuardError, TargetError, CompileError,
    KernelError, InternalError,
)  # fmt: skip
#: `torch.compile`'s modes and their strategies (None: the setting's); CUDA graphs do not apply here.
MODES: dict[str, Strategy | None] = {
    "default": None, "lite": None, "reduce-overhead": None, "max-autotune": "jit",
    "max-autotune-no-cudagraphs": "jit",
}  # fmt: skip


def backend(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Return the function that runs `module`, one graph of Dynamo's. `options`: those of
    `BackendOptions`; `mode`: one of `MODES`. Raises ArgumentError for unknown options and modes."""
    made = _options(options or {}, mode)
    compiler = aot_autograd(
        fw_compiler=partial(_compile, options=made, is_inference=False),
        inference_compiler=partial(_compile, options=made, is_inference=True),
        decompositions=dict(decomposition_table().items()),
    )
    with instead_of_torch_own(), paused():
        return compiler(module, inputs)


let_dynamo_trace(backend)


def _options(given: Mapping[str, Any], mode: str | None = None) -> BackendOptions:
    if mode is not None and mode not in MODES:
        raise unknown_name("mode", mode, MODES)
    options = BackendOptions(**given)
    if options.strategy is None:
        options = replace(options, strategy=MODES[mode or "default"])
    check_compiler()
    return options


def _compile(
    module: torch.fx.GraphModule, inputs: Sequence[Any], *, options: BackendOptions, is_inference: bool
) -> Callable[[list[Any]], list[Any]]:
    """Return the function of one functional graph of AOTAutograd; it takes a list, which it empties."""
    context = TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []  # no saved tensor is written to: backward may run again
    weights = _weights() if is_inference and options.freeze else ()
    compiled = CompiledGraph(module, options, weights)

    def run(args: list[Any]) -> list[Any]:
        return compiled(args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def with_named_attention(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return `module`, or a copy in which attention has its general name wherever only the result of the CPU
    implementation is used, not the values for its gradient."""
    found = aten._scaled_dot_product_flash_attention_for_cpu.default
    if not module.graph.find_nodes(op="call_function", target=found):
        return module
    named = torch.fx.GraphModule(module, deepcopy(module.graph))
    _name_attention(named.graph, found)
    return named


def _name_attention(graph: torch.fx.Graph, target: Any) -> None:
    for node in graph.find_nodes(op="call_function", target=target):
        results = list(node.users)
        if not all(user.target is operator.getitem and user.args[1] == 0 for user in results):
            continue
        q, k, v, dropout, is_causal, mask, scale = schema_arguments(node)
        with graph.inserting_before(node):
            args = (q, k, v, mask, dropout, is_causal)
            how = {"scale": scale, "enable_gqa": _n_heads(q) != _n_heads(k)}
            named = graph.call_function(aten.scaled_dot_product_attention.default, args, how)
        for result in results:
            named.meta = result.meta
            result.replace_all_uses_with(named)
            graph.erase_node(result)
        graph.erase_node(node)


def _n_heads(node: torch.fx.Node) -> Any:
    """Return the number of heads of a query or key, the axis before positions; as an expression if
    symbolic."""
    size = node.meta["val"].shape[-3]
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _weights() -> tuple[int, ...]:
    """Return the positions of the inputs that are parameters and buffers which the graph does not change."""
    context = TracingContext.try_get()
    found = context.fw_metadata if context is not None else None
    if found is None:
        return ()
    return tuple(i for i in found.static_input_indices or () if not found.input_info[i].mutates_data)


# Calls ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Version:
    """A program, the positions of its arguments, and the weights that are its constants.

    `key`: their addresses and versions; `sample`: words of their memory, which it keeps alive so that
    addresses are not reused.
    """

    executable: Executable | None  # None: PyTorch runs the graph
    inputs: tuple[int, ...]
    key: tuple[Any, ...] | None
    sample: Sample

    def fits(self, key: tuple[Any, ...] | None) -> bool:
        """Return whether the weights are those that the program was compiled with."""
        return self.key is None or (self.key == key and self.sample.is_unchanged())


class CompiledGraph:
    """One graph, called with a list of its arguments, which it empties. Threads may share it."""

    def __init__(
        self, module: torch.fx.GraphModule, options: BackendOptions, weights: Sequence[int] = ()
    ) -> None:
        self._module, self._options = module, options  # the original module, which PyTorch runs
        self._named = module = with_named_attention(module)
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._positions = tuple(i for i in weights if has_fixed_shape(placeholders[i]))  # of constants
        self._computed, self._finish = plan_results(module)
        self._version: Version | None = None
        self._n_changes = 0
        self._lock = ForkLock()
        self._is_refused = False  # whether PyTorch ran a call that the program refused

    def __call__(self, args: list[Any]) -> list[Any]:
        """Run the graph."""
        version = self._version
        if version is None or (version.key is not None and not version.fits(self._key(args))):
            version = self._compile(args)
        if version.executable is None:
            return self._run_in_pytorch(args)
        try:
            exe, inputs = version.executable, [args[i] for i in version.inputs]
            if torch_profiler.module._is_profiler_enabled:
                results = torch_profiler.run(exe.machine, exe.name, inputs)
            else:
                results = exe.machine.call(inputs)
        except REFUSALS as error:  # nothing has changed yet: the graph is functional
            if not self._is_refused:
                _LOG.warning("a call of the model runs in PyTorch: %s", error)
                self._is_refused = True
            return self._run_in_pytorch(args)
        made = self._finish(args, results)
        args.clear()
        return made

    def _run_in_pytorch(self, args: list[Any]) -> list[Any]:
        given = list(args)
        args.clear()
        return list(self._module(*given))

    def _key(self, args: Sequence[Any]) -> tuple[Any, ...] | None:
        """Return a key that changes with the weights; None if there is none."""
        try:
            return tuple([(args[i].data_ptr(), args[i]._version) for i in self._positions])
        except RuntimeError:  # tensors of inference mode have no version
            return None

    def _compile(self, args: Sequence[Any]) -> Version:
        """Return the program for these weights."""
        with self._lock, paused():
            version, key = self._version, self._key(args)
            if version is not None and version.fits(key):
                return version  # another thread was faster
            if version is not None:
                self._n_changes += 1
            if key is None or self._n_changes > MAX_CHANGES:
                self._positions, key = (), ()
            self._version = self._new_version(args, key)
            return self._version

    def _new_version(self, args: Sequence[Any], key: tuple[Any, ...]) -> Version:
        placeholders = [node for node in self._named.graph.nodes if node.op == "placeholder"]
        weights = {placeholders[i]: args[i].detach() for i in self._positions}
        inputs = [i for i, node in enumerate(placeholders) if node not in weights and is_needed(node)]
        kept = [placeholders[i] for i in inputs]
        try:
            check_arguments(args)
            may_call_torch = self._options.fallback == "torch"
            importer = GraphModuleImporter(self._named, "main", may_call_torch=may_call_torch)
            graph = importer.run_part(kept, weights, self._computed)
            executable = _executable(graph, self._options)
        except Exception as error:  # PyTorch can do what we cannot, whatever the reason
            if self._options.fallback == "error":
                raise
            _LOG.warning("a graph of the model runs in PyTorch: %s", text_of(error))
            return Version(None, (), None, Sample(()))
        return Version(executable, tuple(inputs), key or None, Sample(weights.values()))


def text_of(error: Exception) -> str:
    """Return an error's message; for an internal error, with its type."""
    return str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"


class Sample:
    """A few words of each of some tensors, spread evenly over its memory, which is kept."""

    N_WORDS = 8

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        """Read the words."""
        memories = [_memory_of(t) for t in tensors if t.layout == torch.strided and t.numel()]
        self._words = [np.empty(0, np.uint64)]
        self._words += [self._words_of(memory) for memory in memories if self._is_long(memory)]
        self._short = [memory for memory in memories if not self._is_long(memory)]
        self._found = self._read()

    def is_unchanged(self) -> bool:
        """Return whether the words are unchanged."""
        return self._read() == self._found

    def _read(self) -> bytes:
        return np.concatenate(self._words).tobytes() + b"".join([memory.tobytes() for memory in self._short])

    def _is_long(self, memory: np.ndarray[Any, Any]) -> bool:
        return len(memory) > 8 * self.N_WORDS

    def _words_of(self, memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        step = (len(memory) - 8) // (self.N_WORDS - 1)
        return np.lib.stride_tricks.as_strided(memory[:8].view(np.uint64), (self.N_WORDS,), (step,))


def _memory_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return the bytes of memory from a tensor's first element to its last."""
    extent = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    start, size = tensor.storage_offset(), tensor.element_size()
    whole: np.ndarray[Any, Any] = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()
    return whole[start * size : (start + extent) * size]


def check_arguments(args: Sequence[Any]) -> None:
    """Raise DeviceError or KindError for an argument that no program accepts."""
    for value in args:
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            raise DeviceError(f"an argument is on {value.device}; programs run on the CPU")
        if isinstance(value, torch.SymInt):
            raise KindError(f"an argument is {value}, a size of a jagged tensor")


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


def _executable(graph: Any, options: BackendOptions) -> Executable:
    store, *_ = open_stores(options)
    graph.rounding = rounding_of(options, graph)
    graph.accurate = options.accurate
    with waiting("torch.compile: shapevm compiles a graph", is_quiet=not sys.stderr.isatty()):
        run_passes(graph)
        program = build_program(graph, store, is_portable=False)  # it is never saved
    return executable_of(program, check_strategy(options.strategy), [store])
