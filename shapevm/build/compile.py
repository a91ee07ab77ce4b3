"""From a model, or graphs, to an executable. Slow imports are made by the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..vm.host import float_mode
from .collector import paused

if TYPE_CHECKING:
    from ..compiler.ir.graph import Graph
    from ..program.executable import Executable
    from ..vm.codes import Strategy
    from .build import Progress, Source
    from .options import Options
    from .other_forms import OtherForms
    from .text_files import Arrays


@dataclass(frozen=True)
class Given:
    """A model and its example inputs, as `shapevm.compile` takes them."""

    model: Any
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | None = None
    dynamic_shapes: Any = None
    inputs: Any = None
    optional_examples: Mapping[str, Any] | None = None


def compile_model(
    given: Given,
    strategy: Strategy | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Executable:
    """Compile a model: see `shapevm.compile`."""
    with paused(), float_mode():
        from ..calls.checks import check_callable, is_onnx
        from ..compiler.packages import check_compiler, check_onnx_compiler

        # This makes all imports before compile processes start, which would slow them down.
        (check_onnx_compiler if is_onnx(given.model) else check_compiler)()
        from ..program.early_file import early_file
        from ..program.limits import check_strategy
        from ..program.opening import executable_of
        from ..specialise.compile_ahead import started_early
        from .build import build, open_source, open_stores, silent, small_sizes_check
        from .options import check_options
        from .usual_kernels import usual_kernels

        strategy, options = check_strategy(strategy), check_options(options)
        if progress is not None:
            check_callable("progress", progress, "the stage, the steps done and all steps")
        stores, notify = open_stores(options), progress or silent
        is_portable = options.target is not None  # otherwise `save` compiles the code for other machines
        with early_file(given.model, options.weights) as file:
            with started_early(stores[0], lambda: usual_kernels(given.model)):
                source = open_source(**vars(given), progress=notify)
                program = build(source, stores, options, notify, is_portable)
            check = small_sizes_check(source, options, notify)
            made = executable_of(program, strategy, stores, check, is_portable, file)
            made.other_forms = _other_forms(
                given, source, lambda other: compile_model(other, strategy, options)
            )
            return made


def _other_forms(given: Given, source: Source, compile: Callable[[Given], Executable]) -> OtherForms | None:
    """Return what compiles a TorchScript program for arguments that are None in its example, None without
    such arguments."""
    absent = source.program.absent() if source.script is not None else ()
    if not absent:
        return None
    from .other_forms import OtherForms

    def again(new: Mapping[str, Any]) -> Executable:
        examples = {**(given.optional_examples or {}), **new}
        return compile(replace(given, model=source.script, optional_examples=examples))

    return OtherForms(source.script, source.program.positional, absent, again)


def compile_graphs(
    graphs: Callable[[], Sequence[Graph]],
    strategy: Strategy | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Executable:
    """Compile the graphs that `graphs` returns, without PyTorch: the functions of one program, main first."""
    from ..compiler.packages import check_compiler
    from ..program.limits import check_strategy
    from ..program.opening import executable_of
    from .build import Source, build, open_stores, silent
    from .options import check_options

    check_compiler(is_torch=False)
    strategy, options = check_strategy(strategy), check_options(options)
    main, *others = graphs()
    stores = open_stores(options)
    program = build(Source(main, None, None, None, others=others), stores, options, progress or silent)
    return executable_of(program, strategy, stores)


def compiled_graph(arguments: Mapping[str, Any], options: Options, progress: Progress) -> tuple[str, Arrays]:
    """Return the text and the large arrays of the imported graph of `arguments` (of `shapevm.compile`).
    Raises the errors of compilation up to that stage."""
    from ..compiler.ir.text import constants, format_graph
    from .build import lower, open_source

    found: list[tuple[str, Arrays]] = []
    source = open_source(**vars(Given(**arguments)), progress=progress)

    def watch(name: str, graph: Graph) -> None:
        if name == "import":
            found.append((format_graph(graph), constants(graph)))

    lower(source, options, progress, watch)
    return found[-1]
