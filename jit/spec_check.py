"""Checks of a spec beyond its annotations: ranges of numbers, order of instructions, matching dtypes. The
families' checks use these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from ..vm.errors import ArtifactError
from .decode import SpecError, field_types, flat_values, refuse
from .llvm.dtypes import DTYPES
from .math.table import INTS, OPS, find, result_dtype
from .spec import Body, Dim, Index, Instr, KernelSpec, Part, Size

MAX_DIMS, MAX_BUFFERS, MAX_RANK = 32, 64, 16
MAX_SIZE = 1 << 62
#: The annotations of the fields that hold sizes.
SIZES = (Size, tuple[Size, ...])
#: Instructions without an operation of `jit.math.table`, and how many operands they take.
ARITIES = {
    "load": 0, "store": 1, "const": 0, "iota": 0, "dim": 0, "checked": 2, "divisor": 1, "acc": 0,
    "cast": 1, "select": 3,
}  # fmt: skip
REDUCTIONS = frozenset({"sum", "prod", "max", "min", "any", "all"})


def check_common(spec: KernelSpec) -> None:
    """Raise SpecError, naming the position, for numbers out of range in the common part of all specs."""
    if not 0 <= spec.n_dims <= MAX_DIMS:
        raise refuse("n_dims", spec.n_dims, f"from 0 to {MAX_DIMS}")
    if len(spec.buffers) > MAX_BUFFERS:
        raise refuse("buffers", len(spec.buffers), f"at most {MAX_BUFFERS} of them")
    for i, buffer in enumerate(spec.buffers):
        if buffer.dtype not in DTYPES:
            raise refuse(f"buffers[{i}].dtype", buffer.dtype, f"one of {', '.join(DTYPES)}")
        if len(buffer.shape) > MAX_RANK:
            raise refuse(f"buffers[{i}].shape", len(buffer.shape), f"of at most {MAX_RANK} axes")
    for where, size in _sizes(spec, type(spec).__name__.lower()):
        if isinstance(size, Dim) and not 0 <= size.index < spec.n_dims:
            raise refuse(where, size.index, f"a size from n0 to n{spec.n_dims - 1}")
        if isinstance(size, int) and not 0 <= size <= MAX_SIZE:
            raise refuse(where, size, "from 0 to 2**62")


def _sizes(value: Any, where: str) -> Iterator[tuple[str, Size]]:
    """Yield all sizes of a spec with their paths, and the Dims among positions and operands."""
    if isinstance(value, Dim):
        yield where, value
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from _sizes(item, f"{where}[{i}]")
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            found = getattr(value, field.name)
            name = where if isinstance(found, Part) else f"{where}.{field.name}"
            yield from _sizes(found, name)
            if field_types(type(value))[field.name] in SIZES and not isinstance(value, Index):
                found = found if isinstance(found, tuple) else (found,)
                yield from ((name, size) for size in found if isinstance(size, int))


# Bodies -------------------------------------------------------------------------------------------


class BodyCheck:
    """Checks the instructions of one body over `n_loops` loops."""

    def __init__(self, spec: KernelSpec, where: str, n_loops: int) -> None:
        self.spec, self.where, self.n_loops = spec, where, n_loops
        self.dtypes: list[str] = []  # of the values so far, "" for a store

    def check(self, body: Body, has_acc: bool = False, has_stores: bool = True) -> None:
        """Check all instructions."""
        for i, instr in enumerate(body):
            where = f"{self.where}[{i}]"
            if instr.dtype not in DTYPES:
                raise refuse(f"{where}.dtype", instr.dtype, f"one of {', '.join(DTYPES)}")
            for arg in instr.args:
                if not 0 <= arg < i or not self.dtypes[arg]:
                    raise refuse(f"{where}.args", arg, "an earlier instruction that has a value")
            if (instr.op == "acc" and not has_acc) or (instr.op == "store" and not has_stores):
                raise refuse(f"{where}.op", instr.op, "an operation of this body")
            self._check_operation(instr, where)
            self.dtypes.append("" if instr.op == "store" else instr.dtype)

    def _check_operation(self, instr: Instr, where: str) -> None:
        op, given = instr.op, [self.dtypes[arg] for arg in instr.args]
        if op in ARITIES:
            self._check_arity(instr, ARITIES[op], where)
            self._check_plain(instr, given, where)
        elif op.startswith("reduce."):
            self._check_arity(instr, 1, where)
            if op[7:] not in REDUCTIONS or not self.n_loops:
                raise refuse(f"{where}.op", op, f"reduce. and one of {', '.join(sorted(REDUCTIONS))}")
        elif op not in OPS:
            raise refuse(f"{where}.op", op, "a known operation")
        else:
            try:
                self._check_arity(instr, find(op, given[0] if given else instr.dtype).arity, where)
                wanted = result_dtype(op, given[0] if given else instr.dtype)
            except ArtifactError:
                raise
            except ValueError as error:
                raise SpecError(f"kernel spec: {where}: {error}; export the artifact again") from None
            if len(set(given)) > 1 or wanted != instr.dtype:
                raise refuse(f"{where}.dtype", [*given, instr.dtype], "the dtype of its operands")

    def _check_arity(self, instr: Instr, arity: int, where: str) -> None:
        if len(instr.args) != arity:
            raise refuse(f"{where}.args", list(instr.args), f"{arity} instructions")

    def _check_plain(self, instr: Instr, given: Sequence[str], where: str) -> None:
        if instr.op in ("load", "store"):
            self._check_access(instr, given, where)
        elif instr.op == "iota":
            self.check_loop(instr.loop, f"{where}.loop")
        elif instr.op in ("dim", "checked") and instr.size is None:
            raise refuse(f"{where}.size", None, "a size")
        elif instr.op == "checked" and (not INTS.issuperset(given) or instr.dtype != "i64"):
            raise refuse(f"{where}.dtype", [*given, instr.dtype], "i64 of an integer")
        elif instr.op == "divisor" and (given[0] not in INTS or instr.dtype != given[0]):
            raise refuse(f"{where}.dtype", [*given, instr.dtype], "an integer's")
        elif instr.op == "const":
            _check_constant(instr, where)
        elif instr.op == "select" and (given[0] != "bool" or given[1:] != [instr.dtype] * 2):
            raise refuse(f"{where}.args", list(given), "a bool and two of the instruction's dtype")

    def check_loop(self, loop: Any, where: str) -> None:
        """Check the number of a loop."""
        if not isinstance(loop, int) or not 0 <= loop < self.n_loops:
            raise refuse(where, loop, f"a loop below {self.n_loops}")

    def _check_access(self, instr: Instr, given: Sequence[str], where: str) -> None:
        buffers = self.spec.buffers
        if instr.buffer is None or not 0 <= instr.buffer < len(buffers):
            raise refuse(f"{where}.buffer", instr.buffer, f"a buffer below {len(buffers)}")
        buffer = buffers[instr.buffer]
        if instr.dtype != buffer.dtype or given not in ([], [buffer.dtype]):
            raise refuse(f"{where}.dtype", [*given, instr.dtype], f"{buffer.dtype}, as the buffer is")
        if instr.op == "store" and not buffer.is_output:
            raise refuse(f"{where}.buffer", instr.buffer, "an output")
        self.check_index(instr.index, len(buffer.shape), f"{where}.index")

    def check_index(self, index: tuple[Index, ...], rank: int, where: str) -> None:
        """Check one position for each of `rank` axes."""
        if len(index) != rank:
            raise refuse(where, len(index), f"{rank} positions, one for each axis")
        for axis, row in enumerate(index):
            if row.loop is not None and row.value is not None:
                raise refuse(f"{where}[{axis}]", "a loop and a value", "one of them")
            if row.loop is not None:
                self.check_loop(row.loop, f"{where}[{axis}].loop")
            value = row.value
            if value is None:
                continue
            if not 0 <= value < len(self.dtypes) or self.dtypes[value] not in INTS:
                raise refuse(f"{where}[{axis}].value", value, "an earlier instruction that gives an integer")


def _check_constant(instr: Instr, where: str) -> None:
    value, kind = instr.value, DTYPES[instr.dtype].kind
    is_number = isinstance(value, (bool, int, float)) or value in ("inf", "-inf", "nan")
    if not is_number or (kind != "float" and not isinstance(value, (bool, int))):
        raise refuse(f"{where}.value", value, f"a constant of {instr.dtype}")


# What families check --------------------------------------------------------------------------------


def check_buffer(spec: KernelSpec, name: str) -> int:
    """Check the field `name`, a position in `buffers`; return the rank of that buffer."""
    position = flat_values(spec)[name]
    if not 0 <= position < len(spec.buffers):
        raise refuse(name, position, f"a buffer below {len(spec.buffers)}")
    return len(spec.buffers[position].shape)


def check_ranks(spec: KernelSpec, *wanted: int) -> None:
    """Check that there are as many buffers as `wanted`, of those ranks."""
    ranks = [len(buffer.shape) for buffer in spec.buffers]
    if ranks != list(wanted):
        raise refuse("buffers", ranks, f"of ranks {list(wanted)}")
