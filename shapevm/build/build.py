"""From a model to a program: the stages of compilation in order, each announced to observers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..calls.checks import (
    GRAPH_SUFFIX,
    SCRIPT_SUFFIXES,
    check_arguments,
    check_graph_alone,
    check_model,
    check_no_optionals,
    is_onnx,
    program_of,
    say_training,
)
from ..compiler.emit.emit import emit
from ..compiler.ir.dims import evaluate, symbols_of
from ..compiler.ir.errors import UnsupportedOp, VerifyError
from ..compiler.ir.graph import Graph, Node, copied
from ..compiler.ir.rounding import Activation, Rounding
from ..compiler.lower.launches import launch_at, launches_of
from ..compiler.passes.pipeline import PASSES, run
from ..compiler.passes.quantise_activations import observe
from ..program.targets import with_target
from ..settings import settings
from ..specialise.buckets import Buckets, add_keys, cells, keys_of_buckets
from ..specialise.compile_ahead import compile_ahead
from ..specialise.kernel_store import open_store
from ..vm.errors import ArgumentError, ShapeError
from ..vm.program import Symbol
from .boundary import boundary_check
from .cutting import Reference
from .inputs import InputSpec, apply_forward, apply_inputs, example_inputs, read_inputs, sizes_of
from .options import CommonOptions, Options
from .text_files import read_graph

if TYPE_CHECKING:
    from ..jit.spec import KernelSpec
    from ..jit.store import KernelStore
    from ..program.executable import Executable
    from ..program.opening import Least
    from ..vm.program import KernelObject, Program

#: Progress callback: (stage, steps done, steps in all).
Progress = Callable[[str, int, int], None]
#: Called with every stage's name and graph.
Watch = Callable[[str, Graph], None]


def silent(stage: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Source:
    """An opened model: `program`, an ExportedProgram, a GraphModule of ATen calls, a TorchScript program, an
    ONNX model or a graph; the specification of its sizes and inputs; and the reference for sizes 0 and 1
    (None: no comparison)."""

    program: Any
    dynamic_shapes: Any
    specs: Sequence[InputSpec] | None
    reference: Reference | None
    forward: Any = None  # of an nn.Module
    others: Sequence[Graph] = ()  # entry points besides main, which is `program`
    activations: Sequence[Activation] | None = None  # as observed in samples, if they are to be rounded
    retrace: Callable[[], Any] | None = None  # another trace, which may compile where this one fails
    script: Any = None  # the TorchScript model whose program this is


def open_source(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    inputs: Any = None,
    progress: Progress = silent,
    optional_examples: Mapping[str, Any] | None = None,
) -> Source:
    """Open an nn.Module (exported here), an ExportedProgram, a .pt2 file's path, a torch.fx.GraphModule, a
    TorchScript module, function or .pt file, an ONNX model, or a graph's text, an .svmir file. `inputs`: see
    `shapevm.build.inputs`; `optional_examples`: see `shapevm.compile`.

    Raises ArgumentError for an invalid model, example input or specification, ShapeError and UnsupportedOp if
    torch.export refuses the model.
    """
    model = program_of(model)
    check_model(model)
    if isinstance(model, str | Path) and Path(model).suffix == GRAPH_SUFFIX:
        given = {"args": args, "kwargs": kwargs, "dynamic_shapes": dynamic_shapes, "inputs": inputs}
        check_graph_alone(model, **given, optional_examples=optional_examples)
        progress("read the graph", 0, 1)
        return Source(read_graph(Path(model)), None, None, None)
    if is_onnx(model):
        return _open_onnx(model, inputs, dynamic_shapes, {"args": args, "kwargs": kwargs})
    model = _loaded_script(model)
    specs = None if inputs is None else read_inputs(inputs)
    if specs is not None and dynamic_shapes is None:
        dynamic_shapes = sizes_of(specs)
    if specs is not None and not args and not kwargs and needs_examples(model):
        args = example_inputs(specs)
    progress("export", 0, 1)
    if _is_script_module(model):
        from ..compiler.frontends.torchscript import open_script

        script = open_script(model, args, kwargs, optional_examples)
        if script.reads("training"):
            say_training(model)
        return Source(script, dynamic_shapes, specs, None, script=model)
    check_no_optionals(optional_examples)
    return _open_other(model, args, kwargs, dynamic_shapes, specs)


@dataclass(frozen=True)
class OnnxModel:
    """An ONNX model, and what the caller says of its sizes (`Narrowing.sizes`)."""

    model: Any
    sizes: Mapping[tuple[str, int], Any]


def _open_onnx(model: Any, inputs: Any, dynamic_shapes: Any, others: Mapping[str, Any]) -> Source:
    """Open an ONNX model, which says its inputs; `inputs` and `dynamic_shapes` may narrow their sizes."""
    from ..compiler.frontends.onnx.reader import read_model

    check_graph_alone("an ONNX model", **others)
    opened = read_model(model)
    specs = None if inputs is None else read_inputs(inputs)
    shapes = dynamic_shapes or {}
    if specs is not None:
        own = [each.name for each in opened.inputs]
        shapes = {name: spec.shape for name, spec in zip(own, specs, strict=False) if spec.shape is not None}
    return Source(OnnxModel(opened, _sizes_by_axis(shapes)), None, specs, None)


def _sizes_by_axis(shapes: Any) -> dict[tuple[str, int], Any]:
    """Return sizes by (input, axis) from shapes, or dicts of sizes by axis, by input."""
    if not isinstance(shapes, Mapping):
        raise ArgumentError("dynamic_shapes of an ONNX model is a dict from the inputs' names to their axes")
    pairs = {
        name: said.items() if isinstance(said, Mapping) else enumerate(said or ())
        for name, said in shapes.items()
    }
    return {(name, axis): size for name, said in pairs.items() for axis, size in said if size is not None}


def _open_other(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    specs: Sequence[InputSpec] | None,
) -> Source:
    """Open a module, an exported program, its file or a graph of FX."""
    from ..compiler.frontends import exported_program
    from ..compiler.frontends.export import export_model, is_alike, ordinary_trace
    from ..compiler.frontends.tree import forward_of

    if isinstance(model, str | Path):
        model = exported_program.load_program(model)
    if hasattr(model, "graph_signature"):
        return Source(model, dynamic_shapes, specs, _reference(model), forward_of(model))
    if not needs_examples(model):
        return Source(model, dynamic_shapes, specs, None)
    check_arguments(model, args, kwargs, dynamic_shapes)
    args, kwargs = tuple(args), dict(kwargs or {})
    program = export_model(model, args, kwargs, dynamic_shapes)
    retrace = partial(ordinary_trace, model, args, kwargs, dynamic_shapes) if is_alike(program) else None
    reference = Reference(model, args, kwargs)
    return Source(program, dynamic_shapes, specs, reference, model.forward, retrace=retrace)


def _loaded_script(model: Any) -> Any:
    """Return the module of a TorchScript file; return any other model unchanged."""
    if not isinstance(model, str | Path) or Path(model).suffix not in SCRIPT_SUFFIXES:
        return model
    from ..compiler.frontends.torchscript import load_script

    return load_script(model)


def _is_script_module(model: Any) -> bool:
    from ..compiler.frontends.kinds import is_script

    return is_script(model)


def _reference(program: Any) -> Reference | None:
    """Return PyTorch's execution of an exported program, on the inputs of its export; None if it has no
    dynamic sizes or cannot be run."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._pytree import tree_leaves

    examples = program.example_inputs
    if examples is None or not program.range_constraints:
        return None
    tensors = [leaf for leaf in tree_leaves(examples) if isinstance(leaf, torch.Tensor)]
    if any(isinstance(x, FakeTensor) or x.is_meta for x in tensors):
        return None
    try:
        guarded, unguarded = program.module(), program.module(check_guards=False)
    except Exception:  # torch cannot unlift some programs
        return None
    guards = getattr(program, "_guards_code", None) or ()
    if any(".stride()" in text or "'flat_args'" in text for text in guards):
        guarded = unguarded  # input strides do not matter here; torch cannot check other guards
    return Reference(guarded, tuple(examples[0]), dict(examples[1]), unguarded)


