"""GGUF: files of language models, with weights of small integers with scales for blocks, as llama.cpp reads
them.

    file = read_gguf("model.gguf")
    config = read_config(config_of(file), file.path)
    for name, own in tensor_names(file).items():
        values = tensor_of(file, own)  # those of the tensor `name` of a Hugging Face folder
"""

from __future__ import annotations

from .file import GgufFile, read_gguf
from .names import config_of, tensor_names, tensor_of

__all__ = ["GgufFile", "config_of", "read_gguf", "tensor_names", "tensor_of"]
