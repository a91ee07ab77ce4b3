"""A share of PyTorch's own operator and module databases through the TorchScript door, traced and scripted,
drawn anew in every run (pytest prints the seed; `--seed` gives it): right, or refused with a sentence."""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from shapevm.vm.errors import GuardError
from torch.utils._pytree import tree_leaves, tree_map

import shapevm

from ....modules import cases as modules
from ....opinfo import cases as operators
from ....opinfo import verdicts

SHARES, EACH = 4, 6
WITHOUT_VALUES = ("empty", "new_empty", "resize")
#: Without elements torch takes another way, which its tracing with symbolic sizes does not see: the call is
#: refused with a sentence.
REFUSED_EMPTY = ("linalg.matrix_rank.hermitian",)


@pytest.fixture(scope="module", autouse=True)
def prepared() -> Iterator[None]:
    """A process prepared for the databases; other tests get theirs back."""
    pytest.importorskip("expecttest")
    n_threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as kept, warnings.catch_warnings():
        kept.setattr(torch.fx.config, "do_not_emit_stack_traces", False)
        verdicts.prepare()
        yield
    torch.set_num_threads(n_threads)
    logging.disable(logging.NOTSET)


def traced(call: operators.Call) -> Any:
    """Return a call as a traced program; None where PyTorch cannot trace it."""
    tensors = tuple(x.clone() for x in call.tensors)
    if any(verdicts._is_foreign(x) for x in tensors) or not tensors:
        return None
    try:
        with torch.no_grad():
            call(*(x.clone() for x in tensors))
            return torch.jit.trace(call, tensors, check_trace=False, strict=False)
    except Exception:  # PyTorch raises anything
        return None


def problem(op: str, script: Any, args: Sequence[Any]) -> str:
    """Return what is wrong with a program, "" where it is right or refused with a sentence."""

    def run(function: Any, seed: int = operators.SEED, given: Sequence[Any] = args) -> Any:
        verdicts.set_seed(seed)
        with torch.no_grad():
            return tree_map(lambda x: torch.as_tensor(x), function(*(_copied(x) for x in given)))

    try:
        wanted, again = run(script), run(script, operators.SEED + 1)
    except RuntimeError:  # PyTorch itself does not run it
        return ""
    if any(verdicts._is_foreign(x) for x in tree_leaves(wanted)):
        return ""
    try:
        with shapevm.compile(script, args=tuple(args), strategy="generic") as exe:
            found = run(exe)
    except GuardError as error:
        is_empty = any(isinstance(x, torch.Tensor) and not x.numel() for x in args)
        return "" if is_empty and op in REFUSED_EMPTY else f"GuardError: {error}"
    except (shapevm.UnsupportedOp, shapevm.ShapeError, shapevm.DtypeError) as error:
        return "" if str(error).strip() and not isinstance(error, AssertionError) else repr(error)
    except Exception as error:
        return f"{type(error).__name__}: {verdicts.line(error)}"
    wrong = verdicts.compare(found, wanted, [again], op)
    if not wrong:
        return ""
    exact = verdicts.rounded(lambda wide: run(script, given=wide), args, wanted)
    return verdicts.compare(found, wanted, [again], op, exact)


def _copied(x: Any) -> Any:
    return x.clone() if isinstance(x, torch.Tensor) else x


@pytest.mark.drawn
@pytest.mark.parametrize("share", range(SHARES))
def test_traced_operators(share: int, pytestconfig: pytest.Config) -> None:
    drawn = random.Random(1000 * pytestconfig.getoption("seed") + share)
    infos = operators.database()
    names = [n for n in infos if not n.startswith((*WITHOUT_VALUES, "fft", "sparse"))]
    bad = []
    for name in drawn.sample(names, EACH):
        made = operators.samples(infos[name], "f32")
        for sample in drawn.sample(made, min(2, len(made))):
            call = operators.Call(infos[name].op, sample)
            script = traced(call)
            found = problem(name, script, call.tensors) if script is not None else ""
            bad += [f"{name}: {found}"] if found else []
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("name", ["histc", "histogram", "nn.functional.batch_norm"])
def test_samples_without_elements(name: str) -> None:
    info = operators.database()[name]
    calls = [operators.Call(info.op, sample) for sample in operators.samples(info, "f32")]
    calls = [each for each in calls if any(not x.numel() for x in each.tensors)][:2]
    found = [(traced(call), call.tensors) for call in calls]
    assert calls and not "".join(problem(name, *each) for each in found if each[0] is not None)


@pytest.mark.parametrize("name", ["squeeze_copy", "expand_copy", "split_with_sizes_copy", "gather"])
def test_every_sample_of_an_operator(name: str) -> None:
    info = operators.database()[name]
    calls = [operators.Call(info.op, sample) for sample in operators.samples(info, "f32")]
    scripts = [(traced(call), call.tensors) for call in calls]
    found = [problem(name, script, tensors) for script, tensors in scripts if script is not None]
    assert found and not any(found), "\n".join(found)


def test_the_copy_of_a_view_has_its_own_memory() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = torch.squeeze_copy(x, 0)
        made.add_(1)
        return x * 2, made

    script = torch.jit.trace(function, torch.ones(1, 3))
    assert not problem("squeeze_copy", script, [torch.arange(3.0).reshape(1, 3)])


@pytest.mark.drawn
@pytest.mark.parametrize("how", ["scripted", "traced"])
@pytest.mark.parametrize("share", range(SHARES))
def test_modules(share: int, how: str, pytestconfig: pytest.Config) -> None:
    drawn = random.Random(1000 * pytestconfig.getoption("seed") + share)
    infos = modules.database()
    bad = []
    for cell in drawn.sample(modules.cells(infos), EACH):
        case = modules.case(
            infos[cell.op], cell.dtype, drawn.choice(modules.inputs(infos[cell.op], cell.dtype, False)), False
        )
        args, kwargs = case.arguments()
        given = [*args, *kwargs.values()]
        try:
            with torch.no_grad():
                case.copy()(*args, **kwargs)
            if how == "scripted":
                script = torch.jit.script(case.copy())
                names = [each.name for each in script._c._get_method("forward").schema.arguments[1:]]
                given = [*args, *(kwargs.get(name) for name in names[len(args) :])]
            else:
                sample = opinfo_sample(args, kwargs)
                call = operators.Call(case.copy(), sample)
                script, given = traced(call), call.tensors
        except Exception:  # PyTorch cannot script or trace it
            continue
        found = problem(cell.op, script, given) if script is not None else ""
        bad += [f"{cell.op}: {found}"] if found else []
    assert not bad, "\n".join(bad)


def opinfo_sample(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return arguments in the form of the operators' database."""
    from torch.testing._internal.opinfo.core import SampleInput

    return SampleInput(args[0], args=tuple(args[1:]), kwargs=kwargs)
