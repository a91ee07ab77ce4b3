"""The models of ONNX's backend tests that are kept in its package give the results kept beside them. Those of
versions before 7 are converted as the message that refuses them says."""

import re
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import onnx.version_converter
import pytest
from shapevm.compiler.frontends.onnx.reader import OPSETS

import shapevm
from tests.compiler.frontends.onnx.onnx_models import compiled

NEW = 13  # the version to which old models are converted
DATA = Path(onnx.backend.test.__file__).parent / "data"
MODELS = sorted(path for kind in ("pytorch-converted", "pytorch-operator", "simple")
                for path in (DATA / kind).glob("*/model.onnx"))  # fmt: skip
#: The operators that models need and that no program has; and slopes of a shape that version 7 forbids.
REFUSED = (
    r"operator ai\.onnx\.(Sequence|SplitToSequence|String|preview\.training)|broadcast to one shape \(PRelu"
)


def _arrays(folder: Path, kind: str) -> list[np.ndarray]:
    paths = sorted(folder.glob(f"{kind}_*.pb"), key=lambda path: int(path.stem.rpartition("_")[2]))
    return [onnx.numpy_helper.to_array(onnx.load_tensor(path)) for path in paths]


@pytest.mark.drawn
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.parent.name)
def test_model(path: Path) -> None:
    model = onnx.load(path)
    if model.opset_import[0].version < OPSETS[0]:
        model = onnx.version_converter.convert_version(model, NEW)
    try:
        exe = compiled(model)
    except (shapevm.UnsupportedOp, shapevm.ShapeError) as error:
        assert re.search(REFUSED, str(error)), error
        return
    with exe:
        for folder in sorted(path.parent.glob("test_data_set_*")):
            found = exe(*_arrays(folder, "input"))
            found = found if isinstance(found, tuple) else (found,)
            for one, other in zip(found, _arrays(folder, "output"), strict=True):
                assert (one.dtype, one.shape) == (other.dtype, other.shape)
                np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
