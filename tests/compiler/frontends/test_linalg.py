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
