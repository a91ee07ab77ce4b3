"""Packed tokens: the bits of the padded program at valid tokens, by either way; what is refused."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pytest
import torch
import transformers
from shapevm.compiler import reference
from shapevm.compiler.ir.graph import Graph, Node
from shapevm.compiler.passes.dce import dce
from shapevm.compiler.passes.decompose import decompose
from shapevm.compiler.passes.tokens.pack import pack_tokens
from shapevm.compiler.verify import verify

import shapevm
from shapevm.build.build import import_model
from shapevm.build.options import Options

SIZES = {
    "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 32, "max_position_embeddings": 90,
}  # fmt: skip
DISTILLED = {
    "vocab_size": 50, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 90,
}  # fmt: skip
SPECIAL = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 2)
ENCODERS: dict[str, Callable[[], torch.nn.Module]] = {
    "bert": lambda: transformers.BertModel(transformers.BertConfig(**SIZES)),
    "xlm-roberta": lambda: transformers.XLMRobertaModel(
        transformers.XLMRobertaConfig(**SIZES, pad_token_id=1)
    ),
    "distilbert": lambda: transformers.DistilBertModel(transformers.DistilBertConfig(**DISTILLED)),
    "mpnet": lambda: transformers.MPNetModel(transformers.MPNetConfig(**SIZES)),
    "modernbert": lambda: transformers.ModernBertModel(
        transformers.ModernBertConfig(
            **SIZES, **SPECIAL, local_attention=4, pad_token_id=1, attn_implementation="sdpa"
        )
    ),
}


def mean(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scale = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * scale).sum(1) / scale.sum(1).clamp(min=1e-9)


def largest(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.where(mask.unsqueeze(-1).bool(), hidden, torch.tensor(-1e9)).max(1)[0]


def last(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return hidden[torch.arange(hidden.shape[0]), mask.sum(1) - 1]


POOLINGS = {
    "mean": mean,
    "max": largest,
    "first": lambda hidden, mask: hidden[:, 0],
    "last": last,
    "none": lambda hidden, mask: hidden,
}


class Encoder(torch.nn.Module):
    def __init__(self, kind: str = "bert", *poolings: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.poolings = ENCODERS[kind](), [POOLINGS[name] for name in poolings or ("mean",)]

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        hidden = self.inner(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        found = tuple(pooling(hidden, attention_mask) for pooling in self.poolings)
        return found if len(found) > 1 else found[0]


def arguments(model: torch.nn.Module, pack: str, weights: Any = "f32") -> dict[str, Any]:
    ids = torch.randint(3, 50, (3, 7))
    batch, length = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("length", min=1, max=64)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    shapes = {name: {0: batch, 1: length} for name in inputs}
    options = Options(pack=pack, weights=weights)
    return {"model": model.eval(), "kwargs": inputs, "dynamic_shapes": shapes, "options": options}


def padded(lengths: list[int], left: bool = False) -> dict[str, torch.Tensor]:
    """Return token ids and a mask of rows of these lengths."""
    rng = np.random.default_rng(sum(lengths))
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    mask = mask[:, ::-1] if left else mask
    ids = np.where(mask, rng.integers(3, 50, mask.shape), 1)
    return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask.astype(np.int64))}


LENGTHS = [[7, 2, 5], [1, 13], [31, 1, 1, 17], [4, 4], [1], [3, 0, 8]]


@pytest.fixture(scope="module", params=list(ENCODERS))
def both(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    """A model compiled with packed tokens, and padded."""
    yield tuple(shapevm.compile(**arguments(Encoder(request.param), pack)) for pack in ("attention_mask", ""))


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_packed_and_padded_are_equal(both: tuple[Any, Any], lengths: list[int]) -> None:
    packed, plain = both
    assert torch.equal(packed(**padded(lengths)), plain(**padded(lengths)))


def test_a_text_alone_is_equal(both: tuple[Any, Any]) -> None:
    packed, _ = both
    inputs = padded([9, 2, 5])
    found = packed(**inputs)
    for i, n in enumerate([9, 2, 5]):
        assert torch.equal(packed(**{name: x[i : i + 1, :n] for name, x in inputs.items()})[0], found[i])


def test_masks_that_are_no_prefixes_take_the_padded_way(both: tuple[Any, Any]) -> None:
    packed, plain = both
    inputs = padded([7, 2, 5], left=True)
    assert torch.equal(packed(**inputs), plain(**inputs))
    inputs["attention_mask"][0, 3] = 0
    assert torch.equal(packed(**inputs), plain(**inputs))


@pytest.mark.parametrize("weights", ["f32", "int8"])
def test_poolings(weights: str) -> None:
    packed, plain = (
        shapevm.compile(**arguments(Encoder("bert", *POOLINGS), pack, weights)) for pack in ("auto", "")
    )
    for lengths in LENGTHS[:-1]:
        inputs = padded(lengths)
        valid = inputs["attention_mask"].bool()
        for name, found, wanted in zip(POOLINGS, packed(**inputs), plain(**inputs), strict=True):
            where = valid if name == "none" else slice(None)
            assert torch.equal(found[where], wanted[where]), name


def test_padding_is_zero_where_the_model_does_not_say_what_it_is() -> None:
    graph = graph_of(Encoder("bert", "none"))
    inputs = [np.asarray(x) for x in padded([7, 2, 5]).values()]
    (found,) = reference.run(graph, inputs)
    assert not found[inputs[1] == 0].any() and found[inputs[1] == 1].all()


class Added(Encoder):
    """Attention with a mask of floats that is added, as older exporters write it."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        mask = (1.0 - attention_mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        mask = mask.expand(-1, -1, attention_mask.shape[1], -1)
        return mean(self.inner(input_ids=input_ids, attention_mask=mask).last_hidden_state, attention_mask)


