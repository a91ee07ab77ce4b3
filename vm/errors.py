"""THE table of errors of loading and running a program: code in C, exception in Python.

`vm/isa.py` writes the codes into runtime_c/include/svm_codes.h. Adding an error: one class here, then
`python -m shapevm.vm.isa`. Codes are part of the C API: append only.
"""

from __future__ import annotations

from typing import ClassVar, Final

OK: Final = 0


class Error(Exception):
    """Base of all errors of the VM. The message is one sentence.

    `function`, `pc`: the position at which the program stopped (index, word offset), -1 outside of it.
    `source`: the model's line, "" if unknown.
    """

    code: ClassVar[int] = -1
    name: ClassVar[str] = "unknown"

    def __init__(self, message: str, *, function: int = -1, pc: int = -1, source: str = "") -> None:
        super().__init__(message)
        self.function, self.pc, self.source = function, pc, source

    def __str__(self) -> str:
        message = str(self.args[0])
        return f"{message} ({self.source})" if self.source and self.source not in message else message


class ArgumentError(Error, ValueError):
    """The caller misused the API: an index out of range, a wrong number of inputs, a name that does not
    exist.
    """


class InputError(ArgumentError):
    """An input is missing, has no name, or is unknown. C has no separate code for that."""


class ArchiveError(Error, ValueError):
    """A file is no archive of torch.jit.save or torch.export.save, nor an ONNX model, or it is damaged. C has
    no code for that: it reads none."""


class FileError(Error, OSError):
    """The operating system refused a file or a mapping."""


class ArtifactError(Error, ValueError):
    """The bytes are not a well-formed artifact of this format version and instruction set."""


class VerifyError(ArtifactError):
    """The artifact is well-formed, but its program breaks a rule of the verifier."""


class TargetError(Error, RuntimeError):
    """A kernel has no machine code that this CPU runs, and there is no compiler."""


class ShapeError(Error, ValueError):
    """A size, rank or symbol value violates the program's contract or an instruction's requirement."""


class DtypeError(Error, TypeError):
    """A tensor has a dtype that the program does not accept."""


class KindError(Error, TypeError):
    """A value has a tag that an input or an instruction does not accept, such as a tensor for an int."""


class IndexOutOfRange(Error, IndexError):
    """An index is outside of the axis or container that it indexes."""


class KeyMissing(Error, KeyError):
    """A dict lacks a key."""

    __str__ = Error.__str__  # KeyError quotes its message


class IntegerOverflow(Error, OverflowError):
    """The result of int arithmetic leaves int64."""


class DivisionByZero(Error, ZeroDivisionError):
    """An int was divided by zero."""


class GuardError(Error, RuntimeError):
    """The program itself stopped: `fail`, or a `guard` that does not hold."""


class OutOfMemory(Error, MemoryError):
    """Memory could not be allocated."""


class LimitExceeded(Error, RuntimeError):
    """A call exceeded a limit: fuel, memory_max, call_depth, nesting."""


class DeadlineExceeded(Error, TimeoutError):
    """A call took longer than its timeout."""


class Cancelled(Error, RuntimeError):
    """A call was stopped from outside before it was done."""


class KernelError(Error, RuntimeError):
    """A launch was refused: its buffers or sizes do not match the kernel."""


class CompileError(Error, RuntimeError):
    """Exact code was needed and could not be compiled."""


class ExternError(Error, RuntimeError):
    """A host function is missing or failed."""


class DeviceError(Error, ValueError):
    """A tensor is not in the CPU's memory."""


class InternalError(Error, RuntimeError):
    """A defect of the runtime itself."""


#: (code, name, exception). The C constant of "shape" is SVM_ERROR_SHAPE; code 0 is SVM_OK.
TABLE: Final[tuple[tuple[int, str, type[Error]], ...]] = (
    (1, "argument", ArgumentError),
    (2, "file", FileError),
    (3, "artifact", ArtifactError),
    (4, "verify", VerifyError),
    (5, "target", TargetError),
    (6, "shape", ShapeError),
    (7, "dtype", DtypeError),
    (8, "kind", KindError),
    (9, "index", IndexOutOfRange),
    (10, "key", KeyMissing),
    (11, "overflow", IntegerOverflow),
    (12, "division", DivisionByZero),
    (13, "guard", GuardError),
    (14, "memory", OutOfMemory),
    (15, "limit", LimitExceeded),
    (16, "kernel", KernelError),
    (17, "compile", CompileError),
    (18, "extern", ExternError),
    (19, "device", DeviceError),
    (20, "internal", InternalError),
    (21, "timeout", DeadlineExceeded),
    (22, "cancelled", Cancelled),
)

PUBLIC: Final = "shapevm.errors"  # the module that tracebacks name

Error.__module__ = InputError.__module__ = ArchiveError.__module__ = PUBLIC
for _code, _name, _class in TABLE:
    _class.code, _class.name, _class.__module__ = _code, _name, PUBLIC

#: code -> exception class.
BY_CODE: Final[dict[int, type[Error]]] = {code: error for code, _, error in TABLE}
