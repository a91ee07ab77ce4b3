"""Folders of Hugging Face and sentence-transformers: settings, tokenizer and module of a text model.

Only what compiles a folder imports this file, which needs torch and transformers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from tokenizers.normalizers import Lowercase, Sequence

from ..vm.errors import ArgumentError, FileError
from .modules import Embedder, Layer, Residual, Scorer, Step, normalize, pooling
from .settings import Kind, Settings
from .tokens import Tokenizer

UNLIMITED = 1 << 20  # tokens; tokenizers without a limit say 1e30
PROMPTS = {"query": "", "document": ""}  # those that sentence-transformers gives every model
#: By the old names of pooling modes, which are flags.
OLD_POOLS = {
    "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max", "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean", "pooling_mode_lasttoken": "lasttoken",
}  # fmt: skip
ACTIVATIONS = ("Identity", "Sigmoid", "Tanh", "ReLU", "GELU", "SiLU")  # classes of torch.nn


@dataclass(frozen=True)
class Folder:
    """An opened folder: what is to be compiled, and what the artifact keeps besides."""

    settings: Settings
    tokenizer: Tokenizer
    module: torch.nn.Module
    takes_types: bool  # whether the module takes token_type_ids


def kind_of(folder: Path) -> Kind:
    """Return which kind of text model a folder holds."""
    (architecture, *_) = _read(folder / "config.json").get("architectures") or [""]
    is_scorer = str(architecture).endswith("ForSequenceClassification")
    return "cross-encoder" if is_scorer and not (folder / "modules.json").is_file() else "encoder"


def open_encoder(folder: Path, with_tokens: bool = False) -> Folder:
    """Return a sentence encoder. Raises ArgumentError for modules that are unknown, FileError for a file that
    is missing or unreadable."""
    rows = _read(folder / "modules.json", []) or [{"type": "Transformer", "path": ""}, {"type": "Pooling"}]
    (first, path), *others = [(str(row.get("type")).rpartition(".")[2], row.get("path", "")) for row in rows]
    if first != "Transformer":
        raise ArgumentError(f"{folder}: its first module is a {first}; it must be a Transformer")
    place = folder / path
    with _one_sentence():
        model = transformers.AutoModel.from_pretrained(place, local_files_only=True)
        if getattr(model.config, "is_encoder_decoder", False):
            model = model.get_encoder()
        steps = [_step(folder, *row) for row in others]
        made = Embedder(_prepared(model), [step for step in steps if step is not None], with_tokens)
        native = _native_tokenizer(place)
    return Folder(*_parts("encoder", folder, place, model, native), made.eval(), False)


def open_cross_encoder(folder: Path) -> Folder:
    """Return a cross-encoder. Raises as `open_encoder` does."""
    with _one_sentence():
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True)
        native = _native_tokenizer(folder)
        said = getattr(model.config, "sentence_transformers", None) or {}
        named = said.get("activation_fn") or getattr(model.config, "sbert_ce_default_activation_function", "")
        default = "Sigmoid" if model.config.num_labels == 1 else "Identity"
        made = Scorer(_prepared(model), _activation(str(named or default)))
    has_types = "token_type_ids" in native.model_input_names
    takes_types = has_types and (getattr(model.config, "type_vocab_size", 0) or 0) > 1
    return Folder(*_parts("cross-encoder", folder, folder, model, native), made.eval(), takes_types)


#: By kind: the function that opens a folder.
OPENERS: Mapping[Kind, Callable[..., Folder]] = {
    "encoder": open_encoder, "cross-encoder": open_cross_encoder,
}  # fmt: skip


def _parts(kind: Kind, folder: Path, place: Path, model: Any, native: Any) -> tuple[Settings, Tokenizer]:
    """Return the settings and the tokenizer of a folder, whose transformer is at `place`."""
    of_texts: dict[str, Any] = {}
    for path in sorted(place.glob("sentence_*_config.json")):
        of_texts = _read(path)
    backend = native.backend_tokenizer
    if of_texts.get("do_lower_case"):
        backend.normalizer = Sequence([Lowercase(), *filter(None, [backend.normalizer])])
    wanted = of_texts.get("max_seq_length") or min(native.model_max_length, UNLIMITED)
    said = _read(folder / "config_sentence_transformers.json", {})
    settings = Settings(
        kind=kind,
        name=folder.resolve().name,
        max_length=max(1, min(int(wanted), _positions(model))),
        vocabulary=model.config.vocab_size,
        pad=native.pad_token_id or 0,
        prompts={**PROMPTS, **{str(k): str(v or "") for k, v in (said.get("prompts") or {}).items()}},
        default_prompt=said.get("default_prompt_name") or "",
        similarity=said.get("similarity_fn_name") or "cosine",
    )
    return settings, Tokenizer(backend.to_str())


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Make the errors of transformers one sentence."""
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        if isinstance(error, ArgumentError | FileError):
            raise
        said = " ".join(str(error).split())[:300]
        raise ArgumentError(f"the folder cannot be read by transformers: {said}") from error


