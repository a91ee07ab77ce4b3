"""PyTorch's operators as host functions, which an artifact calls for operators without a kernel.

A host function has the name of its overload, "aten::sort.default" or "namespace::name.overload", and takes
all arguments of the overload's schema in order: tensors over the program's memory, ints, floats, bools,
strings, None, tuples of these; dtypes, layouts and memory formats by name ("torch.float32"), complex tensors
as ("complex", a tensor of real and imaginary parts in its last axis). It returns the results in order, with
lists and tuples flattened and None omitted; complex results as their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket, _OpNamespace

from ..vm.arrays import torch_library
from ..vm.errors import ExternError
from ..vm.host_functions import filling
from ..vm.machine import Machine

COMPLEX = "complex"  # marks a tuple that represents a complex tensor
_NAMED = ("ScalarType", "Layout", "MemoryFormat")


def attach(machine: Machine) -> None:
    """Register every operator of torch that `machine` calls and nothing else provides.

    Raises ExternError naming the operator and the model's line if this process's torch does not have it.
    """
    library = torch_library()
    for name, is_dps in machine.missing_externs.items():
        if "::" in name:
            try:
                called = operator(name)
                if is_dps:
                    machine.register_dps(name, filling(name, called, library), library)
                else:
                    machine.register_extern(name, called, library)
            except ExternError as error:
                error.source = machine.extern_sources[name]
                raise


@cache
def operator(name: str) -> Operator:
    """Return the operator of that name. Raises ExternError if torch does not have it."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.rpartition(".")
    found: Any = torch.ops
    try:
        for part, kind in ((namespace, _OpNamespace), (base, OpOverloadPacket), (overload, OpOverload)):
            found = getattr(found, part)
            if not isinstance(found, kind):  # a Python attribute, such as a method of torch.ops
                raise AttributeError(part)
        return Operator(name, found)
    except (AttributeError, RuntimeError):
        raise ExternError(
            f"operator {name} is not known to torch {torch.__version__}; import the module that defines it "
            "before the artifact is loaded"
        ) from None


class Operator:
    """One overload, called with the values of registers in the order of its schema."""

    def __init__(self, name: str, overload: Any) -> None:
        self.name, self._overload = name, overload
        arguments = overload._schema.arguments
        self._readers = [_reader(argument) for argument in arguments]
        self._n_positional = sum(not argument.kwarg_only for argument in arguments)
        self._keywords = [argument.name for argument in arguments if argument.kwarg_only]

    def __call__(self, *values: Any) -> list[Any]:
        """Return the results. Raises ExternError with PyTorch's message."""
        if len(values) != len(self._readers):
            raise ExternError(f"{self.name} takes {len(self._readers)} arguments, {len(values)} are given")
        try:
            args = [read(value) for read, value in zip(self._readers, values, strict=True)]
            found = self._run(args[: self._n_positional], args[self._n_positional :])
            lent = {_memory(tensor) for tensor in _tensors(args)}
            return [_owned(leaf, lent) for leaf in _leaves(found)]
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
            text = (str(error).splitlines() or [""])[0]
            raise ExternError(f"{self.name} failed: {type(error).__name__}: {text}") from error

    def _run(self, args: Sequence[Any], keywords: Sequence[Any]) -> Any:
        named = dict(zip(self._keywords, keywords, strict=True))
        if not torch.is_autocast_enabled("cpu"):
            return self._overload(*args, **named)
        with torch.autocast("cpu", enabled=False):  # the program was compiled for its own dtypes
            return self._overload(*args, **named)


def _reader(argument: Any) -> Callable[[Any], Any]:
    """Return the function from a register's value to a torch argument."""
    kind = str(argument.real_type)
    if any(name in kind for name in _NAMED):
        return _named
    return _value


def _named(value: Any) -> Any:
    """Return a dtype, layout or memory format; a schema's default is already a number."""
    if not isinstance(value, str):
        return value
    found = vars(torch).get(value.removeprefix("torch."))
    if not isinstance(found, torch.dtype | torch.layout | torch.memory_format):
        raise ValueError(f"{value!r} is no dtype, layout or memory format of torch")
    return found


def _value(value: Any) -> Any:
    if isinstance(value, tuple):
        if len(value) == 2 and value[0] == COMPLEX and isinstance(value[1], torch.Tensor):
            return torch.view_as_complex(value[1])
        return [_value(item) for item in value]
    return value


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list):
            yield from _tensors(value)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _leaves(found: Any) -> Iterator[Any]:
    if isinstance(found, list | tuple):
        for item in found:
            yield from _leaves(item)
    elif found is not None:
        yield found


def _owned(leaf: Any, lent: set[int]) -> Any:
    """Return a result for a register, in its own memory: the memory of arguments is only borrowed."""
    if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided:
        return leaf
    if leaf.is_complex():
        leaf = torch.view_as_real(leaf.resolve_conj())
    return leaf.clone() if _memory(leaf) in lent and leaf.numel() else leaf