def _imported(source: Source, options: Options, least: int | None) -> Graph:
    """Return the graph of a program of any format."""
    if isinstance(source.program, Graph):
        return source.program
    if not isinstance(source.program, OnnxModel):
        return _import_torch(source, options, least)
    from ..compiler.frontends.onnx.importer import Narrowing, import_model

    return import_model(source.program.model, narrowing=Narrowing(least or 0, source.program.sizes))


def _import_torch(source: Source, options: Options, least: int | None) -> Graph:
    """Return the graph of a PyTorch program."""
    from ..compiler.frontends.kinds import Script

    shapes = source.dynamic_shapes
    if isinstance(source.program, Script):
        from ..compiler.frontends.torchscript import import_script

        return import_script(source.program, shapes, least, options.allowed_fallback)
    from ..compiler.frontends import exported_program, fx

    how = {"dynamic_shapes": shapes, "fallback": options.allowed_fallback, "random": options.random}
    if hasattr(source.program, "graph_signature"):
        return exported_program.import_program(source.program, **how, least=least)
    return fx.import_graph_module(source.program, **how)


def import_source(
    source: Source, options: Options, least: int | None = None, progress: Progress = silent
) -> Graph:
    """Return the graph of an opened model. `least`: the lower bound of unspecified ranges (`import_program`).

    Raises ArgumentError for inputs, sizes and buckets that do not match the model.
    """
    progress("import", 0, 1)
    graph = _imported(source, options, least)
    if source.specs is not None:
        apply_inputs(graph, source.specs)
    elif source.forward is not None:
        apply_forward(graph, source.forward)
    check_sizes(graph, options.sizes)
    check_buckets(graph, options.buckets)
    for each in (graph, *source.others):
        each.rounding = rounding_of(options, each)
        each.accurate = options.accurate
    graph.rounding.activations = source.activations
    graph.pack = options.pack
    return graph


