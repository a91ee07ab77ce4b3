"""A text model of either kind."""

from __future__ import annotations

import os
from pathlib import Path

from ..program.executable import Executable
from ..program.limits import check_strategy
from ..program.opening import open_executable
from .cross_encoder import CrossEncoder
from .encoder import SentenceEncoder
from .folder import is_folder, kind_of


def open_text_model(model: str | os.PathLike[str] | Executable) -> SentenceEncoder | CrossEncoder:
    """Return the text model of an artifact or of a folder.

    Raises ArtifactError if an artifact holds no tokenizer, and the errors of `SentenceEncoder`.
    """
    if not isinstance(model, Executable) and is_folder(model):
        return (SentenceEncoder if kind_of(Path(model)) == "encoder" else CrossEncoder)(model)
    exe = model if isinstance(model, Executable) else open_executable(model, check_strategy(None))
    said = exe.machine.meta.get("text", {})
    return (CrossEncoder if said.get("kind") == "cross-encoder" else SentenceEncoder)(exe)