def _read(path: Path, default: Any = None) -> Any:
    """Return the content of a JSON file, or `default` if it is missing."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        if default is not None:
            return default
        raise FileError(f"{path} does not exist; give the folder of a model, with config.json") from None
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read as JSON: {error}") from None


def _prepared(model: Any) -> Any:
    """Return a model that computes in f32 and keeps no cache."""
    model.config.use_cache = False
    return model.float().eval()


def _native_tokenizer(place: Path) -> Any:
    """Return the tokenizer that transformers reads. Raises ArgumentError for one without tokenizer.json."""
    native = transformers.AutoTokenizer.from_pretrained(place, local_files_only=True)
    if not getattr(native, "is_fast", False):
        raise ArgumentError(f"{place}: its tokenizer has no form of the package tokenizers (tokenizer.json)")
    return native


def _positions(model: Any) -> int:
    """Return how many positions a transformer has."""
    n = getattr(model.config, "max_position_embeddings", None) or UNLIMITED
    for name, module in model.named_modules():
        padding = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            n = min(n, module.num_embeddings - padding - 1)  # positions are counted from padding + 1
    return int(n) if n > 0 else UNLIMITED


# Modules behind the transformer --------------------------------------------------------------------------


def _step(folder: Path, kind: str, path: str) -> Step | None:
    """Return a module's step, None for one that does nothing in inference."""
    if kind not in _STEPS:
        known = ", ".join(_STEPS)
        raise ArgumentError(
            f"{folder}: its modules.json has a module {kind!r}; known are Transformer, {known}"
        )
    return _STEPS[kind](folder / path)


def _pooling(place: Path) -> Step:
    said = _read(place / "config.json", {})
    if said.get("include_prompt") is False:
        raise ArgumentError(
            f"{place}: include_prompt is false; pooling over a part of the tokens is not known"
        )
    modes = said.get("pooling_mode") or [mode for key, mode in OLD_POOLS.items() if said.get(key)] or ["mean"]
    return pooling([modes] if isinstance(modes, str) else modes)


def _dense(place: Path) -> Step:
    said, weights = _read(place / "config.json"), _weights(place)
    n, m = int(said["in_features"]), int(said["out_features"])
    linear = torch.nn.Linear(n, m, bias=bool(said.get("bias", True)))
    _load(linear, weights, "linear.", place)
    activation = _activation(said.get("activation_function") or "Tanh")
    layer: torch.nn.Module = torch.nn.Sequential(linear, activation)
    if said.get("use_residual"):
        projection: torch.nn.Module = torch.nn.Identity()
        if n != m:
            projection = torch.nn.Linear(n, m, bias=False)
            _load(projection, weights, "residual.", place)
        layer = Residual(layer, projection)
    return Layer(layer)


def _layer_norm(place: Path) -> Step:
    norm = torch.nn.LayerNorm(int(_read(place / "config.json")["dimension"]))
    _load(norm, _weights(place), "norm.", place)
    return Layer(norm)


#: By the class of a module: its step.
_STEPS: dict[str, Callable[[Path], Step | None]] = {
    "Pooling": _pooling,
    "Normalize": lambda place: normalize,
    "Dense": _dense,
    "LayerNorm": _layer_norm,
    "Dropout": lambda place: None,
}


def _activation(name: str) -> torch.nn.Module:
    short = name.rpartition(".")[2]
    if short not in ACTIVATIONS:
        raise ArgumentError(f"the activation {name!r} is unknown; known are {', '.join(ACTIVATIONS)}")
    made: torch.nn.Module = getattr(torch.nn, short)()
    return made


def _weights(place: Path) -> dict[str, Any]:
    """Return the weights of a module's folder."""
    if (place / "model.safetensors").is_file():
        return dict(load_file(place / "model.safetensors"))
    path = place / "pytorch_model.bin"
    if not path.is_file():
        raise FileError(f"{place / 'model.safetensors'} does not exist")
    return dict(torch.load(path, map_location="cpu", weights_only=True))


def _load(module: torch.nn.Module, weights: Mapping[str, Any], prefix: str, place: Path) -> None:
    own = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
    try:
        module.load_state_dict(own)
    except RuntimeError as error:
        raise ArgumentError(
            f"{place}: its weights do not fit: {' '.join(str(error).split())[:200]}"
        ) from None
