"""Every program that a test compiles once more in another form, against eager: `pytest --again NAME`.

The forms are `renamed` (forward's parameters have names that mean something elsewhere), `auto` (an exported
program with `Dim.AUTO` on all axes, at several sizes), `small` (sizes 0 and 1, alone and in pairs) and
`closed` (the inputs are buffers, so that the program takes none). A form that torch.export itself refuses is
left out.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from shapevm.compiler.ir.errors import UnsupportedOp
from shapevm.vm.errors import Error
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

import shapevm
from shapevm.build.boundary import agree
from shapevm.build.build import needs_examples
from shapevm.calls.state import RANDOM

#: Names of parameters that mean something in generated code, in graphs, in artifacts or on command lines.
NAMES = (
    "input", "out", "lambda_", "type", "self_", "s0", "len", "output", "torch", "match", "v1", "class_",
    "args", "kwargs", "int", "print", "size", "dtype", "device", "model", "None_", "x_1", "p_weight",
    "b_buffer", "u0", "add", "forward", "dict", "state", "Model",
)  # fmt: skip
PRECISION = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
OTHER_SIZES = (2, 3, 7)  # of every symbol at once, where the contract has them
EXAMPLE = "at the example"


@dataclass(frozen=True)
class Call:
    """A call of `shapevm.compile` that succeeded: copies of the module and its arguments, and the options."""

    compile: Callable[..., Any]
    model: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shapes: Any = None
    options: shapevm.Options = field(default_factory=shapevm.Options)

    def made(self) -> Any:
        """Compile again, the generic tier only."""
        return self.compile(
            self.model,
            self.args,
            self.kwargs,
            dynamic_shapes=self.shapes,
            strategy="generic",
            options=self.options,
        )

    def of_program(self, program: Any) -> Any:
        """Compile an exported program of the same module, whose sizes have other names."""
        options = replace(self.options, sizes=(), buckets={})
        return self.compile(program, strategy="generic", options=options)


class Recorder:
    """Stands in for `shapevm.compile` and keeps the calls that can be made again."""

    def __init__(self, compile: Callable[..., Any]) -> None:
        self._compile = compile
        self.calls: list[Call] = []
        self.compared: Counter[str] = Counter()

    def __call__(self, model: Any, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
        """Compile; keep copies of what was given, as a test may change it later."""
        kept = self._kept(model, args, kwargs or {}, options)
        exe = self._compile(model, args, kwargs, **options)
        if kept is not None:
            self.calls.append(kept)
        return exe

    def _kept(self, model: Any, args: Any, kwargs: Any, more: Mapping[str, Any]) -> Call | None:
        options = more.get("options") or shapevm.Options()
        if more.get("inputs") is not None or options.target is not None or options.weights not in PRECISION:
            return None
        is_script = isinstance(model, torch.jit.ScriptModule)
        if not isinstance(model, torch.nn.Module) or is_script or not needs_examples(model):
            return None
        try:
            model, args, kwargs = copy.deepcopy((model, tuple(args), dict(kwargs)))
        except Exception:  # not every module can be copied
            return None
        return Call(self._compile, model.eval(), args, kwargs, more.get("dynamic_shapes"), options)


def problems(call: Call, form: str, compared: Counter[str] | None = None) -> list[str]:
    """Return what is wrong with a program in another form, each with the name of the form. `compared`: counts
    the results that were compared."""
    found: list[str] = []
    with torch.no_grad():
        try:
            found.extend(FORMS[form](call))
        except (Error, UnsupportedOp) as error:
            found.append(f"it is refused: {error}")
        except Exception:
            found.append("it fails: " + traceback.format_exc())
    if compared is not None:
        compared[form] += len(found)
    return [f"{form} {type(call.model).__name__}: {text}" for text in found if text]


def _renamed(call: Call) -> Iterator[str]:
    changed, names = _with_other_names(call)
    if not names:
        return
    try:
        exe = changed.made()
    except Exception:
        if _exported(changed, changed.shapes) is None:
            return
        raise
    with exe:
        yield from _differences(exe, changed, changed.args, {}, EXAMPLE)
        yield from _differences(exe, changed, (), dict(zip(names, changed.args, strict=True)), EXAMPLE)


def _with_other_names(call: Call) -> tuple[Call, list[str]]:
    """Return the call with a module around its own whose parameters are `NAMES`, by position; and these."""
    bound = inspect.signature(call.model.forward).bind(*call.args, **call.kwargs)
    given = [f"{name}=" for name in bound.kwargs]
    values = (*bound.args, *bound.kwargs.values())
    first = sum(map(ord, type(call.model).__name__ + "".join(bound.arguments)))
    names = [NAMES[(first + 7 * i) % len(NAMES)] for i in range(len(values))]
    passed = [old + new for old, new in zip([""] * len(bound.args) + given, names, strict=True)]
    space: dict[str, Any] = {}
    exec(f"def forward(self, {', '.join(names)}):\n return self.inner({', '.join(passed)})", space)
    wrapper = type("Renamed", (torch.nn.Module,), {"forward": space["forward"]})()
    wrapper.inner = call.model
    shapes = call.shapes
    if isinstance(shapes, dict):
        shapes = [shapes.get(name) for name in bound.arguments]
    if shapes is not None:
        shapes = tuple(_unpacked(shapes, bound))
    return replace(call, model=wrapper.eval(), args=values, kwargs={}, shapes=shapes), names


def _unpacked(shapes: Sequence[Any], bound: inspect.BoundArguments) -> Iterator[Any]:
    """Yield dynamic shapes for each argument, where those of *args and **kwargs are together."""
    for name, of in itertools.zip_longest(bound.arguments, shapes):
        kind = bound.signature.parameters[name].kind
        if kind == inspect.Parameter.VAR_POSITIONAL:
            yield from of or [None] * len(bound.arguments[name])
        elif kind == inspect.Parameter.VAR_KEYWORD:
            yield from ((of or {}).get(key) for key in bound.arguments[name])
        else:
            yield of


def _exported(call: Call, shapes: Any) -> Any:
    """Return the exported program, None where torch.export does not take the module."""
    try:
        return torch.export.export(call.model, call.args, call.kwargs, dynamic_shapes=shapes)
    except Exception:  # whatever torch.export raises
        return None


def _auto(call: Call) -> Iterator[str]:
    def axes(x: Any) -> Any:
        return dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO) if isinstance(x, torch.Tensor) else None

    bound = inspect.signature(call.model.forward).bind(*call.args, **call.kwargs)
    program = _exported(call, tree_map(axes, dict(bound.arguments)))
    if program is None:
        return
    with call.of_program(program) as exe:
        yield from _differences(exe, call, call.args, call.kwargs, EXAMPLE)
        for size in OTHER_SIZES:
            yield from _at(exe, call, dict.fromkeys(range(len(exe.machine.symbols)), size))


def _small(call: Call) -> Iterator[str]:
    with call.made() as exe:
        symbols = range(len(exe.machine.symbols))
        for n in (1, 2):
            for chosen in itertools.combinations(symbols, n):
                for values in itertools.product((0, 1), repeat=n):
                    yield from _at(exe, call, dict(zip(chosen, values, strict=True)))


def _at(exe: Any, call: Call, sizes: Mapping[int, int]) -> Iterator[str]:
    """Compare at `sizes` of symbols by index, where the contract takes them; inputs are the example's, cut or
    repeated."""
    try:
        args, kwargs = _resized(exe, call, sizes)
        exe.bind(*args, **kwargs)
    except Error:
        return
    where = ", ".join(f"{exe.machine.symbols[i].name}={value}" for i, value in sizes.items())
    yield from _differences(exe, call, args, kwargs, f"at {where}")


def _resized(exe: Any, call: Call, sizes: Mapping[int, int]) -> tuple[Any, Any]:
    rows = exe.machine.inputs
    leaves, structure = tree_flatten((call.args, call.kwargs))
    found: dict[int, Any] = {}
    for leaf, row in zip(exe.flat(call.args, call.kwargs), rows, strict=False):
        if row.kind == "int" and row.symbol in sizes:
            raise shapevm.ArgumentError("ints that are sizes are given as they are")
        if row.kind != "tensor":
            continue
        made = leaf
        for position, axis in enumerate(row.axes):
            if axis.symbol in sizes:
                size = axis.scale * sizes[axis.symbol] + axis.offset
                if size < 0 or (made.shape[position] == 0 and size):
                    raise shapevm.ArgumentError("nothing can be repeated")
                made = _long(made, position, size)
        found[id(leaf)] = made
    return tree_unflatten([found.get(id(leaf), leaf) for leaf in leaves], structure)


def _long(x: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """Return `x` cut or repeated to a size along an axis; repeated floats differ, so that none are equal."""
    if size <= x.shape[axis]:
        return x.narrow(axis, 0, size)
    made = x.index_select(axis, torch.arange(size) % x.shape[axis])
    if not x.dtype.is_floating_point:
        return made
    random = np.random.default_rng(size).uniform(1, 1.125, tuple(made.shape))
    factor = torch.from_numpy(np.asarray(random))
    factor.narrow(axis, 0, x.shape[axis]).fill_(1)
    return made * factor.to(made.dtype)


class Closed(torch.nn.Module):
    """A module that has its tensors as buffers and takes none."""

    def __init__(self, inner: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self.inner = inner
        self.leaves, self.structure = tree_flatten((args, dict(kwargs)))
        for i, leaf in enumerate(self.leaves):
            if isinstance(leaf, torch.Tensor):
                self.register_buffer(f"leaf{i}", leaf.detach())
        self.leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]

    def forward(self) -> Any:
        """Run the module on what it was made with."""
        leaves = [getattr(self, f"leaf{i}", leaf) for i, leaf in enumerate(self.leaves)]
        args, kwargs = tree_unflatten(leaves, self.structure)
        return self.inner(*args, **kwargs)


def _closed(call: Call) -> Iterator[str]:
    model = Closed(call.model, call.args, call.kwargs).eval()
    changed = replace(call, model=model, args=(), kwargs={})
    program = _exported(changed, None)
    if program is None:
        return
    with changed.of_program(program) as exe:
        yield from _differences(exe, changed, (), {}, EXAMPLE)


def _differences(exe: Any, call: Call, args: Any, kwargs: Any, where: str) -> Iterator[str]:
    """Yield how each result differs from eager's, "" where it does not; nothing where eager fails or the
    program refuses the call in a sentence."""
    try:
        wanted, again = (_eager(call, args, kwargs, seed) for seed in (0, 1))
    except Exception:  # anything that a model may raise
        return
    try:
        found = tree_leaves(exe(*copy.deepcopy(args), **copy.deepcopy(kwargs)))
    except Error as error:
        if where == EXAMPLE:
            yield f"{where} the program refuses: {error}"
        return
    finally:
        exe.reset_state()
    if len(found) != len(wanted):
        yield f"{where} there are {len(found)} results, not {len(wanted)}"
        return
    is_random = RANDOM in exe.state()
    precision = torch.finfo(PRECISION[call.options.weights]).eps
    for i, (a, b, c) in enumerate(zip(found, wanted, again, strict=True)):
        text = _difference(a, b, c, precision, is_random)
        yield text and f"{where}, result {i}: {text}"


def _eager(call: Call, args: Any, kwargs: Any, seed: int) -> list[Any]:
    model, args, kwargs = copy.deepcopy((call.model, args, kwargs))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return tree_leaves(model(*args, **kwargs))


def _difference(ours: Any, theirs: Any, again: Any, precision: float, is_random: bool) -> str:
    """Return how two results differ. `again`: eager's for another seed; what differs there is random, too."""
    if not isinstance(theirs, torch.Tensor):
        return "" if ours == theirs or theirs != again else f"{ours!r} is not {theirs!r}"
    if theirs.shape != again.shape:
        return ""
    is_random |= not torch.equal(theirs.nan_to_num(), again.nan_to_num())
    if agree(ours, theirs, precision, is_random):
        return ""
    return f"{ours.dtype}{list(ours.shape)} is not {theirs.dtype}{list(theirs.shape)}: {_worst(ours, theirs)}"


def _worst(ours: torch.Tensor, theirs: torch.Tensor) -> str:
    if ours.shape != theirs.shape or not theirs.numel():
        return "the shapes differ"
    ours, theirs = (x.detach().resolve_conj().to(torch.complex128).flatten() for x in (ours, theirs))
    at = int((ours - theirs).abs().nan_to_num(torch.inf).argmax())
    return f"{ours[at].item()} for {theirs[at].item()}"


FORMS: Mapping[str, Callable[[Call], Iterator[str]]] = {
    "renamed": _renamed, "auto": _auto, "small": _small, "closed": _closed,
}  # fmt: skip


def forms_of(option: str) -> Sequence[str]:
    """Return the forms that an option names."""
    return tuple(FORMS) if option == "all" else (option,)
