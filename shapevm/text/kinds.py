"""A text model of either kind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..program.executable import Executable
from ..program.limits import check_strategy
from ..program.opening import open_executable
from .cross_encoder import CrossEncoder
from .encoder import SentenceEncoder
from .folder import is_folder, kind_of
from .settings import Kind

if TYPE_CHECKING:
    from ..build.options import Options
    from ..vm.codes import Strategy

CLASSES: Mapping[Kind, type[SentenceEncoder | CrossEncoder]] = {
    "encoder": SentenceEncoder, "cross-encoder": CrossEncoder,
}  # fmt: skip


def open_text_model(
    model: str | os.PathLike[str] | Executable,
    options: Options | None = None,
    strategy: Strategy | None = None,
) -> SentenceEncoder | CrossEncoder:
    """Return the text model of an artifact or of a folder.

    Raises ArtifactError if an artifact holds no tokenizer, and the errors of `SentenceEncoder`.
    """
    if isinstance(model, Executable) or not is_folder(model):
        model = model if isinstance(model, Executable) else open_executable(model, check_strategy(strategy))
        kind = model.machine.meta.get("text", {}).get("kind", "encoder")
    else:
        kind = kind_of(Path(model))
    return CLASSES[kind](model, options=options, strategy=strategy)