def rounding_of(options: CommonOptions, graph: Graph) -> Rounding:
    """Return what is to be rounded; the frontend's notes on `graph`'s weights are kept."""
    return Rounding(
        options.weights,
        options.max_error,
        dict(graph.rounding.weights),
        targets=_deciding_targets(options),
        precision=options.precision,
        is_portable=options.is_portable,
    )


def _deciding_targets(options: CommonOptions) -> list[str]:
    """Return the targets that decide the dtype to which products are rounded; none if all targets must give
    equal bits."""
    from ..jit.llvm.target import TARGETS, host_target

    if options.is_portable:
        return []
    names = [name or settings.target or host_target() for name in options.targets]
    if options.precision == "bf16x6":
        return names
    # otherwise AMX multiplies f32 rows like its base
    return [TARGETS[name].base if TARGETS[name].extension == "amx" else name for name in names]


def import_model(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    inputs: Any = None,
    options: Options | None = None,
    progress: Progress = silent,
    optional_examples: Mapping[str, Any] | None = None,
) -> Graph:
    """Return the graph of a model, before the passes: see `open_source` and `import_source`."""
    source = open_source(model, args, kwargs, dynamic_shapes, inputs, progress, optional_examples)
    return import_source(source, options or Options(), progress=progress)


def lower(source: Source, options: Options, progress: Progress = silent, watch: Watch | None = None) -> Graph:
    """Return the graph of an opened model, lowered to kernels. `watch("import", graph)` is called before the
    passes (the last such call has the graph that they lower), and `watch(name, graph)` after each pass.

    Sizes with an unspecified range start at 0, or at 1 or 2 if operators cannot be compiled for smaller ones.
    A model whose trace cannot be lowered is retraced with torch.export's defaults. Raises ArgumentError for
    options that the contract does not allow.
    """
    try:
        return _lowered(source, options, progress, watch)
    except (UnsupportedOp, ShapeError, VerifyError):
        if source.retrace is None:
            raise
        with suppress(Exception):  # the first error is the more informative one
            ordinary = replace(source, program=source.retrace(), retrace=None)
            return _lowered(ordinary, options, progress, watch)
        raise


