"""`shapevm.accelerate`: a model whose compilable parts run here and the others in PyTorch.

A module or function of Python goes through `torch.compile`, which splits it where necessary. A TorchScript
program runs here as a whole: it is compiled at the first call with arguments of new dtypes or ranks, or with
sizes that no version of it accepts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten

from ..build.compile import Given, compile_model
from ..build.other_forms import kind_of, tensors_of, weights_of
from ..compiler.frontends.kinds import is_script
from ..program.limits import check_strategy
from ..vm.errors import ArgumentError, DtypeError, KindError, ShapeError
from ..vm.fork_lock import ForkLock
from ..vm.isa import article
from .dynamo import MAX_CHANGES, REFUSALS, backend, text_of

if TYPE_CHECKING:
    from ..program.executable import Executable
    from ..vm.codes import Strategy

MAX_VERSIONS = 4  # of a program, for arguments of the same dtypes and ranks
#: Errors of a program for arguments that another one may accept.
OTHER_ARGUMENTS = (ArgumentError, ShapeError, DtypeError, KindError)
_LOG = logging.getLogger("shapevm")


def accelerate(model: Any, *, strategy: Strategy | None = None) -> Any:
    """Return a module, or function, that is called like `model` and returns the same results.

    `model`: an nn.Module, a function, or a scripted or traced one. `strategy`: as `shapevm.compile` takes it.
    Parts that cannot be compiled, calls that a program refuses, and calls of a TorchScript program that need
    gradients or change its attributes run in PyTorch; the logger `shapevm` says so once. Raises ArgumentError
    for anything else and for an unknown strategy.
    """
    wanted = check_strategy(strategy)
    if is_script(model):
        return AcceleratedScript(model, wanted)
    if not callable(model):
        raise ArgumentError(f"the model is {article(type(model).__name__)}; give a module or a function")
    return torch.compile(model, backend=backend, dynamic=True, options={"strategy": wanted})


@dataclass
class _Versions:
    """The programs for arguments of some dtypes and ranks. `refusal`: why no more are compiled, "" while they
    are."""

    programs: list[Executable] = field(default_factory=list)
    refusal: str = ""


class AcceleratedScript(torch.nn.Module):
    """A TorchScript program that runs here or, if that is impossible, in PyTorch. Threads may share it."""

    def __init__(self, script: Any, strategy: Strategy) -> None:
        super().__init__()
        self.script = script
        self._strategy = strategy
        self._versions: dict[Any, _Versions] = {}
        self._weights: Any = None  # addresses and versions of the weights in the programs
        self._n_changes = 0
        self._has_warned = False
        self._lock = ForkLock()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program."""
        reason = self._reason_against(args, kwargs)
        if reason:
            return self._run_in_pytorch(args, kwargs, reason)
        self._forget_old_weights()
        versions = self._versions.setdefault(_signature(args, kwargs), _Versions())
        for program in list(versions.programs):
            try:
                return program(*args, **kwargs)
            except OTHER_ARGUMENTS:
                continue
            except REFUSALS as error:  # nothing has changed yet: the graph is functional
                return self._run_in_pytorch(args, kwargs, str(error))
        return self._run_new(versions, args, kwargs)

    def _reason_against(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Return why PyTorch must run a call, "" if it need not."""
        if getattr(self.script, "training", False):
            return "the model is in training mode; call eval() first"
        leaves = [
            *tensors_of(self.script),
            *(x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)),
        ]
        if torch.is_grad_enabled() and any(x.requires_grad for x in leaves):
            return "the call needs gradients; call it under torch.no_grad()"
        return "tensors are not on the CPU" if any(x.device.type != "cpu" for x in leaves) else ""

    def _forget_old_weights(self) -> None:
        """Drop all programs if weights were changed, because weights are constants in them."""
        weights = weights_of(self.script)
        with self._lock:
            if self._weights is not None and weights != self._weights:
                self._n_changes += 1
                self._versions.clear()
            self._weights = weights

    def _run_new(self, versions: _Versions, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run a call that no program accepts yet on a new one, if one more is allowed."""
        with self._lock:
            if len(versions.programs) == MAX_VERSIONS:
                versions.refusal = f"there are {MAX_VERSIONS} programs for other sizes or values already"
            elif self._n_changes > MAX_CHANGES:
                versions.refusal = "the weights, which are constants of a program, change again and again"
            if not versions.refusal:
                versions.refusal = self._compile(versions, args, kwargs)
            program = None if versions.refusal else versions.programs[-1]
        if program is None:
            return self._run_in_pytorch(args, kwargs, versions.refusal)
        try:
            return program(*args, **kwargs)
        except REFUSALS as error:  # perhaps the model's own error: then PyTorch raises it as well
            return self._run_in_pytorch(args, kwargs, str(error))

    def _compile(self, versions: _Versions, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Add a program for such arguments; return the reason if that fails."""
        try:
            made = compile_model(Given(self.script, tuple(args), dict(kwargs)), self._strategy)
        except Exception as error:  # PyTorch runs it instead, whatever the reason
            return text_of(error)
        changed = ", ".join(made.state())
        if changed:
            made.close()
            return f"its calls change {changed}"
        versions.programs.append(made)
        return ""

    def _run_in_pytorch(self, args: Sequence[Any], kwargs: Mapping[str, Any], reason: str) -> Any:
        found = self.script(*args, **kwargs)
        if not self._has_warned:
            self._has_warned = True
            _LOG.warning("a call of the model runs in PyTorch: %s", reason)
        return found


def _signature(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the key that selects the programs for a call: see `kind_of`."""
    return tuple(map(kind_of, args)), frozenset((name, kind_of(x)) for name, x in kwargs.items())