def test_a_mask_that_is_added() -> None:
    packed, plain = (shapevm.compile(**arguments(Added(), pack)) for pack in ("attention_mask", ""))
    for lengths in LENGTHS[:-1]:
        assert torch.equal(packed(**padded(lengths)), plain(**padded(lengths)))


@pytest.mark.filterwarnings("ignore")
def test_an_onnx_model() -> None:
    given, file = arguments(Encoder(), "auto"), io.BytesIO()
    axes = {name: {0: "batch", 1: "length"} for name in given["kwargs"]}
    names = {"input_names": list(axes), "output_names": ["y"]}
    values = tuple(given["kwargs"].values())
    torch.onnx.export(given["model"], values, file, **names, dynamic_axes=axes, dynamo=False)
    packed, plain = (shapevm.compile(file.getvalue(), options=Options(pack=pack)) for pack in ("auto", ""))
    assert any("segment_attention" in kernel.label for kernel in packed.machine.kernels)
    for lengths in LENGTHS[:3]:
        inputs = {name: x.numpy() for name, x in padded(lengths).items()}
        assert np.array_equal(packed.run(inputs)["y"], plain.run(inputs)["y"])


class Classes(torch.nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = kind(transformers.BertConfig(**SIZES, num_labels=3))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.inner(input_ids=input_ids, attention_mask=attention_mask).logits


@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "BertForTokenClassification"])
def test_classifiers(kind: str) -> None:
    model, inputs = Classes(getattr(transformers, kind)), padded([7, 2, 5])
    found, wanted = (shapevm.compile(**arguments(model, pack))(**inputs).numpy() for pack in ("auto", ""))
    valid = inputs["attention_mask"].numpy().astype(bool) if wanted.ndim == 3 else slice(None)
    assert np.array_equal(found[valid], wanted[valid])


# Graphs ---------------------------------------------------------------------------------------------


def graph_of(model: torch.nn.Module, pack: str = "attention_mask") -> Graph:
    graph = import_model(**arguments(model, pack))
    decompose(graph)
    pack_tokens(graph)
    verify(graph, "core", "pack_tokens")
    dce(graph)
    return graph


def branch(graph: Graph) -> Node | None:
    return next((node for node in graph.body.nodes if node.op == "if"), None)


def test_the_packed_way_has_no_padded_products() -> None:
    node = branch(graph_of(Encoder()))
    assert node is not None
    then, otherwise = node.regions
    sizes = {str(inner.result.tensor.shape[0]) for inner in then.nodes if inner.op == "matmul"}
    assert len(sizes) == 1 and not sizes & {"batch", "length"}
    assert sum(inner.op == "segment_attention" for inner in then.nodes) == 1
    assert sum(inner.op == "attention" for inner in otherwise.nodes) == 1


class Mixing(Encoder):
    """A mean over all tokens, also padding."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.inner(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return hidden.mean(1)


class Unmasked(Encoder):
    """Attention whose keys are padding too."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return mean(self.inner(input_ids=input_ids).last_hidden_state, attention_mask)


class Shifted(Encoder):
    """The next token, which may be padding."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.inner(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return torch.cat([hidden[:, 1:], hidden[:, :1]], 1)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Mixing, "reduce_total .*it mixes tokens|reduce_sum .*it mixes tokens"),
        (Unmasked, "attention .*its mask is not known to exclude padding"),
        (Shifted, "slice .*it mixes tokens"),
    ],
)
def test_programs_that_depend_on_padding_stay_padded(model: type[Encoder], why: str) -> None:
    with pytest.raises(shapevm.UnsupportedOp, match=why):
        graph_of(model())
    before = [node.op for node in graph_of(model(), "").nodes()]
    assert [node.op for node in graph_of(model(), "auto").nodes()] == before


def test_the_name_of_a_mask() -> None:
    with pytest.raises(shapevm.UnsupportedOp, match="'mask' is no mask"):
        graph_of(Encoder(), "mask")
    with pytest.raises(shapevm.ArgumentError, match="pack is 3; it must be the name"):
        Options(pack=3)  # type: ignore[arg-type]
