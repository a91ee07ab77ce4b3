"""Text models: sentence encoders and cross-encoders with their tokenizers, in one file.

`SentenceEncoder` and `CrossEncoder` have the methods of the classes of sentence-transformers. They open a
folder of Hugging Face, which transformers and torch compile, or a file that `save` wrote, which needs numpy
and tokenizers alone.
"""

from __future__ import annotations

from .cross_encoder import CrossEncoder
from .encoder import SentenceEncoder
from .kinds import open_text_model
from .tokens import Tokens

__all__ = ["CrossEncoder", "SentenceEncoder", "Tokens", "open_text_model"]
