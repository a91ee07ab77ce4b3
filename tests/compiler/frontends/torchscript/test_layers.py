"""Layers of torch.nn, scripted and traced, also under no_grad, equal eager at several sizes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import shapevm

from .named import Finds, Found
from .programs import x

_PADDING = torch.tensor([[False, False, True], [False, True, True]])
LAYERS: dict[str, tuple[nn.Module, list[tuple[Any, ...]]]] = {
    "InstanceNorm1d": (nn.InstanceNorm1d(3), [(x(2, 3, 7),), (x(1, 3, 2),)]),
    "InstanceNorm2d": (nn.InstanceNorm2d(3, affine=True), [(x(2, 3, 5, 6),), (x(1, 3, 2, 9),)]),
    "InstanceNorm3d": (nn.InstanceNorm3d(3, track_running_stats=True), [(x(2, 3, 4, 5, 6),)]),
    "LSTMCell": (nn.LSTMCell(3, 4), [(x(n, 3), (x(n, 4), x(n, 4))) for n in (2, 1, 7)]),
    "GRUCell": (nn.GRUCell(3, 4), [(x(n, 3), x(n, 4)) for n in (2, 1, 7)]),
    "RNNCell": (nn.RNNCell(3, 4, nonlinearity="relu"), [(x(n, 3), x(n, 4)) for n in (2, 1, 7)]),
    "ConvTranspose1d": (nn.ConvTranspose1d(3, 6, 5, 3), [(x(2, 3, 7),), (x(1, 3, 2),)]),
    "ConvTranspose2d": (nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), [(x(2, 4, 7, 7),), (x(1, 4, 2, 3),)]),
    "ConvTranspose3d": (nn.ConvTranspose3d(3, 6, 3, 2), [(x(2, 3, 4, 4, 4),), (x(1, 3, 2, 1, 3),)]),
    "Conv3d, same": (nn.Conv3d(3, 6, 3, padding="same"), [(x(2, 3, 4, 4, 4),), (x(1, 3, 2, 5, 3),)]),
    "TransformerEncoderLayer": (
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True, activation="gelu"),
        [(x(2, 5, 8),), (x(1, 3, 8),), (x(3, 1, 8),)],
    ),
}


@pytest.mark.parametrize("how", ["script", "trace"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, how: str) -> None:
    layer, calls = LAYERS[name]
    layer = layer.eval()
    with torch.no_grad():
        program = torch.jit.script(layer) if how == "script" else torch.jit.trace(layer, calls[0])
        with shapevm.compile(program, args=calls[0]) as exe:
            assert "PyTorch" not in str(exe)
            for args in calls:
                assert_close(exe(*args), layer(*args), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(3), nn.BatchNorm2d(3, affine=False, momentum=0.3)])
def test_batch_norm_traced_in_training_keeps_its_statistics(layer: nn.Module) -> None:
    def sized(n: int) -> Tensor:
        torch.manual_seed(n)
        return torch.randn(n, 3, 4, *[5] * isinstance(layer, nn.BatchNorm2d))

    own, program = copy.deepcopy(layer), copy.deepcopy(layer)
    made = torch.jit.trace(program, sized(2), check_trace=False)
    made.load_state_dict(own.state_dict())  # tracing changed it
    with torch.no_grad(), shapevm.compile(made, args=(sized(2),)) as exe:
        for n in (2, 5, 1):
            assert_close(exe(sized(n)), own(sized(n)))
        kept = {name: torch.as_tensor(value) for name, value in exe.state().items()}
        assert_close(kept, dict(own.named_buffers()))


def test_scripted_modules_are_compiled_in_evaluation_mode_and_stay_as_they_are() -> None:
    module = torch.jit.script(nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.9)))
    module[1].eval()
    with torch.no_grad(), shapevm.compile(module, args=(x(2, 3),)) as exe:
        assert (module.training, module[0].training, module[1].training) == (True, True, False)
        assert_close(exe(x(2, 3)), module.eval()(x(2, 3)))


NORMALISED: dict[str, Any] = {
    "training": lambda a, w, m, v: torch.native_batch_norm(a, w, w, m, v, True, 0.2, 1e-3),
    "evaluation": lambda a, w, m, v: torch.native_batch_norm(a, None, None, m, v, False, 0.2, 1e-3)[0],
    "no statistics": lambda a, w, m, v: torch.native_batch_norm(a, w, m, None, None, True, 0.2, 1e-3),
    "legit": lambda a, w, m, v: torch.ops.aten._native_batch_norm_legit(a, w, w, m, v, True, 0.2, 1e-3),
    "with update": lambda a, w, m, v: torch.ops.aten._batch_norm_with_update(a, w, w, m, v, 0.2, 1e-3),
    "layer": lambda a, w, m, v: torch.batch_norm(a, w, w, m, v, True, 0.2, 1e-3, False),
}


@pytest.mark.parametrize("name", NORMALISED)
def test_native_batch_norm(name: str) -> None:
    program = torch.jit.trace(NORMALISED[name], _for_statistics(2), check_trace=False)
    with shapevm.compile(program, args=_for_statistics(2)) as exe:
        assert "PyTorch" not in str(exe)
        for n in (2, 5, 1):
            args, own = _for_statistics(n), _for_statistics(n)
            assert_close(exe(*args), NORMALISED[name](*own))
            assert_close(args, own)


def _for_statistics(n: int) -> tuple[Tensor, ...]:
    torch.manual_seed(n)
    return torch.randn(n, 3, 4), torch.rand(3), torch.rand(3), torch.rand(3)


class Attends(nn.Module):
    """Attention with a mask of keys, of scores, or none."""

    def __init__(self, kind: str, need_weights: bool = True) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.kind, self.need_weights = kind, need_weights

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        keys, scores = (mask, None) if self.kind == "keys" else (None, mask)
        found = self.attention(
            x, x, x, key_padding_mask=keys, attn_mask=scores, need_weights=self.need_weights
        )
        return found[0], found[0] if found[1] is None else found[1]


class Encodes(nn.Module):
    """Two layers with a mask of keys."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.encoder(x, src_key_padding_mask=mask)


