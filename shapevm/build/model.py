"""Models of the command line: a .pt2 file, a TorchScript file, an .onnx file, a graph's text, or a function
in a Python file or module that makes a model."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from ..calls.checks import MODEL_SUFFIXES, check_file
from ..vm.errors import ArgumentError, Error
from ..vm.spelling import unknown_name
from .options import check_options

_PACKAGE = str(Path(__file__).parents[1])
MAX_SAID = 300  # characters of an error message that are shown
_TYPE = re.compile(r"([^=]+)=(\w+)\[([\w, ]*)\]")
#: Keys that the function may return: arguments of `shapevm.compile`.
KEYS = ("model", "args", "kwargs", "dynamic_shapes", "inputs", "optional_examples", "options")


def load_model(text: str, inputs: Sequence[str] = ()) -> dict[str, Any]:
    """Return the arguments of `shapevm.compile` that `text` names: FILE.pt2, a TorchScript file such as
    FILE.pt, FILE.onnx, FILE.svmir, FILE.py:NAME or MODULE:NAME. `inputs`: types of inputs in the command
    line's form, such as "x=f32[batch, 16]".

    Raises ArgumentError for an unreadable input type, for a missing file, module or function, and if the
    function raises an error or returns something else.
    """
    said = {"inputs": read_types(inputs)} if inputs else {}
    if Path(text).suffix in MODEL_SUFFIXES:
        check_file(text)
        return {"model": text, **said}
    place, _, name = text.rpartition(":")
    if not place:
        if Path(text).suffix:
            check_file(text)
        raise ArgumentError(
            f"model {text!r} is none of FILE.pt2, FILE.pt, FILE.onnx, FILE.svmir, FILE.py:NAME, MODULE:NAME"
        )
    with _of_user(text):
        module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    factory = getattr(module, name, None)
    if not callable(factory):
        raise ArgumentError(f"{place} has no function {name!r}")
    with _of_user(text):
        made = factory()
    if not isinstance(made, dict) or "model" not in made:
        raise ArgumentError(f"{text} returned {made!r:.60}; it must return a dict with at least 'model'")
    for key in made:
        if key not in KEYS:
            raise unknown_name(f"{text} returned a dict, whose key", key, KEYS)
    check_options(made.get("options"))
    return {**made, **said}


@contextmanager
def _of_user(text: str) -> Iterator[None]:
    """Raise ArgumentError for an error of the user's code, which `text` names, with its source line."""
    try:
        yield
    except Error:
        raise
    except SyntaxError as error:
        where = f"line {error.lineno} of {error.filename}" if error.lineno else text.partition(":")[0]
        raise ArgumentError(f"{text} is no Python: {error.msg} in {where}; mend the file") from None
    except ModuleNotFoundError as error:
        raise ArgumentError(
            f"{text} imports {error.name}{_place(error)}, which is not installed here: install its package "
            f"for {sys.executable}"
        ) from error
    except Exception as error:
        said = " ".join(str(error).split())
        raise ArgumentError(
            f"{text} raised {type(error).__name__}{_place(error)}{': ' if said else ''}{said[:MAX_SAID]}; "
            "mend the function, which returns the arguments of shapevm.compile and takes none"
        ) from error


def _place(error: BaseException) -> str:
    """Return the last source line of an error that is outside this package and installed ones."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        f for f in frames if not f.filename.startswith((_PACKAGE, "<")) and "site-packages" not in f.filename
    ]
    return f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""


def read_types(texts: Sequence[str]) -> dict[str, Any]:
    """Return inputs in the form of `shapevm.build.inputs` from texts such as "x=f32[batch, 16]"."""
    found: dict[str, Any] = {}
    for text in texts:
        match = _TYPE.fullmatch(text)
        if match is None:
            raise ArgumentError(
                f'input {text!r} must look like "x=f32[batch, 16]": a name, a dtype and sizes'
            )
        name, dtype, sizes = match.groups()
        dims = [size.strip() for size in sizes.split(",") if size.strip()]
        found[name] = tuple(int(size) if size.isdigit() else size for size in dims), dtype
    return found


def _load_module(name: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise ArgumentError(f"there is no module {name!r}") from None
        raise


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ArgumentError(f"{path} does not exist")
    sys.path.insert(0, str(path.parent))
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_of_the_model"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
