"""Example arguments that are cut: what lies behind them."""

import ctypes

import pytest
import torch

from shapevm.build.apart import Apart, CallFailed
from shapevm.build.cutting import _FENCE, _fenced


def read_behind(tensor: torch.Tensor, n_bytes: int) -> int:
    """Read the byte that lies so far behind a tensor."""
    return ctypes.c_uint8.from_address(tensor.data_ptr() + tensor.nbytes + n_bytes).value


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float32, torch.complex128])
@pytest.mark.parametrize("n_elements", [64, 1000, 4096])
def test_reading_behind_an_argument_ends_its_process_only(dtype: torch.dtype, n_elements: int) -> None:
    tensor = _fenced(n_elements, dtype)
    assert tensor.shape == (n_elements,) and tensor.storage_offset() == 0
    assert torch.equal(tensor.fill_(1), torch.ones(n_elements, dtype=dtype))
    with Apart(tensor) as apart:
        assert apart(read_behind, -1) >= 0
        for n_bytes in (0, 12345, _FENCE - 1):
            with pytest.raises(CallFailed, match="SIGSEGV"):
                apart(read_behind, n_bytes)