_CAUSAL = torch.ones(3, 3, dtype=torch.bool).triu(1)
FAST: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {
    "no mask": (Attends(""), (x(2, 3, 8),)),
    "no weights": (Attends("", need_weights=False), (x(2, 3, 8),)),
    "keys": (Attends("keys"), (x(2, 3, 8), _PADDING)),
    "scores": (Attends("scores"), (x(2, 3, 8), _CAUSAL)),
    "encoder": (Encodes(), (x(2, 3, 8), _PADDING)),
}


@pytest.mark.parametrize("name", FAST)
def test_the_fast_path_of_attention(name: str) -> None:
    module, args = FAST[name]
    with torch.no_grad():
        program = torch.jit.trace(module.eval(), args)
        assert "_native_multi_head" in str(program.inlined_graph) or "_fwd" in str(program.inlined_graph)
        with shapevm.compile(program, args=args) as exe:
            assert "PyTorch" not in str(exe)
            assert_close(exe(*args), module(*args), rtol=1e-5, atol=1e-5)
            one = tuple(arg if arg is _CAUSAL else arg[:1] for arg in args)
            assert_close(exe(*one), module(*one), rtol=1e-5, atol=1e-5)


def test_named_tuples_come_back_as_such() -> None:
    with shapevm.compile(torch.jit.script(Finds()), args=(x(3),)) as exe:
        one, (other,) = exe(x(4))
    assert isinstance(one, Found) and isinstance(other, Found)
    assert_close(one.scores, x(4) * 2)
    assert (one.length, other.length) == (4, 1)


def transposed_strides(a: Tensor) -> int:
    return a.t().stride(0)


def strides_of_a_transposed_layout(a: Tensor) -> Tensor:
    return (a.t() * 2).as_strided([2], [1])


@pytest.mark.parametrize("function", [transposed_strides, strides_of_a_transposed_layout])
def test_strides_that_are_not_known_are_refused(function: Any) -> None:
    with pytest.raises(shapevm.UnsupportedOp, match="not known how the tensor lies in memory"):
        shapevm.compile(torch.jit.script(function), args=(x(2, 3),))


def strides_of_an_argument(a: Tensor) -> Tensor:
    return torch.as_strided(torch.relu(a), [6], [1])


def columns_of_an_argument(a: Tensor) -> Tensor:
    return a * a.stride(0)


@pytest.mark.parametrize("function", [strides_of_an_argument, columns_of_an_argument])
def test_an_argument_that_lies_otherwise_is_refused(function: Any) -> None:
    with shapevm.compile(torch.jit.script(function), args=(x(2, 3),)) as exe:
        assert_close(exe(x(2, 3)), function(x(2, 3)))
        with pytest.raises(shapevm.ArgumentError, match='"a".* contiguous copy'):
            exe(x(3, 2).t())


def axes_of_an_argument(a: Tensor) -> Tensor:
    return a.unsqueeze_(0)


def test_the_axes_of_an_argument_are_not_changed() -> None:
    with pytest.raises(shapevm.UnsupportedOp, match="cannot be changed in place; use unsqueeze"):
        shapevm.compile(torch.jit.script(axes_of_an_argument), args=(x(2, 3),))