def _lowered(source: Source, options: Options, progress: Progress, watch: Watch | None) -> Graph:
    """Return the graph for the smallest sizes at which it can be lowered."""
    has_trials = (
        source.reference is not None or isinstance(source.program, OnnxModel) or _is_script(source.program)
    )
    trials = (0, 1, 2) if has_trials else (None,)
    for least in trials:
        try:
            graph = import_source(source, options, least, progress)
            if watch is not None:
                watch("import", graph)
            run_passes(graph, progress, watch)
            return graph
        except ShapeError:
            if least == trials[-1]:
                raise
    raise AssertionError("there is always a trial")


def _is_script(program: Any) -> bool:
    """Whether an opened program is a TorchScript program."""
    if isinstance(program, Graph | OnnxModel):
        return False
    from ..compiler.frontends.kinds import Script

    return isinstance(program, Script)


def needs_examples(model: Any) -> bool:
    """Return True for a module that must be run or traced on example inputs, that is, one that is not a
    traced graph."""
    if _is_script_module(model):
        return True
    if not hasattr(model, "forward") or hasattr(model, "graph_signature"):
        return False
    from ..compiler.frontends.fx import is_aten, is_graph_module

    return not is_graph_module(model) or not is_aten(model)


def run_passes(graph: Graph, progress: Progress = silent, watch: Watch | None = None) -> None:
    """Run the pipeline on `graph` in place. `watch(name, graph)` is called after each pass."""
    done = 0

    def after(name: str, graph: Graph) -> None:
        nonlocal done
        done += 1
        progress(name, done, len(PASSES))
        if watch is not None:
            watch(name, graph)

    run(graph, check=settings.verify, watch=after)


def open_stores(options: CommonOptions) -> list[KernelStore]:
    """Return a store of kernels for each target of the options, the best target first."""
    return [open_store(target) for target in options.targets]


def build(
    source: Source, stores: Sequence[KernelStore], options: Options, progress: Progress = silent,
    is_portable: bool = True,
) -> Program:  # fmt: skip
    """Return the program of an opened model, with code for the target of each store. `is_portable`: see
    `KernelStore.generic`."""
    first, *others = stores
    if options.calibrate:
        source = replace(source, activations=observed(source, options, progress))
    graph = lower(source, options, progress)
    for other in source.others:
        run_passes(other, progress)
    how = (options.sizes, progress, options.buckets, source.others, is_portable)
    program = build_program(graph, first, *how)
    for store in others:
        program = with_target(program, store, partial(progress, f"kernels for {store.target}"))
    return program


def observed(source: Source, options: Options, progress: Progress = silent) -> list[Activation]:
    """Return the products' activations observed in the samples of `options.calibrate`, in the order of
    `quantise_activations.products`. The program runs here in f32, with their ranges as additional results.

    Raises ArgumentError for a sample that does not match the model's arguments, and any error of running it.
    """
    from .calibration import observe_samples

    n_found = 0

    def watch(name: str, graph: Graph) -> None:
        nonlocal n_found
        if name == "import":
            graph.rounding.activations = ()
        elif name == "quantise_activations":
            n_found = observe(graph)

    exe, _ = _in_f32(source, options, progress, watch)
    with exe:
        return observe_samples(exe, options.calibrate, n_found, partial(progress, "calibrate"))


