"""GroupQueryAttention of sequences of several lengths, a padded prompt, then steps: onnxruntime's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import shapevm
from tests.compiler.frontends.onnx.onnx_models import compiled, model_of, node

I32 = onnx.TensorProto.INT32
ROWS = 64  # of the tables of angles


def _model(n: int, n_kv: int, width: int, is_packed: bool = False, **attributes: Any) -> onnx.ModelProto:
    angles = np.outer(np.arange(ROWS), 0.7 ** np.arange(width // 2))
    weights = {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    given = ["q", "", ""] if is_packed else ["q", "k", "v"]
    inputs: dict[str, Any] = {"q": ["n", "l", (n + 2 * n_kv * is_packed) * width]}
    inputs |= {} if is_packed else {name: ["n", "l", n_kv * width] for name in "kv"}
    inputs |= {name: ["n", n_kv, "before", width] for name in ("pk", "pv")} | {"ends": ["n"], "total": [1]}
    names = [*given, "pk", "pv", "ends", "total", *(["cos", "sin"] if attributes.get("do_rotary") else [])]
    made = node("GroupQueryAttention", names, ["y", "nk", "nv"], domain="com.microsoft",
                num_heads=n, kv_num_heads=n_kv, **attributes)  # fmt: skip
    dtypes = {"ends": I32, "total": I32}
    return model_of(
        [made], inputs, weights if attributes.get("do_rotary") else {}, ("y", "nk", "nv"), dtypes=dtypes
    )


class Both:
    """A program and ONNX Runtime's session of a model, each with its own cache of a batch."""

    def __init__(
        self, seed: int, model: onnx.ModelProto, exe: shapevm.Executable, batch: int, rows: int
    ) -> None:
        self.r, self.exe, self.batch = np.random.default_rng(seed), exe, batch
        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        self.shapes = {each.name: each.shape for each in self.session.get_inputs()}
        kv = [batch, self.shapes["pk"][1], rows, self.shapes["pk"][3]]
        self.ours = self.theirs = [np.zeros(kv, np.float32)] * 2

    def call(self, length: int, ends: np.ndarray, total: int) -> None:
        """Take `length` new positions, after which sequences have `ends`; compare what is defined."""
        names = [name for name in "qkv" if name in self.shapes]
        new = [self.r.standard_normal((self.batch, length, self.shapes[x][2]), np.float32) for x in names]
        rest = [(ends - 1).astype(np.int32), np.array([total], np.int32)]
        y, *self.ours = self.exe(*new, *self.ours, *rest)
        feed = dict(zip(self.shapes, [*new, *self.theirs, *rest], strict=True))
        z, *self.theirs = self.session.run(None, feed)
        assert [x.shape for x in self.ours] == [x.shape for x in self.theirs]
        is_first = length == total
        for i, end in enumerate(ends):
            rows = min(end, length) if is_first else length
            np.testing.assert_allclose(y[i, :rows], z[i, :rows], 1e-4, 2e-5)
            for one, other in zip(self.ours, self.theirs, strict=True):
                np.testing.assert_allclose(one[i, :, :end], other[i, :, :end], 1e-5, 1e-6)


VARIANTS: list[dict[str, Any]] = [
    {}, {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1}, {"local_window_size": 3},
    {"is_packed": True, "do_rotary": 1}, {"scale": 0.3},
]  # fmt: skip


def _run(seed: int, variant: dict[str, Any], is_shared: bool) -> None:
    r = np.random.default_rng(seed)
    n_kv = int(r.integers(1, 4))
    model = _model(n_kv * int(r.integers(1, 4)), n_kv, int(r.choice([16, 32])), **variant)
    with compiled(model) as exe:
        for batch in (1, 2, 5):
            length = int(r.choice([1, 2, 7, 13]))
            ends = r.integers(1, length + 1, batch)
            ends[r.integers(batch)] = length
            both = Both(seed, model, exe, batch, int(r.choice([length + 4, 24])) if is_shared else 0)
            both.call(length, ends, length)
            total = length
            for _ in range(4):
                ends, total = ends + 1, total + 1
                both.call(1, ends, total)
            if batch == 1 and not is_shared:  # onnxruntime takes several positions of one sequence only
                both.call(3, ends + 3, total + 3)


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_steps_after_a_padded_prompt(variant: dict[str, Any], is_shared: bool) -> None:
    _run(1, variant, is_shared)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(60))
def test_random_sizes(seed: int) -> None:
    _run(100 + seed, VARIANTS[seed % len(VARIANTS)], bool(seed % 2))
