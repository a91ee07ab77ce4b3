"""`shapevm prove`: what holds is proved, what does not is found, and bad input gets one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import click.testing
import numpy as np
import pytest
import torch
from shapevm.jit.families.conv import winograd
from shapevm.jit.llvm.target import host_target
from torch.export import Dim

import shapevm
from shapevm.__main__ import main
from shapevm.promises.report import difference
from shapevm.settings import settings

N, L = Dim("n", min=1, max=32), Dim("length", min=1, max=64)


@pytest.fixture
def saved(build, tmp_path):
    """Return a function that compiles forward(self, ...) into an artifact."""

    def save(forward, *args, **options) -> Path:
        build(forward, *args, **options).save(tmp_path / "model.svm")
        return tmp_path / "model.svm"

    return save


def prove(*arguments: object, code: int = 0) -> str:
    return run("prove", *arguments, code=code)


def run(*arguments: object, code: int = 0) -> str:
    result = click.testing.CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout or result.output


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def test_all_relations_of_a_program(saved) -> None:
    def forward(self, x, k: float, flags):
        h = torch.relu(x @ x.transpose(1, 2)) * k
        return {"h": [h.sum(1), (h > flags[:, None]).to(torch.bfloat16)], "all": x.sum(0)}

    path = saved(
        forward, torch.randn(3, 4, 8), 0.5, torch.ones(3, 4),
        dynamic_shapes={"x": {0: N, 1: L}, "k": None, "flags": {0: N, 1: L}},
    )  # fmt: skip
    found = json.loads(prove(path, "--seconds", 0, "--json"))
    relations = found["relations"]
    assert found["is_proved"] and found["notes"] == []
    assert {"threads", "exact tier", "bucket tier", "saved and loaded", "runner"} < set(relations)
    assert relations["a row alone along n"]["compared"] >= 2
    assert relations["rows permuted along n"]["compared"] == 2
    assert all(not relation["differences"] for relation in relations.values())
    assert {name: bool(causes) for name, causes in found["along"]["n"].items()} == {
        "h.0": False, "h.1": False, "all": True,
    }  # fmt: skip
    assert "sum over rows" in found["along"]["n"]["all"][0]
    assert " at test_prove.py:" in found["along"]["n"]["all"][0]
    assert found["along"]["length"]["all"] == [] != found["along"]["length"]["h.0"]


def test_state_and_changed_inputs(saved) -> None:
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count.add_(1)
            x.add_(1)
            return x * self.count

    text = prove(saved(Counter(), torch.randn(3, 2), dynamic_shapes=({0: N},)), "--seconds", 0)
    assert "invariant along n: a row's results depend on nothing but the row" in lines_of(text)
    assert text.endswith("proved\n") and "NOT" not in text


def test_sizes_profiles_and_inputs_are_taken(saved, tmp_path) -> None:
    def forward(self, ids):
        return torch.nn.functional.one_hot(ids, 5).sum(1)

    path = saved(forward, torch.zeros(3, 4, dtype=torch.long), dynamic_shapes=({0: N, 1: L},))
    found = json.loads(prove(path, "--sizes", "n=2,length=7", "--sizes", "n=5,length=1", "--json"))
    assert found["sizes"] == [{"n": 2, "length": 7}, {"n": 5, "length": 1}] and found["is_proved"]
    np.savez(tmp_path / "in.npz", ids=np.array([[1, 4, 0], [3, 3, 3]]))
    found = json.loads(prove(path, "--inputs", tmp_path / "in.npz", "--json"))
    assert found["sizes"] == [{"n": 2, "length": 3}] and found["is_proved"]
    with shapevm.load(path) as exe, shapevm.record(exe) as recording:
        exe(torch.ones(4, 6, dtype=torch.long))
    recording.save(tmp_path / "prof.json")
    found = json.loads(prove(path, "--profile", tmp_path / "prof.json", "--json"))
    assert found["sizes"] == [{"n": 4, "length": 6}]


def masked(self, x, attention_mask):
    scores = (x @ x.transpose(1, 2)).masked_fill(attention_mask[:, None] == 0, float("-inf"))
    return scores.softmax(-1) @ x, (x * attention_mask[..., None]).sum(1)


@pytest.fixture
def padded(saved) -> Path:
    mask = torch.ones(3, 4, dtype=torch.long)
    return saved(masked, torch.randn(3, 4, 8), mask, dynamic_shapes=({0: N, 1: L}, {0: N, 1: L}))


def test_what_an_input_masks_is_padded(padded) -> None:
    text = prove(padded, "--sizes", "n=3,length=9")
    assert "padded along length: 6 results, equal bits" in lines_of(text)
    assert "padded" not in prove(padded, "--sizes", "n=3,length=9", "--no-pad")


def test_padding_that_nothing_masks_is_found(padded) -> None:
    lines = lines_of(prove(padded, "--sizes", "n=3,length=9", "--pad", "length", code=1))
    assert "padded along length: 6 results, 6 DIFFER" in lines
    assert lines[-1] == "NOT proved: results differ"
    assert any(line.startswith("n 3, length 9, padded to 10, result ") for line in lines)


def test_an_algorithm_chosen_by_the_number_of_rows_is_found(saved, monkeypatch) -> None:
    def by_all_images(f, spec, sizes):
        images = winograd.resolve(spec.buffers[spec.product.a].shape[0], sizes)
        return images < 2 if isinstance(images, int) else f.less(images, 2)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(16, 16, 3, padding=1)

        def forward(self, x):
            return self.conv(x)

    monkeypatch.setattr(winograd, "is_small", by_all_images)
    with settings.scope(cache=False):
        path = saved(Net(), torch.randn(3, 16, 7, 7), dynamic_shapes=({0: N},))
        lines = lines_of(prove(path, "--sizes", "n=3", code=1))
    assert "a row alone along n: 3 results, 3 DIFFER" in lines
    assert "rows permuted along n: 1 results, equal bits" in lines


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--pad", "width"], "pad 'width': the program's sizes are n, length"),
        (["--pad", "length=mask"], "pad 'length': the program has no input 'mask'"),
        (["--sizes", "n=3"], "sizes must be given for n, length"),
        (["--sizes", "n=3,length=99"], "so length is 99; it must be at most 64"),
        (["--inputs", "x.npz"], "input 'attention_mask' is missing"),
    ],
)
def test_bad_input_gets_one_sentence(padded, tmp_path, monkeypatch, arguments, sentence) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", x=np.zeros((3, 4, 8), "f"))
    result = click.testing.CliRunner().invoke(main, ["prove", str(padded), *arguments])
    assert result.exit_code not in (0, 1) or "Error" in result.output
    assert sentence in result.output and "Traceback" not in result.output


def test_difference_is_of_bits() -> None:
    zero, nan = np.zeros(3, "f"), np.array([0, np.nan, 0], "f")
    assert difference(zero, zero.copy()) == "" and difference(nan, -nan * 1).startswith("2 of 3")
    assert difference(nan, nan.copy()) == ""
    assert difference(zero, -zero) == "3 of 3 elements, first at [0]: 0.0 is not -0.0"
    assert difference(zero, zero[:2]) == "float32[3] is not float32[2]"
    assert difference(np.float32(1), np.float32(2)).startswith("1 of 1 elements, first at []")
    assert difference(3, 3) == "" and difference(True, False) != ""


@pytest.mark.skipif(host_target() != "x86-64-v4-amx", reason="this machine has no AMX tiles")
def test_rows_are_compared_on_code_without_amx_tiles(build, tmp_path) -> None:
    """The bits of tiles depend on the number of rows: an exception that the report states."""
    torch.manual_seed(0)
    length = Dim("length", min=90, max=99)
    model = torch.nn.Linear(64, 64).eval()
    shapes, options = ({0: N, 1: length},), shapevm.Options(precision="bf16x6")
    exe = build(model, torch.randn(3, 96, 64), dynamic_shapes=shapes, options=options)
    exe.save(tmp_path / "model.svm")
    found = json.loads(prove(tmp_path / "model.svm", "--sizes", "n=3,length=95", "--json"))
    assert len(found["exceptions"]) == 1 and "96 rows" in found["exceptions"][0]
    assert found["is_proved"] and any("AMX" in note for note in found["notes"])
    assert found["relations"]["a row alone along n"]["compared"] == 3
    assert "exception: k0" in run("inspect", tmp_path / "model.svm")
