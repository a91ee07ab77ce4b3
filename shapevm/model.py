"""What the command line compiles: a .pt2 file, a TorchScript file, a graph's text, or a function in a Python
file or module that makes a model."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from .argument_check import MODEL_SUFFIXES, check_file
from .options import check_options
from .settings import unknown_name
from .vm.errors import ArgumentError

_TYPE = re.compile(r"([^=]+)=(\w+)\[([\w, ]*)\]")
#: What the function may return, as `shapevm.compile` takes it.
KEYS = ("model", "args", "kwargs", "dynamic_shapes", "inputs", "optional_examples", "options")


def load_model(text: str, inputs: Sequence[str] = ()) -> dict[str, Any]:
    """Return the arguments of `shapevm.compile` that `text` names: FILE.pt2, a TorchScript file such as
    FILE.pt, FILE.svmir, FILE.py:NAME or MODULE:NAME. `inputs`: types of inputs as the command line gives
    them, such as "x=f32[batch, 16]".

    Raises ArgumentError for an input's type that cannot be read, and where there is no such file, module
    or function, or where it returns something else; the errors of the user's own code pass through.
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
            f"model {text!r} is neither FILE.pt2 nor FILE.pt nor FILE.svmir nor FILE.py:NAME nor MODULE:NAME"
        )
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    factory = getattr(module, name, None)
    if not callable(factory):
        raise ArgumentError(f"{place} has no function {name!r}")
    made = factory()
    if not isinstance(made, dict) or "model" not in made:
        raise ArgumentError(f"{text} returned {made!r:.60}; it must return a dict with at least 'model'")
    for key in made:
        if key not in KEYS:
            raise unknown_name(f"{text} returned a dict, whose key", key, KEYS)
    check_options(made.get("options"))
    return {**made, **said}


def read_types(texts: Sequence[str]) -> dict[str, Any]:
    """Return inputs as `shapevm.inputs` takes them from texts such as "x=f32[batch, 16]"."""
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
