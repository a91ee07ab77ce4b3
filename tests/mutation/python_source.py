"""The mutants of a Python file: comparisons, arithmetic, constants, conditions turned round, statements left
out. What only people read (docstrings, messages, annotations, `__repr__`) has none."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

from .mutant import ARITHMETIC, COMPARISONS, Mutant

_WORDS = {"in": "not in", "not in": "in", "is": "is not", "is not": "is", "and": "or", "or": "and"}
_BETWEEN = {**COMPARISONS, **ARITHMETIC, **_WORDS, "**": "*"}
_OPERATOR = re.compile(r"not\s+in|is\s+not|[a-z]+|<<|>>|<=|>=|==|!=|//|\*\*|[-+*/%&|<>@^]")
_FOR_PEOPLE = {"__repr__", "__str__"}
_LOGGERS = {"_LOG", "logging", "warnings"}


def mutants_of(path: Path, source: bytes) -> list[Mutant]:
    """Return all mutants of a file."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return finder.found


class _Finder(ast.NodeVisitor):
    def __init__(self, path: Path, source: bytes) -> None:
        self.path = path
        self.source = source
        self.found: list[Mutant] = []
        lengths = [len(line) for line in source.splitlines(keepends=True)]
        self._starts = [0, *(sum(lengths[: i + 1]) for i in range(len(lengths)))]

    # What is left out -----------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name not in _FOR_PEOPLE:
            for part in (*node.args.defaults, *node.args.kw_defaults, *node.body):
                if part is not None:
                    self.visit(part)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    # What is changed ------------------------------------------------------------------------------

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace(node, "pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and not self._text(node).startswith(tuple(_LOGGERS)):
            self._replace(node, "pass")
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" not in self._text(node.test):
            self._negate(node.test)
            self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace(node, f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, right in pairwise((node.left, *node.comparators)):
            self._between(left, right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._between(*node.values[:2])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not any(_is_text(side) for side in (node.left, node.right)):
            self._between(node.left, node.right)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, int):
            self._replace(node, str(node.value + 1))

    def _between(self, left: ast.expr, right: ast.expr) -> None:
        """Change the operator between two operands, which brackets may surround."""
        begin, end = self._end(left), self._begin(right)
        text = self.source[begin:end].decode()
        match = _OPERATOR.search(text)
        new = match and _BETWEEN.get(" ".join(match.group().split()))
        if match and new:
            self._add(left.end_lineno or 0, begin + len(text[: match.start()].encode()), match.group(), new)

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare):  # comparisons have mutants of their own
            self._replace(test, f"(not ({self._text(test)}))")

    def _replace(self, node: ast.stmt | ast.expr, new: str) -> None:
        self._add(node.lineno, self._begin(node), self._text(node), new)

    def _add(self, line: int, begin: int, old: str, new: str) -> None:
        self.found.append(Mutant(self.path, line, begin, old, new))

    def _begin(self, node: ast.stmt | ast.expr) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.stmt | ast.expr) -> int:
        return self._starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    def _text(self, node: ast.stmt | ast.expr) -> str:
        return self.source[self._begin(node) : self._end(node)].decode()


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
