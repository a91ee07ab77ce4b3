"""A text model of either kind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .cross_encoder import CrossEncoder
from .encoder import SentenceEncoder
from .opening import executable_of, folders, is_folder
from .settings import Kind

if TYPE_CHECKING:
    from ..build.options import Options
    from ..program.executable import Executable
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
    if is_folder(model):
        kind = folders().kind_of(Path(model))
    else:
        model = executable_of(model, strategy)
        kind = model.machine.meta.get("text", {}).get("kind", "encoder")
    return CLASSES[kind](model, options=options, strategy=strategy)
