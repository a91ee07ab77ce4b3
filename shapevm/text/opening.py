"""From a folder or an artifact to a text model."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeGuard

from ..build.compile import Given, compile_model
from ..build.options import Options
from ..program.executable import Executable
from ..program.limits import check_strategy
from ..program.opening import open_executable
from ..program.saving import write_changed
from ..vm.errors import ArgumentError, ArtifactError
from .artifact import text_of, with_text
from .settings import KINDS, Kind, Settings
from .tokens import Tokenizer

if TYPE_CHECKING:
    from ..vm.codes import Strategy
    from .folder import Folder

MISSING = "compiling a text model needs torch and transformers: pip install torch transformers"
IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"
EXAMPLE = (2, 7)  # sizes of the inputs of the export


@dataclass(frozen=True)
class Opened:
    """A text model's program, settings and tokenizer."""

    executable: Executable
    settings: Settings
    tokenizer: Tokenizer

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of them to one file. Raises FileError if that fails."""
        write_changed(
            self.executable.artifact, lambda program: with_text(program, self.settings, self.tokenizer), path
        )


def is_folder(model: Any) -> TypeGuard[str | Path]:
    """Return whether `model` is the path of a folder."""
    return isinstance(model, str | Path) and Path(model).is_dir()


def folders() -> ModuleType:
    """Return the module `folder`. Raises ArgumentError if torch or transformers is missing."""
    try:
        from . import folder
    except ModuleNotFoundError:
        raise ArgumentError(MISSING) from None
    return folder


def executable_of(model: str | os.PathLike[str] | Executable, strategy: Strategy | None) -> Executable:
    """Return a loaded artifact as it is; load one from its path."""
    return model if isinstance(model, Executable) else open_executable(model, check_strategy(strategy))


def opened(
    model: str | os.PathLike[str] | Executable,
    kind: Kind,
    options: Options | None,
    strategy: Strategy | None,
    **how: bool,
) -> Opened:
    """Open a text model: a folder, which is compiled, an artifact's path or a loaded artifact. `how`: further
    arguments of the function that opens a folder.

    Raises ArgumentError for a model of another kind, ArtifactError for an artifact without a text model, and
    the errors of `compile` and `load`.
    """
    if is_folder(model):
        return _compiled(folders().OPENERS[kind](Path(model), **how), options, strategy)
    if options is not None:
        raise ArgumentError("options are those of a compilation, and this model is compiled: give a folder")
    exe = executable_of(model, strategy)
    settings, tokenizer = text_of(exe)
    if settings.kind != kind:
        raise ArgumentError(f"{exe.name} is a model of another kind; open it with {KINDS[settings.kind]}")
    _check_contract(exe)
    return Opened(exe, settings, tokenizer)


def _check_contract(exe: Executable) -> None:
    """Raise ArtifactError for a program with other inputs than a text model's."""
    for value in exe.inputs:
        is_plain = value.shape is not None and len(value.shape) == 2 and value.dtype == "i64"
        if value.name not in (IDS, MASK, TYPES) or not is_plain:
            raise ArtifactError(
                f"{exe.name} takes {value}; a text model takes {IDS}, {MASK} and perhaps {TYPES}, each "
                "i64[batch, length]"
            )


def _compiled(folder: Folder, options: Options | None, strategy: Strategy | None) -> Opened:
    import torch

    length = torch.export.Dim("length", min=1, max=folder.settings.max_length)
    axes = {0: torch.export.Dim("batch", min=1), 1: length}
    names = [IDS, MASK, *([TYPES] if folder.takes_types else [])]
    example = {name: torch.ones(EXAMPLE, dtype=torch.int64) for name in names}
    example[IDS] = torch.arange(EXAMPLE[0] * EXAMPLE[1]).view(EXAMPLE) % folder.settings.vocabulary
    given = Given(folder.module, kwargs=example, dynamic_shapes=dict.fromkeys(names, axes))
    options = options or Options()
    packed = options if options.pack else replace(options, pack="auto")  # padding is not computed
    exe = compile_model(given, strategy, packed)
    return Opened(exe, folder.settings, folder.tokenizer)
