"""The text of LLVM instructions, in SSA form: what writes them one by one hands out `Value`s."""

from __future__ import annotations

from .values import Value


class Instructions:
    """Instructions in the order in which they are written. `block`: the one that they go to.

    `declarations`: the text that declares each function and metadata that they name.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declarations: dict[str, str] = {}
        self.block = "entry"
        self._n = 0  # of names

    def op(self, type: str, text: str) -> Value:
        """Append `%new = text`; return it as a Value of `type`."""
        self._n += 1
        value = Value(type, f"%t{self._n}")
        self.lines.append(f"  {value.name} = {text}")
        return value

    def do(self, text: str) -> None:
        """Append an instruction without result."""
        self.lines.append(f"  {text}")

    def label(self, hint: str) -> str:
        """Return a new block name."""
        self._n += 1
        return f"{hint}.{self._n}"

    def start(self, block: str) -> None:
        """Begin block `block`; the previous one must have ended in a branch."""
        self.lines.append(f"{block}:")
        self.block = block

    def call(self, type: str, name: str, *args: Value, attrs: str = "") -> Value:
        """Call a function or intrinsic by name, declaring it."""
        self.declarations[name] = f"declare {type} @{name}({', '.join(a.type for a in args)})"
        text = f"call {type} @{name}({', '.join(f'{a.type} {a.name}' for a in args)}){attrs}"
        if type == "void":
            self.do(text)
            return Value("void", "")
        return self.op(type, text)

    def _fresh(self, type: str, letter: str) -> Value:
        self._n += 1
        return Value(type, f"%{letter}{self._n}")
