"""LLVM IR as text, written instruction by instruction in SSA form.

`Function` appends instructions and returns `Value`s. Its instructions are defined in its base classes, each
of which extends the previous one: `Instructions`, `Integers` (arithmetic that folds Python ints, so that one
generator serves every tier), and `ControlFlow`. No LLVM mid-level pass runs afterwards: what is written here
is what the back end sees.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

from .control_flow import ControlFlow
from .values import Bounded, Int, Value, least, most, multiple_of

#: What generators take from here, with the values and sizes that a function's methods take and return.
__all__ = [
    "Bounded", "Function", "Int", "Machine", "Value", "least", "module_text", "most", "multiple_of",
]  # fmt: skip

MAX_WRITTEN = 2048  # parts whose text is remembered, some 20 KB each
_WRITTEN: dict[tuple[Hashable, ...], Function] = {}


class Machine(NamedTuple):
    """What generators know of a target: the bytes of all its vector registers together, its extension,
    the features that multiply bytes and bf16, `quad_cost` and `saturates` (see `Target`)."""

    register_bytes: int
    extension: str
    dot: str
    pairs: str
    quad_cost: int
    saturates: bool


class Function(ControlFlow):
    """Text of one LLVM function `define void @name(params)`, or of `result`'s type where it has one.

    `parts`: functions that it calls, by name. A part's code depends on its text alone, so it is compiled once
    and linked into every kernel that has the same part. `register_bytes`: of all the target's vector
    registers together. `extension`, `dot`, `pairs`, `quad_cost`, `saturates`: of the target (see `Target`).
    `variants`: the names of a family's ways to compute that the kernel has code of (see `takes`).
    """

    def __init__(
        self,
        name: str,
        params: Sequence[tuple[str, str]],
        register_bytes: int = 2048,
        extension: str = "",
        dot: str = "",
        pairs: str = "",
        quad_cost: int = 0,
        saturates: bool = False,
    ) -> None:
        super().__init__()
        self.name = name
        self.machine = Machine(register_bytes, extension, dot, pairs, quad_cost, saturates)
        self.params = [Value(t, f"%{n}") for t, n in params]
        self.parts: dict[str, Function] = {}
        self.result: Value | None = None
        self.variants: dict[str, None] = {}  # a part's are its kernel's
        self.digest = b""  # of the finished function, once requested

    @property
    def register_bytes(self) -> int:
        """The bytes of all the target's vector registers together."""
        return self.machine.register_bytes

    @property
    def has_tiles(self) -> bool:
        """Whether the target has AMX."""
        return self.machine.extension == "amx"

    @property
    def dot(self) -> str:
        """The feature by which the target multiplies bytes, "" for none (see `Target`)."""
        return self.machine.dot

    @property
    def pairs(self) -> str:
        """The feature by which the target multiplies bf16, "" for none (see `Target`)."""
        return self.machine.pairs

    @property
    def quad_cost(self) -> int:
        """For how many products of i16 one of bytes takes the time, 0: unknown (see `Target`)."""
        return self.machine.quad_cost

    @property
    def saturates(self) -> bool:
        """Whether floats out of range become the nearest integers (see `Target`)."""
        return self.machine.saturates

    def takes(self, variant: str) -> None:
        """Note that the kernel has code of `variant`, which `inspect` and `explain` show and tests assert."""
        self.variants[variant] = None

    def open_part(self, name: str, *args: Value) -> Function:
        """Return a new part, a function of parameters like `args`, whose body is still to be written."""
        part = Function(name, [], *self.machine)
        part.variants = self.variants
        for arg in args:
            part.parameter(arg)
        self.parts[name] = part
        return part

    def parameter(self, like: Value) -> Value:
        """Add a parameter and return it, with the known facts of `like`."""
        self.params.append(replace(like, name=f"%p{len(self.params)}"))
        return self.params[-1]

    def call_part(
        self,
        name: str,
        define: Callable[[Function], None] | None,
        *args: Value,
        key: tuple[Hashable, ...] | None = None,
    ) -> Value:
        """Call the part of that name and return its result; `define` (None: it is open) emits its body when
        it is first called.

        `key`, if given, says all that the body depends on: it is then written once for all functions.
        """
        if name not in self.parts:
            assert define is not None
            whole = (name, key, tuple(arg.type for arg in args), self.machine)
            written = None if key is None else _WRITTEN.get(whole)
            if written is not None:
                self.parts[name] = written
            else:
                define(self.open_part(name, *args))
                if key is not None and len(_WRITTEN) < MAX_WRITTEN:
                    _WRITTEN[whole] = self.parts[name]
        result = self.parts[name].result
        text = f"@{name}({', '.join(f'{a.type} {a.name}' for a in args)})"
        if result is not None:
            return self.op(result.type, f"call {result.type} {text}")
        self.do(f"call void {text}")
        return Value("void", "")

    def _signature(self) -> str:
        type = self.result.type if self.result else "void"
        return f"{type} @{self.name}({', '.join(f'{p.type} {p.name}' for p in self.params)})"

    def text(self) -> str:
        """Return the finished function with its declarations, its parts declared only."""
        return module_text([self])

    def whole_text(self) -> str:
        """Return the function with its declarations and its parts."""
        return module_text(list(self.functions().values()))

    def functions(self) -> dict[str, Function]:
        """Return the parts, those of parts before their callers, and the function itself, by name."""
        found: dict[str, Function] = {}
        for part in self.parts.values():
            for name, f in part.functions().items():
                assert found.setdefault(name, f).lines == f.lines, f"two parts named {name}"
        return {**found, self.name: self}

    def definition(self) -> list[str]:
        """Return the lines of the definition, in a separate section: functions are linked one by one."""
        head = f'define {self._signature()} #0 section ".text.{self.name}" {{'
        result = f"{self.result.type} {self.result.name}" if self.result else "void"
        loads = self.pool.loads() if self.pool else ()
        return [head, "entry:", *loads, *self.lines, f"  ret {result}", "}"]


def module_text(functions: Sequence[Function]) -> str:
    """Return the text of a module of these functions; their parts that are not among them are declared.

    Constants of a vector's size may be anywhere; the linker takes larger ones by their sections.
    """
    names = {f.name for f in functions}
    declared = {text for f in functions for text in f.declarations.values()}
    assert all("section" in text for text in declared if text.startswith("@")), "a table needs a section"
    declared |= {text for f in functions if f.pool for text in f.pool.declarations()}
    declared |= {
        f"declare {part._signature()}"
        for f in functions
        for part in f.parts.values()
        if part.name not in names
    }
    lines = sorted(declared)
    for f in functions:
        lines += f.definition()
    return "\n".join(lines) + "\n"
