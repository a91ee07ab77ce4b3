"""Programs for arguments of a TorchScript program that were None in its example."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils._pytree import tree_map_only

from ..vm.errors import Error
from ..vm.fork_lock import ForkLock

if TYPE_CHECKING:
    from ..program.executable import Executable

MAX_FORMS = 4  # that are compiled beside the example's
_LOG = logging.getLogger("shapevm")


class OtherForms:
    """Compiles a program for the dtypes and ranks of such arguments, at the first call with them.

    TorchScript does not say them, so the example's program takes only None. `names`: of the arguments by
    position; `absent`: of those; `compile(examples)` compiles the model with examples of some of them.
    Threads may share this object.
    """

    def __init__(
        self,
        model: Any,
        names: Sequence[str],
        absent: Sequence[str],
        compile: Callable[[Mapping[str, Any]], Executable],
    ) -> None:
        self._model, self._names, self._absent, self._compile = model, names, absent, compile
        self._weights = weights_of(model)
        self._programs: dict[Any, Executable | None] = {}
        self._lock = ForkLock()

    def program(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Executable | None:
        """Return the program for such a call. None: all of these arguments are None, the program has state or
        cannot be compiled (then a log record says why), there are MAX_FORMS already, or the model's weights
        were changed since it was compiled."""
        call = {**dict(zip(self._names, args, strict=False)), **kwargs}
        given = {name: call[name] for name in self._absent if call.get(name) is not None}
        new = tree_map_only(np.ndarray, torch.from_numpy, given)
        if not new or weights_of(self._model) != self._weights:
            return None
        form = frozenset((name, kind_of(x)) for name, x in new.items())
        with self._lock:
            if form not in self._programs and len(self._programs) < MAX_FORMS:
                self._programs[form] = self._compiled(new)
            return self._programs.get(form)

    def _compiled(self, new: Mapping[str, Any]) -> Executable | None:
        names = ", ".join(new)
        _LOG.info("the model is compiled again: %s was None in the example", names)
        try:
            made = self._compile(new)
        except Error as error:
            _LOG.warning("the model cannot be compiled for another %s than None: %s", names, error)
            return None
        if made.state():
            made.close()
            _LOG.warning("calls change the model, so a second program for %s would have other state", names)
            return None
        return made

    def close(self) -> None:
        """Close the programs."""
        with self._lock:
            for program in self._programs.values():
                if program is not None:
                    program.close()
            self._programs.clear()


def weights_of(model: Any) -> list[tuple[int, int]]:
    """Return the addresses and versions of the weights of a module, which are constants of its programs."""
    return [(x.data_ptr(), x._version) for x in tensors_of(model) if not x.is_inference()]


def tensors_of(model: Any) -> list[torch.Tensor]:
    """Return the parameters and buffers of a module; none of a function."""
    return [*model.parameters(), *model.buffers()] if isinstance(model, torch.nn.Module) else []


def kind_of(x: Any) -> Any:
    """Return a tensor's dtype and rank, the kinds of the items of a list, dict or tuple, or a type. The
    length of a list and the keys of a dict do not count: most programs accept any."""
    if isinstance(x, torch.Tensor):
        return str(x.dtype), x.dim()
    if isinstance(x, dict):
        return "dict", frozenset((type(key), kind_of(value)) for key, value in x.items())
    if isinstance(x, list):
        return "list", frozenset(map(kind_of, x))
    return (type(x), *map(kind_of, x)) if isinstance(x, tuple) else type(x)
