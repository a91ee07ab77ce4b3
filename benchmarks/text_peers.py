"""What embeds texts beside shapevm: each entry of `PEERS` opens a folder of Hugging Face on some threads, and
returns a function from texts and the size of a batch to embeddings. Each is set as its documentation advises
for speed in f32, and gets its texts sorted by length. A peer that is not installed raises ImportError."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf_file import gguf_file

Array = np.ndarray[Any, Any]
Encode = Callable[[Sequence[str], int], Any]


@dataclass(frozen=True)
class Peer:
    """How a peer is opened, from the folder, the number of threads and a folder for its files; and the sizes
    of batches, in `unit`, of which the best is measured."""

    open: Callable[[Path, int, Path], Encode]
    sizes: Sequence[int]
    unit: str = "texts"


def _shapevm(folder: Path, threads: int, scratch: Path) -> Encode:
    import shapevm

    shapevm.set_threads(threads)
    encoder = shapevm.SentenceEncoder(folder)

    def encode(texts: Sequence[str], size: int) -> Array:
        encoder.max_tokens = size
        return encoder.encode(texts)

    return encode


def _of_sentence_transformers(folder: Path, backend: Any, **model_kwargs: Any) -> Encode:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", backend=backend, model_kwargs=model_kwargs)
    return lambda texts, size: model.encode(texts, batch_size=size)


def _torch(folder: Path, threads: int, scratch: Path) -> Encode:
    import torch

    torch.set_num_threads(threads)
    return _of_sentence_transformers(folder, "torch", attn_implementation="sdpa")


def _zentorch(folder: Path, threads: int, scratch: Path) -> Encode:
    import torch
    import zentorch  # noqa: F401  (registers AMD's backend)
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    model = SentenceTransformer(str(folder), device="cpu")
    model[0].auto_model = torch.compile(model[0].auto_model, backend="zentorch", dynamic=True)
    return lambda texts, size: model.encode(texts, batch_size=size)


def _onnx_folder(folder: Path, scratch: Path) -> Path:
    """Return a copy of the folder with an ONNX file, optimised as the library's page advises (O3)."""
    import shutil

    from sentence_transformers import SentenceTransformer, export_optimized_onnx_model

    copy = scratch / "onnx" / folder.name
    if not copy.exists():
        shutil.copytree(folder, copy)
        model = SentenceTransformer(str(copy), backend="onnx", model_kwargs={"export": True})
        model.save_pretrained(str(copy))
        # The library writes a limit of 128 tokens, which only fastembed reads.
        shutil.copy(folder / "tokenizer_config.json", copy)
        export_optimized_onnx_model(model, "O3", str(copy))
    return copy


def _onnx(folder: Path, threads: int, scratch: Path) -> Encode:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    return _of_sentence_transformers(
        _onnx_folder(folder, scratch),
        "onnx",
        provider="CPUExecutionProvider",
        session_options=options,
        file_name="model_O3.onnx",
    )


def _openvino(folder: Path, threads: int, scratch: Path) -> Encode:
    config = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    return _of_sentence_transformers(folder, "openvino", export=True, ov_config=config)


def _fastembed(folder: Path, threads: int, scratch: Path) -> Encode:
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    copy, width = _onnx_folder(folder, scratch), _width(folder)
    source = ModelSource(hf="local/model")
    TextEmbedding.add_custom_model(
        "local/model", PoolingType.MEAN, True, source, width, model_file="onnx/model_O3.onnx"
    )
    model = TextEmbedding("local/model", threads=threads, specific_model_path=str(copy))

    def encode(texts: Sequence[str], size: int) -> Array:
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        found = np.empty((len(texts), width), np.float32)
        found[order] = list(model.embed([texts[i] for i in order], batch_size=size))
        return found

    return encode


def _llama(folder: Path, threads: int, scratch: Path) -> Encode:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(gguf_file(folder, scratch))
    params.embedding, params.n_parallel, params.kv_unified = True, 64, True
    params.n_ctx = params.n_batch = params.n_ubatch = 4096
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    server, width = xllamacpp.Server(params), _width(folder)

    def encode(texts: Sequence[str], size: int) -> Array:
        found = np.empty((len(texts), width), np.float32)
        for start in range(0, len(texts), size):
            answer = server.handle_embeddings({"input": list(texts[start : start + size]), "model": "m"})
            for row in answer["data"]:
                found[start + row["index"]] = row["embedding"]
        return found

    return encode


def _width(folder: Path) -> int:
    import json

    return int(json.loads((folder / "config.json").read_text())["hidden_size"])


TEXTS = (8, 16, 32, 64)
PEERS = {
    "shapevm": Peer(_shapevm, (512, 1024, 2048), "tokens"),
    "sentence-transformers, torch": Peer(_torch, TEXTS),
    "sentence-transformers, onnx": Peer(_onnx, TEXTS),
    "sentence-transformers, openvino": Peer(_openvino, TEXTS),
    "sentence-transformers, zentorch": Peer(_zentorch, TEXTS),
    "fastembed": Peer(_fastembed, TEXTS),
    "llama.cpp": Peer(_llama, (32, 128, 512)),
}
