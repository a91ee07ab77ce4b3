"""Python functions that programs call by name, declared for this process by `shapevm.extern`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from .arrays import NUMPY
from .errors import ArgumentError, ExternError
from .host_functions import filling

if TYPE_CHECKING:
    from .machine import Machine

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Extern:
    """A declared function. `fills`: it takes the outputs after the arguments, and fills them."""

    name: str
    function: Callable[..., Any]
    fills: bool

    def results(self, *args: Any) -> Sequence[Any]:
        """Return the results, for `call_packed`."""
        if self.fills:
            raise ExternError(
                f'host function "{self.name}" fills tensors, but no shape rule gives their sizes here: '
                "declare it without fills=True"
            )
        found = self.function(*args)
        return found if isinstance(found, list | tuple) else [found]

    def fill(self, args: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Fill the outputs, for `call_dps`."""
        self.function(*args, *outputs)


_DECLARED: dict[str, Extern] = {}


def extern(name: str, *, fills: bool = False) -> Callable[[Function], Function]:
    """Declare a function that programs call by `name`, such as "mylib::scale". It applies to programs that
    are compiled or loaded in this process from then on.

    The function takes numpy arrays (bf16 as uint16), which it must not change or keep, and numbers, strings,
    tuples and None; an operator of `torch.library` takes all arguments of its schema in order. It
    returns its result, or a list or tuple of results. `fills`: it takes the outputs after the arguments,
    contiguous arrays of zeros, and fills them; its result is ignored. It may be called from several threads
    at once. An exception ends the call with ExternError.

    Raises ArgumentError for a name without "::", and if `function` is not callable.
    """
    namespace, _, rest = str(name).partition("::")
    if not namespace or not rest:
        raise ArgumentError(f'an extern is named {name!r}; write "library::function", such as "mylib::scale"')

    def declare(function: Function) -> Function:
        if not callable(function):
            raise ArgumentError(f"extern {name}: {function!r} is no function")
        _DECLARED[name] = Extern(name, function, fills)
        return function

    return declare


def find_extern(name: str) -> Extern | None:
    """Return the declaration for a call of `name`; "a::b" also declares "a::b.default"."""
    return _DECLARED.get(name) or _DECLARED.get(name.removesuffix(".default"))


def attach_externs(machine: Machine) -> None:
    """Register the declared functions with a program, except those that a plug-in has registered."""
    for name, is_dps in machine.missing_externs.items():
        found = find_extern(name)
        if found is None:
            continue
        if not is_dps:
            machine.register_extern(name, found.results)
        else:
            machine.register_dps(name, found.fill if found.fills else filling(name, found.results, NUMPY))
