"""What transformers' own exporter returns compiles as it is."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
from transformers.exporters.exporter_dynamo import DynamoConfig, DynamoExporter

import shapevm


def llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=61, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def step(model: LlamaForCausalLM, batch: int, past: int, new: int) -> dict[str, Any]:
    """Return the inputs of a step that follows `past` tokens, with the cache of these."""
    ids, cache = torch.randint(0, 61, (batch, past + new)), DynamicCache(config=model.config)
    with torch.no_grad():
        model(ids[:, :past], past_key_values=cache)
    return {
        "input_ids": ids[:, past:].contiguous(),
        "attention_mask": torch.ones(batch, past + new, dtype=torch.int64),
        "past_key_values": cache,
    }


def test_a_step_with_a_cache() -> None:
    model = llama()
    exported = DynamoExporter().export(model, step(model, 2, 5, 3), config=DynamoConfig(dynamic=True))
    with shapevm.compile(exported, strategy="generic") as exe:
        assert not exe.machine.externs
        for sizes in ((2, 5, 3), (3, 9, 2), (2, 4, 6)):
            given = step(model, *sizes)
            found = exe(**given)
            with torch.no_grad():
                wanted = model(**given)
            torch.testing.assert_close(found.logits, wanted.logits, rtol=1e-4, atol=1e-5)
            for one, other in zip(found.past_key_values.layers, wanted.past_key_values.layers, strict=True):
                torch.testing.assert_close(
                    (one.keys, one.values), (other.keys, other.values), rtol=1e-4, atol=1e-5
                )


@pytest.mark.parametrize(
    ("programs", "message"),
    [
        (
            {"encoder": 1, "decoder": 2},
            r"has 2 programs; give one of them: model.components\['encoder'\].program, ",
        ),
        ({"model": "a session"}, "holds a str; export it by transformers' DynamoExporter"),
    ],
)
def test_what_is_no_single_program_is_refused(programs: dict[str, Any], message: str) -> None:
    components = {name: SimpleNamespace(program=program) for name, program in programs.items()}
    with pytest.raises(shapevm.ArgumentError, match=message):
        shapevm.compile(SimpleNamespace(components=components, export_format="onnx"))
