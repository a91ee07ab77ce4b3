"""Random models of free sizes give onnxruntime's results at every size."""

import pytest

from tests.compiler.frontends.onnx.onnx_models import agrees
from tests.compiler.frontends.onnx.random_models import random_model


def _check(seed: int) -> None:
    model, calls = random_model(seed)
    agrees(model, *calls, tolerance=1e-3)


@pytest.mark.parametrize("seed", range(30))
def test_random_models_agree(seed: int) -> None:
    _check(seed)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_more_random_models_agree(seed: int) -> None:
    _check(seed)
