"""Language models: sequences of tokens that share one program and one cache.

A sequence's tokens depend on its own tokens and its `Sampling` only, whatever else runs.
"""

from __future__ import annotations

from .engine import Engine, Limits, Request
from .grammar import Grammar
from .language_model import Ending, Generation, LanguageModel, Piece, Probability
from .opening import from_pretrained, load
from .sampling import Sampling

__all__ = [
    "Ending", "Engine", "Generation", "Grammar", "LanguageModel", "Limits", "Piece", "Probability", "Request",
    "Sampling", "from_pretrained", "load",
]  # fmt: skip
