"""Sizes 0 and 1, checked by running the model once at each.

torch.export traces a program at sizes of 2 or more and answers questions about 0 and 1 as it would for
those: does this broadcast, is this contiguous. Where a model takes another branch at 1, the traced program is
not the model there. So where the contract allows 0 or 1, both are run at that size, on the example inputs cut
down to it, and compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .state import RANDOM
from .vm.errors import Error, ShapeError

if TYPE_CHECKING:
    from .executable import Executable

#: Far more than rounding, far less than another branch. RELATIVE counts in units of the dtype's precision.
RELATIVE, LEAST_RELATIVE, ABSOLUTE = 16, 1e-3, 1e-4


def check_boundaries(
    exe: Executable, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], weights: str = "f32"
) -> None:
    """Compare `exe` with `model` at size 0 and 1 of every symbol that may be that small.

    Raises ShapeError that names the size and the bound to give, where the two differ or the model itself
    fails. `weights`: the dtype that the program's weights were rounded to.
    """
    import torch

    precision = torch.finfo({"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[weights]).eps
    unasked = [symbol.name for symbol in exe.machine.symbols if not symbol.why]  # nobody gave their ranges
    modes = [(module, module.training) for module in model.modules()]  # a part may have its own
    model.eval()
    try:
        with torch.no_grad():
            for name, value, cut_args, cut_kwargs in _cuts(exe, args, kwargs):
                problem = _difference(exe, model, cut_args, cut_kwargs, precision)
                if problem is not None and not (
                    name in unasked and _refuses(exe, model, cut_args, cut_kwargs)
                ):
                    raise ShapeError(
                        f"at {name} = {value} {problem}; give torch.export.Dim({name!r}, min={value + 1})"
                    )
    finally:
        for module, mode in modes:
            module.training = mode


def _cuts(
    exe: Executable, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, int, tuple[Any, ...], dict[str, Any]]]:
    """Yield (symbol, value, args, kwargs) for every boundary that the example inputs can be cut to."""
    from torch.utils._pytree import tree_map

    machine, leaves = exe.machine, exe.flat(args, kwargs)
    sizes = exe.bind(*args, **kwargs)
    for index, symbol in enumerate(machine.symbols):
        for value in range(max(symbol.min, 0), 2):
            if value % symbol.multiple_of or value >= sizes[symbol.name]:
                continue
            cut = {
                id(leaf): _narrowed(
                    leaf, [(i, a) for i, a in enumerate(row.axes) if a.symbol == index], value
                )
                for leaf, row in zip(leaves, machine.inputs, strict=False)  # behind them comes the state
                if row.kind == "tensor"
            }
            changed = tree_map(lambda leaf, cut=cut: cut.get(id(leaf), leaf), (tuple(args), dict(kwargs)))
            yield symbol.name, value, *changed


def _narrowed(leaf: Any, axes: Sequence[tuple[int, Any]], value: int) -> Any:
    for position, axis in axes:
        leaf = leaf.narrow(position, 0, axis.scale * value + axis.offset)
    return leaf


def _difference(
    exe: Executable, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], precision: float
) -> str | None:
    """Return how the two differ, None where they agree or the program refuses the size by itself.

    `precision`: that of the program's weights.
    """
    import torch
    from torch.utils._pytree import tree_leaves

    try:
        with _as_before(exe, model):
            expected = _copied(model(*_copied(args), **_copied(kwargs)))  # its buffers are set back
    except Exception as error:  # anything that a model may raise
        reason = (str(error).splitlines() or [""])[0]
        return f"the model itself fails ({type(error).__name__}: {reason})"
    try:
        with _as_before(exe, model):
            found = exe(*_copied(args), **_copied(kwargs))
    except Error:
        return None
    pairs = list(zip(tree_leaves(found), tree_leaves(expected), strict=False))
    if len(tree_leaves(found)) != len(tree_leaves(expected)):
        return "the model gives other results than at larger sizes"
    for ours, theirs in pairs:
        if isinstance(theirs, torch.Tensor) and not _close(ours, theirs, precision, RANDOM in exe.state()):
            return "the model takes another way than at larger sizes, and the results differ"
    return None


def _refuses(exe: Executable, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return True where the program itself says that it is not for these arguments."""
    try:
        with _as_before(exe, model):
            exe(*_copied(args), **_copied(kwargs))
    except Error:
        return True
    return False


@contextmanager
def _as_before(exe: Executable, model: Any) -> Iterator[None]:
    """Undo what a call changes: the random numbers of torch, the model's buffers and the program's."""
    import torch

    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            yield
    finally:
        exe.reset_state()
        for name, buffer in model.named_buffers():
            buffer.copy_(buffers[name])


def _copied(values: Any) -> Any:
    """Return nested arguments with tensors of their own, which a call may change."""
    import torch
    from torch.utils._pytree import tree_map

    return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, values)


def _close(ours: Any, theirs: Any, precision: float, is_random: bool) -> bool:
    """Whether two results agree; of random ones only the type counts."""
    import torch

    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    if is_random:
        return True
    precision = max(precision, torch.finfo(theirs.dtype).eps) if theirs.dtype.is_floating_point else 0.0
    ours, theirs = ours.double(), theirs.double()
    relative = max(LEAST_RELATIVE, RELATIVE * precision)
    finite = theirs[theirs.isfinite()].abs() if precision else theirs.flatten()[:0]
    scale = max(1.0, finite.max().item()) if finite.numel() else 1.0  # sums that cancel err as their terms do
    return bool(torch.allclose(ours, theirs, relative, max(ABSOLUTE, precision) * scale, equal_nan=True))
