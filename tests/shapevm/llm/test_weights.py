"""Folders whose files do not fit, and shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from shapevm.errors import ArgumentError, FileError
from shapevm.llm.folder import read_decoder
from shapevm.llm.pages import Room, room_of

from .folders import write_model

INDEX = "model.safetensors.index.json"


def _arrays(folder: Path) -> dict[str, Any]:
    return {name: each.array for name, each in read_decoder(folder, Room(8)).named_parameters()}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_in_shards_are_widened(tmp_path: Path, dtype: torch.dtype) -> None:
    reference = write_model(tmp_path, "llama", dtype)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    wanted = reference.model.layers[1].mlp.down_proj.weight.detach().numpy()
    np.testing.assert_array_equal(_arrays(tmp_path)["layers.1.feed.down.weight"], wanted)


def test_one_file_without_the_prefix_is_read_too(tmp_path: Path) -> None:
    write_model(tmp_path, "gpt2")
    before = _arrays(tmp_path)
    merged = {k: v for each in tmp_path.glob("*.safetensors") for k, v in load_file(each).items()}
    for each in tmp_path.glob("model*"):
        each.unlink()
    save_file({k.removeprefix("transformer."): v for k, v in merged.items()}, tmp_path / "model.safetensors")
    after = _arrays(tmp_path)
    assert all((after[name] == before[name]).all() for name in before)


def _without_a_tensor(folder: Path) -> None:
    path = sorted(folder.glob("*.safetensors"))[0]
    save_file({}, path)


def _of_another_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 47}))


def _index(text: str) -> Any:
    return lambda folder: (folder / INDEX).write_text(text)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_without_a_tensor, "has no tensor '.*', which its config requires"),
        (_of_another_shape, r"has the shape \[48, 32\]; its config says \[47, 32\]|\[32, 48\].*\[32, 47\]"),
        (_index('{"weight_map": {"a": "../x.safetensors"}}'), "names the file '../x.safetensors'"),
        (_index('{"weight_map": {"a": "x.bin"}}'), "names the file 'x.bin'"),
        (_index('{"weight_map": 3}'), "weight_map is 3"),
        (_index("{"), "it is not JSON"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json: it is not JSON"),
    ],
)
def test_folders_that_do_not_fit_are_refused_in_one_sentence(tmp_path: Path, damage: Any, said: str) -> None:
    write_model(tmp_path, "llama")
    damage(tmp_path)
    with pytest.raises(ArgumentError, match=said):
        read_decoder(tmp_path, Room(8))


def test_a_missing_config_and_another_size_of_the_cache(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="config.json cannot be read: No such file"):
        read_decoder(tmp_path, Room(8))
    with pytest.raises(ArgumentError, match="cache_tokens is 0; it must be a whole number"):
        room_of(0)
    with pytest.raises(ArgumentError, match="cache is 'int4'; it must be one of f32, bf16, int8"):
        room_of(16, "int4")
