"""The source text of an archive: serialised TorchScript uses a subset of Python's syntax. It is parsed, never
compiled or run."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from ...ir.errors import ArchiveError
from .container import Container
from .nesting import check_nesting

MAX_CODE = 32 << 20  # bytes of all files together

_EXPRESSIONS = (
    ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Call, ast.keyword, ast.Tuple, ast.List,
    ast.Dict, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Starred, ast.Slice,
    ast.ListComp, ast.comprehension, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
_STATEMENTS = (
    ast.Module, ast.ClassDef, ast.FunctionDef, ast.arguments, ast.arg, ast.Assign,
    ast.AnnAssign, ast.AugAssign, ast.Expr, ast.If, ast.While, ast.For, ast.With, ast.withitem,
    ast.Return, ast.Pass, ast.Break,
    ast.Continue,
)  # fmt: skip


@dataclass(frozen=True)
class Class:
    """A class: its base ("Module", "NamedTuple", "Enum", ""), its attributes' types as they are written, its
    methods, and the values that its text gives: of constants, of an Enum's members."""

    base: str
    attributes: dict[str, str]
    methods: dict[str, ast.FunctionDef]
    values: tuple[ast.expr, ...] = ()


@dataclass
class Code:
    """All classes and functions by their qualified names, such as __torch__.torch.nn.functional.relu."""

    classes: dict[str, Class] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)  # by member


def read_code(container: Container) -> Code:
    """Return the code of an archive. Raises ArchiveError with the line."""
    code, total = Code(), 0
    for path in container.members:
        if path.startswith("code/") and path.endswith(".py"):
            text = container.text(path)
            total += len(text)
            if total > MAX_CODE:
                raise ArchiveError(f"the archive's code has more than {MAX_CODE:,} characters")
            _add(code, _parsed(text, path), path)
            code.texts[path] = text
    return code


def _parsed(text: str, path: str) -> ast.Module:
    check_nesting(text, path)
    try:
        module = ast.parse(text, path)
    except SyntaxError as error:
        raise ArchiveError(f"the code is not valid: {error.msg} ({path}:{error.lineno})") from None
    except (RecursionError, MemoryError, ValueError):
        raise ArchiveError(f"{path} is nested too deep to be parsed") from None
    for node in ast.walk(module):
        if not isinstance(node, _EXPRESSIONS + _STATEMENTS):
            line = getattr(node, "lineno", 1)
            raise ArchiveError(f"{type(node).__name__} is not part of serialised TorchScript ({path}:{line})")
    return module


def _add(code: Code, module: ast.Module, path: str) -> None:
    prefix = path.removeprefix("code/").removesuffix(".py").replace("/", ".")
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            name = f"{prefix}.{node.name}"
            is_new, code.classes[name] = name not in code.classes, _class(node, path)
        elif isinstance(node, ast.FunctionDef):
            name = f"{prefix}.{node.name}"
            is_new, code.functions[name] = name not in code.functions, node
        elif isinstance(node, ast.Assign):  # op_version_set = 1 of old archives
            continue
        else:
            raise ArchiveError(f"a file of code holds more than classes and functions ({path}:{node.lineno})")
        if not is_new:
            raise ArchiveError(f"{name} is defined twice ({path}:{node.lineno})")


def _class(node: ast.ClassDef, path: str) -> Class:
    attributes: dict[str, str] = {}
    methods: dict[str, ast.FunctionDef] = {}
    for item in node.body:
        match item:
            case ast.FunctionDef(name=name):
                methods[name] = item
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind):
                attributes[name] = ast.unparse(kind)
            case ast.Assign(
                targets=[ast.Subscript(value=ast.Name("__annotations__"), slice=ast.Constant(name))]
            ):
                attributes[str(name)] = ast.unparse(item.value)
            case ast.Assign() | ast.Pass():  # __parameters__, __buffers__, members of an Enum
                continue
            case _:
                raise ArchiveError(f"a class holds a {type(item).__name__} ({path}:{item.lineno})")
    base = ast.unparse(node.bases[0]) if node.bases else ""
    values = (item.value for item in node.body if isinstance(item, ast.Assign | ast.AnnAssign))
    return Class(base, attributes, methods, tuple(value for value in values if value is not None))
