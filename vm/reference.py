"""The reference interpreter: the executable definition of the instructions, one method per opcode.

Control, registers and calls are defined here, other instructions in `reference_scalars`, `reference_tensors`
and `reference_containers`.

Tensors are contiguous numpy arrays of NUMPY_DTYPES (bf16 as uint16); inputs and constants are read-only
arrays, and so are views of them. Kernels are run by `run_kernel(kernel index, dims, buffers)`, host functions
by `externs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .arrays import NUMPY_NAMES
from .codes import DEFAULTS
from .contract import Contract, tag_of
from .errors import ArgumentError, Error, ExternError, GuardError, KernelError, KindError, LimitExceeded
from .instruction import Instruction, decode
from .isa import article
from .program import Dim, EntryPoint, Kernel, Program
from .reference_checks import check_tag, elements
from .reference_containers import Containers
from .reference_frame import Frame
from .reference_scalars import Scalars
from .reference_tensors import Tensors
from .string_functions import is_whole
from .verify import verify

RunKernel = Callable[[int, tuple[int, ...], list[Any]], None]
Array = np.ndarray[Any, Any]
MAX_CALLS = DEFAULTS["CALL_DEPTH"][0]


def frozen(value: Any) -> Any:
    """Return `value` with its arrays as read-only views of the same memory."""
    if isinstance(value, np.ndarray):
        view = np.require(value, requirements="C").view()
        view.flags.writeable = False
        return view
    if isinstance(value, (list, tuple)):
        return type(value)(map(frozen, value))
    return {key: frozen(item) for key, item in value.items()} if isinstance(value, dict) else value


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


class Reference(Scalars, Tensors, Containers):
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
        self._frames: list[Frame] = []  # of the nested calls
        self._methods = {name[3:]: getattr(self, name) for name in dir(self) if name.startswith("op_")}

    def call(self, inputs: Sequence[Any], entry: EntryPoint | None = None) -> list[Any]:
        """Check the inputs against the contract, run an entry point (None: main), return its results. Inputs
        that it writes to are changed. Raises the errors of vm/errors.py.
        """
        entry = entry or self.program.entry_points[0]
        symbols = Contract(self.program, entry).bind(inputs)
        rows = zip(inputs, entry.inputs, strict=True)
        return self.run(entry.function, [*(x if row.is_written else frozen(x) for x, row in rows), *symbols])

    def run(self, index: int, args: Sequence[Any]) -> list[Any]:
        """Run a function on its arguments without checks."""
        function = self.program.functions[index]
        if len(args) != function.n_params:
            raise ArgumentError(
                f"function {function.name!r} takes {function.n_params} arguments, {len(args)} given"
            )
        self._frames = [Frame(index, function, args)]
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

    def _step(self, frame: Frame, i: Instruction) -> None:
        try:
            for operand in i.op.operands:
                if operand.kind == "s":
                    like = frame.registers[i[operand.like]] if operand.like else None
                    check_tag(i.op, operand, frame.registers[i[operand.name]], like)
            self._methods[i.op.name](frame.registers, i, frame)
        except Error as error:
            if error.pc < 0:
                error.function, error.pc = frame.index, i.pc
                error.source = frame.function.source(i.pc)
            raise

    # Control ----------------------------------------------------------------------------------------

    def op_return(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Return the values to the caller."""
        frame.results = [r[value] for value in i["values"]]

    def op_jump(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Continue at the target."""
        frame.next = i["target"]

    def op_branch(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Continue at `otherwise` unless the condition holds."""
        if not r[i["cond"]]:
            frame.next = i["otherwise"]

    def op_call(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Call a function of the program."""
        if len(self._frames) > MAX_CALLS:
            raise LimitExceeded(f"calls nest deeper than {MAX_CALLS}")
        frame.call, callee = i, self.program.functions[i["function"]]
        self._frames.append(Frame(i["function"], callee, [r[a] for a in i["args"]]))

    def op_fail(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Stop with a message."""
        raise GuardError(self.program.strings[i["message"]])

    def op_guard(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Stop with a message unless the condition holds."""
        if not r[i["cond"]]:
            raise GuardError(self.program.strings[i["message"]])

    def op_require(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Stop with a computed message unless the condition holds."""
        if not r[i["cond"]]:
            raise GuardError(r[i["message"]])

    # Registers --------------------------------------------------------------------------------------

    def op_move(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Copy a register; tensors share their memory."""
        r[i["d"]] = r[i["a"]]

    def op_const(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Load a constant."""
        r[i["d"]] = frozen(self.program.constants[i["value"]].value)

    def op_int(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Load an immediate."""
        r[i["d"]] = i["value"]

    def op_none(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Clear a register."""
        r[i["d"]] = None

    def op_free(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Clear registers."""
        for value in i["values"]:
            r[value] = None

    # Calls ------------------------------------------------------------------------------------------

    def op_kernel(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Launch a kernel on checked buffers."""
        index = i["kernel"]
        dims = tuple(elements(r, i, "dims"))
        buffers = [r[b] for b in i["buffers"]]
        check_launch(self.program.kernels[index], dims, buffers)
        self.run_kernel(index, dims, buffers)

    def op_call_packed(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Call a host function."""
        name = self.program.strings[i["name"]]
        if name not in self.externs:
            raise ExternError(f'host function "{name}" is missing')
        results = list(self.externs[name](*(r[a] for a in i["args"])))
        if len(results) != len(i["results"]):
            raise ExternError(f'host function "{name}" gave {len(results)} results for {len(i["results"])}')
        for d, value in zip(i["results"], results, strict=True):
            r[d] = value

    def op_call_dps(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Call a host function that writes into the program's tensors."""
        name, outputs = self.program.strings[i["name"]], list(elements(r, i, "outputs"))
        others = list(_arrays([value for at, value in enumerate(r) if at not in i["outputs"]]))
        for index, output in enumerate(outputs):
            shared = any(_memory(output) is _memory(a) for a in [*others, *outputs[:index]])
            if shared or not output.flags.writeable:
                what = f'host function "{name}": output {index}'
                raise ExternError(f"{what} shares its memory with another value")
        if name not in self.externs:
            raise ExternError(f'host function "{name}" is missing')
        self.externs[name](*(frozen(r[a]) for a in i["args"]), *outputs)


def _whole(results: list[Any]) -> list[Any]:
    """Return a call's results. Raises KindError for a string that was cut within a character."""
    if not is_whole(results):
        raise KindError("a result is a str that is no UTF-8: the program cut it within a character")
    return results


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
