"""The real encoder, compiled once for all tests of this folder."""

import sys
from pathlib import Path

import pytest

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
    return lambda batch, length: encoder.random_inputs(batch, length, padded=True)
