"""The reference interpreter: the executable definition of the instructions, one method per opcode.

Tensors are contiguous numpy arrays of NUMPY_DTYPES (bf16 as uint16); inputs and constants are read-only
arrays, and so are views of them. Kernels are run by `run_kernel(kernel index, dims, buffers)`, host functions
by `externs`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .arrays import NUMPY_NAMES
from .codes import DEFAULTS
from .contract import Contract, tag_of
from .errors import (
    ArgumentError,
    DivisionByZero,
    DtypeError,
    Error,
    ExternError,
    GuardError,
    IndexOutOfRange,
    IntegerOverflow,
    KernelError,
    KeyMissing,
    KindError,
    LimitExceeded,
    ShapeError,
)
from .instruction import Instruction, decode
from .isa import DTYPES, STRING_FUNCTIONS, TAGS, Op, Operand, article
from .literals import written
from .program import DTYPE_NAMES, NUMPY_DTYPES, Dim, EntryPoint, Function, Kernel, Program
from .string_functions import call_string_function, check_size, is_whole, to_bytes, to_text
from .verify import verify

RunKernel = Callable[[int, tuple[int, ...], list[Any]], None]
Array = np.ndarray[Any, Any]
INT64 = range(-(1 << 63), 1 << 63)
MAX_BYTES = 1 << 62
MAX_CALLS, MAX_NESTING = DEFAULTS["CALL_DEPTH"][0], DEFAULTS["NESTING"][0]


class _Frame:
    """The registers of one running function."""

    def __init__(self, index: int, function: Function, args: Sequence[Any]) -> None:
        self.index, self.function = index, function
        self.registers: list[Any] = [*args, *[None] * (function.n_registers - len(args))]
        self.next = 0  # word offset of the next instruction
        self.call: Instruction | None = None  # that runs
        self.results: list[Any] | None = None


def _frozen(value: Any) -> Any:
    """Return `value`, arrays in it as read-only ones over the same memory."""
    if isinstance(value, np.ndarray):
        view = np.require(value, requirements="C").view()
        view.flags.writeable = False
        return view
    if isinstance(value, (list, tuple)):
        return type(value)(map(_frozen, value))
    return {key: _frozen(item) for key, item in value.items()} if isinstance(value, dict) else value


def _check_tag(op: Op, operand: Operand, value: Any, like: Any = None) -> Any:
    """Return what a register holds. Raises KindError where the operand's row does not allow it."""
    tag, wanted = tag_of(value), operand.takes if operand.tags else ""
    is_right = not operand.tags or tag in operand.tags
    if operand.like:
        is_right, wanted = tag == tag_of(like), article(tag_of(like))
    if not is_right:
        raise KindError(f"{op.name}: operand {operand.name} is {article(tag)}; it takes {wanted}")
    return value


def _key(value: Any, *tags: str) -> Any:
    """Return a key. Raises KindError for one of another tag."""
    if tag_of(value) not in tags:
        raise KindError(f"a key is {article(tag_of(value))}; it must be {' or '.join(map(article, tags))}")
    return value


def _elements(r: list[Any], i: Instruction, name: str) -> Iterator[Any]:
    """Yield what the registers of a list hold. Raises KindError at the first that its row does not allow."""
    operand = i.op.operand(name)
    return (_check_tag(i.op, operand, r[register]) for register in i[name])


def _int64(value: int, what: str) -> int:
    if value not in INT64:
        raise IntegerOverflow(f"{what} leaves 64 bits")
    return value


def n_elements(sizes: Sequence[int]) -> int:
    """Return product(sizes). Raises ShapeError for a negative size, or where sizes other than 0 multiply over
    2^62.
    """
    if min(sizes, default=0) < 0:
        raise ShapeError(f"sizes {list(sizes)} must be >= 0")
    if math.prod(size for size in sizes if size) > MAX_BYTES:
        raise ShapeError(f"sizes {list(sizes)} are too many elements")
    return math.prod(sizes)


