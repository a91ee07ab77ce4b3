"""The real encoder, compiled once for all tests of this folder."""

import sys
from pathlib import Path

import pytest
import torch

import shapevm

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import encoder


@pytest.fixture(scope="session")
def bert():
    return encoder.load_bert()


@pytest.fixture(scope="session")
def exe(bert):
    return shapevm.compile(bert, kwargs=encoder.example_inputs(), dynamic_shapes=encoder.dynamic_shapes())


@pytest.fixture(scope="session")
def artifact(exe, tmp_path_factory):
    path = tmp_path_factory.mktemp("artifact") / "minilm.svm"
    exe.save(path)
    return path


@pytest.fixture(scope="session")
def inputs():
    def make(batch: int, length: int, padded: bool = True) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(batch * 1000 + length)
        ids = torch.randint(1000, 30000, (batch, length), generator=generator)
        mask = torch.ones_like(ids)
        if padded:
            for row in range(1, batch):
                mask[row, int(torch.randint(1, length + 1, (1,), generator=generator)) :] = 0
        return {"input_ids": ids, "attention_mask": mask}

    return make
