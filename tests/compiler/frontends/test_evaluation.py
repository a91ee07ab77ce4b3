"""Models are compiled in evaluation mode and keep the modes that they had, also those that refuse it."""

from __future__ import annotations

import pytest
import torch
from shapevm.compiler.frontends.evaluation import in_evaluation
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

import shapevm

ROWS = torch.export.Dim("rows", min=1, max=64)


def exported(model: torch.nn.Module, x: torch.Tensor) -> torch.nn.Module:
    """Return the module of torch.export's program."""
    return torch.export.export(model, (x,), dynamic_shapes=({0: ROWS},)).module()


def quantised(model: torch.nn.Module, x: torch.Tensor) -> torch.nn.Module:
    """Return what PT2E gives."""
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(exported(model, x), quantizer)
    prepared(x)
    return convert_pt2e(prepared)


class Around(torch.nn.Module):
    """A module that holds another one."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner, self.drop = inner, torch.nn.Dropout()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply both."""
        return self.drop(self.inner(x))


@pytest.mark.parametrize("is_inside", [False, True])
@pytest.mark.parametrize("made", [exported, quantised])
def test_programs_of_torch_export_compile(made: object, is_inside: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 40)
    model = made(torch.nn.Sequential(torch.nn.Linear(40, 24)).eval(), x)
    with pytest.raises(NotImplementedError):
        model.eval()
    exe = shapevm.compile(Around(model) if is_inside else model, (x,), dynamic_shapes=({0: ROWS},))
    for rows in (1, 5, 33):
        x = torch.randn(rows, 40)
        torch.testing.assert_close(exe(x), model(x), rtol=1e-5, atol=1e-5)


def test_parts_keep_their_modes() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout())
    model[1].eval()  # frozen, as in fine-tuning
    x = torch.randn(5, 4)
    shapevm.compile(model, (x,), dynamic_shapes=({0: ROWS},))
    assert [part.training for part in model.modules()] == [True, True, False, True]
    with in_evaluation(model):
        assert not any(part.training for part in model.modules())
    assert [part.training for part in model.modules()] == [True, True, False, True]