def small_sizes_check(
    source: Source, options: Options, progress: Progress = silent
) -> Callable[[Executable, Program], Mapping[str, Least]] | None:
    """Return `boundary.boundary_check` of an opened model. If activations are rounded to calibrated ranges,
    which inputs of few elements may exceed by far, the f32 program is tried instead."""
    progress("check sizes 0 and 1", 0, 1)
    rounded = (options.weights, options.precision) if not options.calibrate else ()
    check = boundary_check(source.reference, rounded)
    if check is None or not options.calibrate:
        return check

    def check_in_f32(exe: Executable, program: Program) -> Mapping[str, Least]:
        plain, program_in_f32 = _in_f32(source, options)
        with plain:
            return check(plain, program_in_f32)

    return check_in_f32


def _in_f32(
    source: Source, options: Options, progress: Progress = silent, watch: Watch | None = None
) -> tuple[Executable, Program]:
    """Return the unrounded program of an opened model for this machine, as a callable, and the program
    itself."""
    from ..program.opening import executable_of

    plain = replace(options, weights="f32", precision="f32", max_error=None, calibrate=())
    plain = replace(plain, sizes=(), buckets={}, target=None)
    if isinstance(source.program, Graph):
        source = replace(source, program=copied(source.program))  # passes change it
    store = open_store(None)
    program = build_program(lower(source, plain, progress, watch), store)
    return executable_of(program, "generic", [store]), program


def build_program(
    graph: Graph,
    store: KernelStore,
    sizes: Sequence[Mapping[str, int]] = (),
    progress: Progress = silent,
    buckets: Buckets | None = None,
    others: Sequence[Graph] = (),
    is_portable: bool = True,
) -> Program:
    """Compile the kernels of a lowered graph and of its other entry points, and emit their program.

    Every kernel gets its generic code (`is_portable`: see `KernelStore.generic`); `sizes` (values of the
    contract's symbols) also produce exact code, `buckets` code for their ranges.
    """
    wanted = exact_dims([graph, *others], sizes)
    n_kernels, done = len(wanted), 0
    compile_ahead(store, wanted, partial(progress, "kernels"), is_portable)

    def compile_spec(spec: KernelSpec) -> list[KernelObject]:
        nonlocal done
        progress("kernels", done, n_kernels)
        done += 1
        return [*store.generic(spec, is_portable), *(store.object(spec, dims) for dims in wanted[spec])]

    program = emit(graph, compile=compile_spec, others=others)
    keys, text = keys_of_buckets(program, buckets or {})
    return add_keys(program, store, keys, lambda done, total: progress(text, done, total))


def check_sizes(graph: Graph, sizes: Sequence[Mapping[str, int]]) -> None:
    """Raise ArgumentError for sizes that lack a symbol of the contract, name an unknown one, or break its
    bounds."""
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
    """Raise ArgumentError for buckets that the contract does not allow."""
    cells(buckets, [Symbol(name, i.min, i.max, i.multiple_of) for name, i in graph.symbols.items()])


def format_sizes(sizes: Mapping[str, int]) -> str:
    """Format sizes for the command line: "batch=1,length=16"."""
    return ",".join(f"{name}={value}" for name, value in sizes.items())


def exact_dims(
    graphs: Sequence[Graph], sizes: Sequence[Mapping[str, int]]
) -> dict[KernelSpec, list[tuple[int, ...]]]:
    """Return, for every spec, its distinct dims at `sizes`, which `check_sizes` has accepted; none if they
    depend on data."""
    wanted: dict[KernelSpec, list[tuple[int, ...]]] = {}
    for node in (node for graph in graphs for node in _kernels(graph)):
        for spec, _ in launches_of(node):
            wanted.setdefault(spec, [])
        for values in sizes:
            spec, sizes_of_dims = launch_at(node, values)
            if any(symbols_of(dim) - set(values) for dim in sizes_of_dims):
                continue  # data-dependent sizes: the exact code is compiled at run time
            dims = tuple(evaluate(dim, values) for dim in sizes_of_dims)
            if dims and dims not in wanted[spec]:
                wanted[spec].append(dims)
    return wanted


def _kernels(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes() if node.op == "kernel"]
