"""Linear algebra, which PyTorch does: what LAPACK reports is checked at every call."""

import pytest
import torch

import shapevm


class Inverse(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(x)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_singular_matrix_is_refused(batch: tuple[int, ...]) -> None:
    x = torch.eye(4).expand(*batch, 4, 4) * 2.0
    exe = shapevm.compile(Inverse(), (x.clone(),), strategy="generic")
    torch.testing.assert_close(exe(x.clone()), torch.linalg.inv(x))
    singular = x.clone()
    singular[..., 1, :] = 0
    with pytest.raises(shapevm.Error, match=r"linalg.inv: LAPACK fails, as for a matrix that is singular"):
        exe(singular)


class Svd(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.svd(x))


def test_what_torch_cannot_trace_freely_is_traced_at_the_examples_size() -> None:
    sizes = ({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},)
    exe = shapevm.compile(Svd(), (torch.zeros(0, 0),), dynamic_shapes=sizes)
    assert [found.shape for found in exe(torch.zeros(0, 0))] == [(0, 0), (0,), (0, 0)]
    with pytest.raises(shapevm.ShapeError, match="must be 0"):
        exe(torch.randn(3, 4))
    exe = shapevm.compile(Svd(), (torch.randn(3, 4),), dynamic_shapes=sizes, strategy="generic")
    for x in (torch.randn(4, 4), torch.zeros(0, 0)):
        assert [found.shape for found in exe(x)] == [wanted.shape for wanted in torch.svd(x)]
