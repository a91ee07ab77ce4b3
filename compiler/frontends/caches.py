"""Caches of transformers in the inputs and outputs of models.

torch.export takes them as their tensors once their classes are registered with torch's pytrees, which
transformers does only in its own exporter.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from typing import Any


def register_caches(model: Any) -> None:
    """Register the classes of caches that a model with parts of transformers may take and return. A version
    of transformers without an exporter is unchanged."""
    if "transformers.cache_utils" not in sys.modules:
        return
    with suppress(ImportError):
        for part in model.modules():
            if type(part).__module__.startswith("transformers.models."):
                exporter = import_module("transformers.exporters.exporter_dynamo")
                exporter.register_cache_pytrees_for_model(part)
                return
