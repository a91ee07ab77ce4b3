"""An archive as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...ir.errors import ArchiveError
from .code import Code, read_code
from .container import Container
from .ranges import read_ranges
from .records import Record, read_pickle
from .tensors import StoredTensor, Tensors


@dataclass(frozen=True)
class Archive:
    """A program of torch.jit.save as inert data. `root`: its module; `constants`: the tensors and other
    values that the code calls CONSTANTS.c0, c1 ...; `ranges`: the source of its code, by member."""

    version: int
    root: Record
    constants: tuple[Any, ...]
    code: Code
    ranges: dict[str, Any]

    def tensors(self) -> dict[str, StoredTensor]:
        """Return every tensor by its attribute's path, such as "encoder.0.weight"."""
        return dict(_tensors(self.root, ""))


def read_archive(path: str | os.PathLike[str]) -> Archive:
    """Return the archive in a file. Nothing in it is run: neither torch nor pickle is used. Raises
    ArchiveError for anything that PyTorch would not write, OSError if the file cannot be opened."""
    with Container(path) as container:
        member = next((name for name in (".data/version", "version") if name in container.members), None)
        version = container.text(member).strip() if member is not None else ""
        if not (version.isascii() and version.isdigit() and len(version) < 5):
            raise ArchiveError("the archive does not state its version: it is not a file of torch.jit.save")
        if "byteorder" in container.members and container.text("byteorder") != "little":
            raise ArchiveError("the archive's numbers are big-endian, which is not read")
        root, constants = _value(container, "data"), ()
        if not isinstance(root, Record):
            raise ArchiveError("data.pkl holds no module: it is not a file of torch.jit.save")
        if "constants.pkl" in container.members:
            constants = _value(container, "constants")
        if not isinstance(constants, tuple):
            raise ArchiveError("constants.pkl holds no tuple of constants")
        code = read_code(container)
        ranges = read_ranges(container, code)
    if root.class_name not in code.classes:
        raise ArchiveError(f"the archive has no code of its module's class {root.class_name[:200]}")
    return Archive(int(version), root, constants, code, ranges)


def _value(container: Container, name: str) -> Any:
    rebuild = Tensors(container, name).rebuild
    return read_pickle(container.read(f"{name}.pkl"), f"{name}.pkl", rebuild)


def _tensors(x: Any, path: str) -> Iterator[tuple[str, StoredTensor]]:
    if isinstance(x, StoredTensor):
        yield path, x
    children = x.attributes if isinstance(x, Record) else x
    if isinstance(children, list | tuple):
        children = dict(enumerate(children))
    if isinstance(children, dict):
        for name, child in children.items():
            yield from _tensors(child, f"{path}.{name}" if path else str(name))
