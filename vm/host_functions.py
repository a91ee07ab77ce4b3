"""Host functions: Python functions that a program calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ._runtime import ffi, lib
from .arrays import NUMPY, Library, is_array
from .errors import OK, ArgumentError, DtypeError, ExternError, ShapeError
from .values import Allocation, Lent, check, fill, fill_error, give, keep_raised, to_python


@dataclass(frozen=True)
class _HostFunction:
    """See `register`."""

    function: Callable[..., Sequence[Any]]
    library: Library | None


def register(program: Any, name: str, function: Callable[..., Sequence[Any]], library: Library | None) -> Any:
    """Register the host function `name` of an `svm_program *`, see `Machine.register_extern`; return the
    object that must live as long as the program."""
    handle, error = ffi.new_handle(_HostFunction(function, library)), ffi.new("svm_error *")
    check(lib.svm_register_extern(program, name.encode(), lib.svm_py_extern, handle, error), error)
    return handle


def register_dps(program: Any, name: str, function: Callable[..., object], library: Library) -> Any:
    """Register the host function `name` that fills given arrays, see `Machine.register_dps`; return the
    object that must live as long as the program."""
    handle, error = ffi.new_handle(_HostFunction(function, library)), ffi.new("svm_error *")  # type: ignore[arg-type]
    check(lib.svm_register_dps(program, name.encode(), lib.svm_py_dps, handle, error), error)
    return handle


def filling(name: str, function: Callable[..., Sequence[Any]], library: Library) -> Callable[..., None]:
    """Return a function for `call_dps` that copies the results of another one into the outputs. It raises
    DtypeError or ShapeError if a result does not match its output."""

    def fill(args: Sequence[Any], outputs: Sequence[Any]) -> None:
        results = function(*args)
        if len(results) != len(outputs):
            raise ArgumentError(f"{name} gave {len(results)} results; the program takes {len(outputs)}")
        for result, output in zip(results, outputs, strict=True):
            found, dtype = library.array(result, f"a result of {name}")
            _, wanted = library.array(output, "an output")
            if dtype != wanted or tuple(found.shape) != tuple(output.shape):
                kind = DtypeError if dtype != wanted else ShapeError
                compiled = f"the program was compiled for {wanted}{list(output.shape)}"
                raise kind(f"{name} gave {dtype}{list(found.shape)}; {compiled}")
            library.numpy(output)[...] = library.numpy(found)

    return fill


#: The memory of a host function's results, which the runtime copies after the callback has returned.
_extern_results = threading.local()


@ffi.def_extern(name="svm_py_extern", onerror=keep_raised, error=ExternError.code)
def _extern(context: Any, args: Any, n_args: int, results: Any, n_results: int, error: Any) -> int:
    """Call a registered Python function; its exceptions become errors of the program."""
    keep: list[Any] = []
    try:
        host: _HostFunction = ffi.from_handle(context)
        taker = Allocation(NUMPY) if host.library is None else Lent(host.library)
        made = list(host.function(*(to_python(args[i], taker) for i in range(n_args))))
        if len(made) != n_results:
            raise ArgumentError(f"a host function gave {len(made)} results; the program takes {n_results}")
        for i, value in enumerate(made):
            what = f"result {i} of a host function"
            if host.library is not None and is_array(value):
                give(results[i], value, host.library, what)
            else:
                fill(results[i], value, keep, what)
        _extern_results.keep = keep
        return OK
    except BaseException as raised:  # cannot pass through C
        if not isinstance(raised, Exception):  # KeyboardInterrupt is not an error of the function
            keep_raised(type(raised), raised, raised.__traceback__)
        return fill_error(error, raised)


@ffi.def_extern(name="svm_py_dps", onerror=keep_raised, error=ExternError.code)
def _dps(context: Any, args: Any, n_args: int, outputs: Any, n_outputs: int, error: Any) -> int:
    """Call a registered Python function that fills arrays; its exceptions become errors of the program."""
    try:
        host: _HostFunction = ffi.from_handle(context)
        lent = Lent(host.library or NUMPY)
        given = [to_python(args[i], lent) for i in range(n_args)]
        host.function(given, [lent.take(outputs[i]) for i in range(n_outputs)])
        return OK
    except BaseException as raised:  # cannot pass through C
        if not isinstance(raised, Exception):  # KeyboardInterrupt is not an error of the function
            keep_raised(type(raised), raised, raised.__traceback__)
        return fill_error(error, raised)