def _arrays(values: Sequence[Any]) -> Iterator[Array]:
    """Yield the arrays among values and in their containers, each container once."""
    seen, rest = set[int](), list(values)
    while rest:
        value = rest.pop()
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, list | tuple | dict) and id(value) not in seen:
            seen.add(id(value))
            rest += value.values() if isinstance(value, dict) else value


def _memory(array: Array) -> Array:
    """Return the array that owns the memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def bf16_bits(value: float) -> int:
    """Return the bits of the nearest bf16 to a float32, ties to even."""
    bits = int(np.float32(value).view(np.uint32))
    if math.isnan(value):
        return bits >> 16 | 0x40
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


class Reference:
    """Runs one program. `externs`: name -> function of the arguments that returns the results."""

    def __init__(
        self,
        program: Program,
        run_kernel: RunKernel,
        externs: Mapping[str, Callable[..., Sequence[Any]]] | None = None,
    ) -> None:
        """Verify the program. Raises VerifyError."""
        verify(program)
        self.program, self.run_kernel, self.externs = program, run_kernel, externs or {}
        self._frames: list[_Frame] = []  # of the calls within each other
        self._methods = {name[3:]: getattr(self, name) for name in dir(self) if name.startswith("op_")}

    def call(self, inputs: Sequence[Any], entry: EntryPoint | None = None) -> list[Any]:
        """Check the inputs against the contract, run an entry point (None: main), return its results. Inputs
        that it writes to are changed. Raises the errors of vm/errors.py.
        """
        entry = entry or self.program.entry_points[0]
        symbols = Contract(self.program, entry).bind(inputs)
        rows = zip(inputs, entry.inputs, strict=True)
        return self.run(entry.function, [*(x if row.is_written else _frozen(x) for x, row in rows), *symbols])

    def run(self, index: int, args: Sequence[Any]) -> list[Any]:
        """Run a function on its arguments as they are."""
        function = self.program.functions[index]
        if len(args) != function.n_params:
            raise ArgumentError(
                f"function {function.name!r} takes {function.n_params} arguments, {len(args)} given"
            )
        self._frames = [_Frame(index, function, args)]
        while True:
            frame = self._frames[-1]
            instruction = decode(frame.function.code, frame.next)
            frame.next += instruction.size
            self._step(frame, instruction)
            if frame.results is None:
                continue
            self._frames.pop()
            if not self._frames:
                return _whole(frame.results)
            caller = self._frames[-1]
            assert caller.call is not None
            for d, value in zip(caller.call["results"], frame.results, strict=True):
                caller.registers[d] = value

    def _step(self, frame: _Frame, i: Instruction) -> None:
        try:
            for operand in i.op.operands:
                if operand.kind == "s":
                    like = frame.registers[i[operand.like]] if operand.like else None
                    _check_tag(i.op, operand, frame.registers[i[operand.name]], like)
            self._methods[i.op.name](frame.registers, i, frame)
        except Error as error:
            if error.pc < 0:
                error.function, error.pc = frame.index, i.pc
                error.source = frame.function.source(i.pc)
            raise

    # Control ----------------------------------------------------------------------------------------

    def op_return(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Hand the values to the caller."""
        frame.results = [r[value] for value in i["values"]]

    def op_jump(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Go on at the target."""
        frame.next = i["target"]

    def op_branch(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Go on at `otherwise` unless the condition holds."""
        if not r[i["cond"]]:
            frame.next = i["otherwise"]

    def op_call(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Call a function of the program."""
        if len(self._frames) > MAX_CALLS:
            raise LimitExceeded(f"calls nest deeper than {MAX_CALLS}")
        frame.call, callee = i, self.program.functions[i["function"]]
        self._frames.append(_Frame(i["function"], callee, [r[a] for a in i["args"]]))

    def op_fail(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Stop with a message."""
        raise GuardError(self.program.strings[i["message"]])

    def op_guard(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Stop with a message unless the condition holds."""
        if not r[i["cond"]]:
            raise GuardError(self.program.strings[i["message"]])

    # Registers --------------------------------------------------------------------------------------

    def op_move(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Copy a register; tensors share their memory."""
        r[i["d"]] = r[i["a"]]

    def op_const(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Load a constant."""
        r[i["d"]] = _frozen(self.program.constants[i["value"]].value)

    def op_int(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Load an immediate."""
        r[i["d"]] = i["value"]

    def op_none(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Clear a register."""
        r[i["d"]] = None

    def op_free(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Clear registers."""
        for value in i["values"]:
            r[value] = None

    # Integers ---------------------------------------------------------------------------------------

    def _int(self, r: list[Any], i: Instruction, function: Callable[[int, int], int]) -> None:
        a, b = r[i["a"]], r[i["b"]]
        r[i["d"]] = _int64(function(a, b), f"{i.op.name} of {a} and {b}")

    def op_add(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Sum."""
        self._int(r, i, operator.add)

    def op_sub(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Difference."""
        self._int(r, i, operator.sub)

    def op_mul(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Product."""
        self._int(r, i, operator.mul)

    def op_floordiv(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Quotient, rounded towards minus infinity."""
        self._nonzero(r, i)
        self._int(r, i, operator.floordiv)

    def op_mod(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Remainder with the sign of the divisor."""
        self._nonzero(r, i)
        self._int(r, i, operator.mod)

    def _nonzero(self, r: list[Any], i: Instruction) -> None:
        a, b = r[i["a"]], r[i["b"]]
        if b == 0:
            raise DivisionByZero(f"{i.op.name} of {a} by 0")

    def op_min(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """The smaller one."""
        self._int(r, i, min)

    def op_max(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """The greater one."""
        self._int(r, i, max)

    def _compare(self, r: list[Any], i: Instruction, function: Callable[[Any, Any], bool]) -> None:
        a, b = (to_bytes(x) if isinstance(x, str) else x for x in (r[i["a"]], r[i["b"]]))
        r[i["d"]] = bool(function(a, b))

    def op_eq(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Equal."""
        self._compare(r, i, operator.eq)

    def op_ne(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Not equal."""
        self._compare(r, i, operator.ne)

    def op_lt(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Less."""
        self._compare(r, i, operator.lt)

    def op_le(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Less or equal."""
        self._compare(r, i, operator.le)

    def op_and(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Both."""
        a, b = r[i["a"]], r[i["b"]]
        r[i["d"]] = a and b

    def op_or(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Either."""
        a, b = r[i["a"]], r[i["b"]]
        r[i["d"]] = a or b

    def op_not(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """The opposite."""
        r[i["d"]] = not r[i["a"]]

    # Floats -----------------------------------------------------------------------------------------

    def _float(self, r: list[Any], i: Instruction, function: Callable[[Any, Any], Any]) -> None:
        a, b = np.float64(r[i["a"]]), np.float64(r[i["b"]])
        with np.errstate(all="ignore"):
            r[i["d"]] = float(function(a, b))

    def op_fadd(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Sum."""
        self._float(r, i, operator.add)

    def op_fsub(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Difference."""
        self._float(r, i, operator.sub)

    def op_fmul(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Product."""
        self._float(r, i, operator.mul)

    def op_fdiv(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Quotient; IEEE infinities and NaN instead of errors."""
        self._float(r, i, operator.truediv)

    def op_to_float(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Convert to float."""
        r[i["d"]] = float(r[i["a"]])

    def op_to_int(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Convert to int, truncating."""
        a = r[i["a"]]
        if not math.isfinite(a):
            raise IntegerOverflow(f"to_int of {a} leaves 64 bits")
        r[i["d"]] = _int64(int(a), f"to_int of {a}")

    # Tensors ----------------------------------------------------------------------------------------

    def _sizes(self, r: list[Any], i: Instruction) -> tuple[int, ...]:
        """Return the sizes that registers hold. Raises KindError or ShapeError for the first that is none."""
        sizes: list[int] = []
        for size in _elements(r, i, "sizes"):
            sizes.append(size)
            if size < 0:
                raise ShapeError(f"size {size} must be >= 0")
        n_elements(sizes)
        return tuple(sizes)

    def op_alloc(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Make a tensor of zeros."""
        sizes, dtype = self._sizes(r, i), DTYPE_NAMES[i["dtype"]]
        n_bytes = n_elements(sizes) * DTYPES[dtype][1]
        if n_bytes > MAX_BYTES:
            raise ShapeError(f"alloc: {dtype}{list(sizes)} is too many bytes")
        r[i["d"]] = np.zeros(sizes, NUMPY_DTYPES[dtype])

    def op_view(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """The same memory with other sizes."""
        a, sizes = r[i["a"]], self._sizes(r, i)
        if n_elements(sizes) != a.size:
            raise ShapeError(f"view: sizes {list(sizes)} have not the {a.size} elements of {list(a.shape)}")
        r[i["d"]] = a.reshape(sizes)

    def op_part(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Some elements, where they lie."""
        a, begin, sizes = r[i["a"]], r[i["begin"]], self._sizes(r, i)
        n = n_elements(sizes)
        if not 0 <= begin <= a.size - n:
            raise IndexOutOfRange(f"part: {n} elements from {begin} on; the tensor has {a.size}")
        r[i["d"]] = a.reshape(-1)[begin : begin + n].reshape(sizes)
        r[i["d"]].flags.writeable = False

    def op_dim(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """A tensor's size along an axis."""
        a, axis = r[i["a"]], i["axis"]
        if axis >= a.ndim:
            raise IndexOutOfRange(f"dim: axis {axis} of a tensor of rank {a.ndim}")
        r[i["d"]] = a.shape[axis]

    def op_item(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """A tensor's element at some indices, or its only one."""
        found = self._element(r, i).reshape(1)
        if NUMPY_NAMES[found.dtype] == "bf16":
            found = (found.astype(np.uint32) << 16).view(np.float32)
        r[i["d"]] = found[0].item()

    def _element(self, r: list[Any], i: Instruction) -> Any:
        """Return the part of one element that `item` reads."""
        a = r[i["a"]]
        if not i["at"]:
            if a.size != 1:
                raise ShapeError(f"item: a tensor of {a.size} elements; it must have 1")
            return a
        if len(i["at"]) != a.ndim:
            raise IndexOutOfRange(f"item: {len(i['at'])} indices of a tensor of rank {a.ndim}")
        places: list[slice] = []
        for at, size in zip(_elements(r, i, "at"), a.shape, strict=True):
            if not 0 <= at < size:
                raise IndexOutOfRange(
                    f"item: index {at} is out of range for axis {len(places)}, of size {size}"
                )
            places.append(slice(at, at + 1))
        return a[tuple(places)]

    def op_scalar(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """A 0-d tensor of a value: ints wrap, floats are truncated to ints (NaN and beyond int64: fails), as
        casts do.
        """
        a, dtype = r[i["a"]], DTYPE_NAMES[i["dtype"]]
        holder = NUMPY_DTYPES[dtype]
        with np.errstate(all="ignore"):
            if dtype == "bf16":
                made = np.array(bf16_bits(float(np.float32(a))), holder)
            elif dtype == "bool" or holder.kind == "f":
                made = np.array(a, np.float64 if isinstance(a, float) else None).astype(holder)
            else:
                if isinstance(a, float) and not math.isfinite(a):
                    raise IntegerOverflow(f"scalar: {a} is no integer")
                made = np.array(_int64(int(a), f"scalar of {a}"), np.int64).astype(holder)
        r[i["d"]] = made

    def op_kernel(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Launch a kernel on buffers that are checked."""
        index = i["kernel"]
        dims = tuple(_elements(r, i, "dims"))
        buffers = [r[b] for b in i["buffers"]]
        check_launch(self.program.kernels[index], dims, buffers)
        self.run_kernel(index, dims, buffers)

    def op_call_packed(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Call a host function."""
        name = self.program.strings[i["name"]]
        if name not in self.externs:
            raise ExternError(f'host function "{name}" is missing')
        results = list(self.externs[name](*(r[a] for a in i["args"])))
        if len(results) != len(i["results"]):
            raise ExternError(f'host function "{name}" gave {len(results)} results for {len(i["results"])}')
        for d, value in zip(i["results"], results, strict=True):
            r[d] = value

    def op_call_dps(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Call a host function that writes into tensors of the program's."""
        name, outputs = self.program.strings[i["name"]], list(_elements(r, i, "outputs"))
        others = list(_arrays([value for at, value in enumerate(r) if at not in i["outputs"]]))
        for index, output in enumerate(outputs):
            shared = any(_memory(output) is _memory(a) for a in [*others, *outputs[:index]])
            if shared or not output.flags.writeable:
                what = f'host function "{name}": output {index}'
                raise ExternError(f"{what} shares its memory with another value")
        if name not in self.externs:
            raise ExternError(f'host function "{name}" is missing')
        self.externs[name](*(_frozen(r[a]) for a in i["args"]), *outputs)

    def op_expect(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Stop unless a register holds a tensor of that dtype and these sizes."""
        sizes, dtype, what = self._sizes(r, i), DTYPE_NAMES[i["dtype"]], self.program.strings[i["what"]]
        wanted = f"the program was compiled for {dtype}{list(sizes)}"
        if tag_of(r[i["a"]]) != "tensor":
            raise KindError(f"{what} gave {article(tag_of(r[i['a']]))}; {wanted}")
        found = NUMPY_NAMES[r[i["a"]].dtype]
        if found != dtype:
            raise DtypeError(f"{what} gave {found}{list(r[i['a']].shape)}; {wanted}")
        if r[i["a"]].shape != sizes:
            raise ShapeError(f"{what} gave {found}{list(r[i['a']].shape)}; {wanted}")

    def op_distinct(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Whether plain values are different ones: nan is no other one."""
        items = r[i["a"]]
        for index, tag in enumerate(map(tag_of, items)):
            if tag not in ("bool", "int", "float", "str"):
                raise KindError(f"distinct: element {index} is {article(tag)}; it must be a plain value")
        found = [(tag_of(x), x) for x in items if x == x]
        r[i["d"]] = len(set(found)) == len(found)

    def op_expect_items(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Stop unless the elements of a list are of one tag; tensors, of one dtype and rank."""
        tag = next((name for name, code in TAGS.items() if code == i["tag"]), "unknown")
        for index, x in enumerate(r[i["a"]]):
            place = f'input "{self.program.strings[i["what"]]}": element {index}'
            if tag_of(x) != tag:
                raise KindError(f"{place} is {article(tag_of(x))}; it must be {article(tag)}")
            if tag == "tensor":
                found, dtype = NUMPY_NAMES[x.dtype], DTYPE_NAMES[i["dtype"]]
                if found != dtype:
                    raise DtypeError(f"{place} is {found}; it must be {dtype}: convert it first")
                if x.ndim != i["rank"]:
                    raise ShapeError(f"{place} has rank {x.ndim}; it must have rank {i['rank']}")

    # Containers -------------------------------------------------------------------------------------

    def op_list(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Make a list."""
        r[i["d"]] = _nested([r[value] for value in i["values"]])

    def op_tuple(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Make a tuple."""
        r[i["d"]] = _nested(tuple(r[value] for value in i["values"]))

    def op_dict(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Make a dict; a later value of an equal key replaces the earlier one."""
        items = [r[item] for item in i["items"]]
        keys = [_key(key, "int", "str") for key in items[::2]]
        r[i["d"]] = _nested(dict(zip(keys, items[1::2], strict=True)))

    def op_get(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """An element."""
        a, key = r[i["a"]], r[i["key"]]
        if isinstance(a, dict):
            if _key(key, "int", "str") not in a:
                raise KeyMissing(f"get: {key!r} is not in the dict")
        elif not 0 <= _key(key, "int") < len(a):
            raise IndexOutOfRange(f"get: {key} is not in the {tag_of(a)} of {len(a)} elements")
        r[i["d"]] = a[key]

    def op_len(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Number of elements; of a str, its bytes."""
        a = r[i["a"]]
        r[i["d"]] = len(to_bytes(a) if isinstance(a, str) else a)

    def op_append(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """A list with one more element; the old one stays as it was."""
        r[i["d"]] = _nested([*r[i["a"]], r[i["value"]]])

    def op_set(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """A list with another element at an index; the old one stays as it was."""
        items, index = list(r[i["a"]]), r[i["index"]]
        value = _nested([r[i["value"]]])[0]
        if not 0 <= index < len(items):
            raise IndexOutOfRange(f"set: {index} is not in the list of {len(items)} elements")
        items[index] = value
        r[i["d"]] = items

    def op_slice(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """The elements from one index to before another one."""
        items, begin, end = r[i["a"]], r[i["begin"]], r[i["end"]]
        if not 0 <= begin <= end <= len(items):
            raise IndexOutOfRange(f"slice: {begin} .. {end} is not in the list of {len(items)} elements")
        r[i["d"]] = items[begin:end]

    # Strings ----------------------------------------------------------------------------------------

    def op_concat(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """One string after the other."""
        made = to_bytes(r[i["a"]]) + to_bytes(r[i["b"]])
        check_size(len(made))
        r[i["d"]] = to_text(made)

    def op_format(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """A bool, int or float as TorchScript writes it."""
        r[i["d"]] = written(r[i["a"]])

    def op_text(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """A function of strings."""
        name = list(STRING_FUNCTIONS)[i["function"]]
        r[i["d"]] = _nested(call_string_function(name, [r[a] for a in i["args"]]))

    def op_require(self, r: list[Any], i: Instruction, frame: _Frame) -> None:
        """Stop with a message that was computed unless the condition holds."""
        if not r[i["cond"]]:
            raise GuardError(r[i["message"]])


def _whole(results: list[Any]) -> list[Any]:
    """Return a call's results. Raises KindError for a string that was cut within a character."""
    if not is_whole(results):
        raise KindError("a result is a str that is no UTF-8: the program cut it within a character")
    return results


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(_depth, value), default=0) if isinstance(value, (list, tuple)) else 0


def _nested(value: Any) -> Any:
    if _depth(value) > MAX_NESTING:
        raise LimitExceeded(f"containers nest deeper than {MAX_NESTING}")
    return value


def check_launch(kernel: Kernel, dims: tuple[int, ...], buffers: list[Any]) -> None:
    """Check a launch against the kernel's signature. Raises KernelError, KindError."""
    what = f'kernel "{kernel.label}"'
    if min(dims, default=0) < 0:
        raise KernelError(f"{what}: sizes {list(dims)} must be >= 0")
    for index, (buffer, array) in enumerate(zip(kernel.buffers, buffers, strict=True)):
        place = f"{what}: buffer {index}"
        if tag_of(array) != "tensor":
            raise KindError(f"{place} is {article(tag_of(array))}; it takes a tensor")
        if NUMPY_NAMES[array.dtype] != buffer.dtype:
            raise KernelError(f"{place} is {NUMPY_NAMES[array.dtype]}; it takes {buffer.dtype}")
        wanted = math.prod([dims[size.index] if isinstance(size, Dim) else size for size in buffer.shape])
        if array.size != wanted:
            raise KernelError(f"{place} has {array.size} elements; at these sizes it takes {wanted}")
        if buffer.is_output and not array.flags.writeable:
            raise KernelError(f"{place} is written, but it is an input or a constant; write into an alloc")
