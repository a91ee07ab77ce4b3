"""Complex tensors: PyTorch's values and dtypes, without a call of PyTorch, and with one for the rest."""

import pytest
import torch

from .compiled import check

F32, F64 = torch.float32, torch.float64
SIZES = (6, 1, 0)


def real(found):
    leaves = found if isinstance(found, tuple | list) else [found]
    return tuple(torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in leaves)


UNARY = {
    "parts": lambda z: (z.real, z.imag, z.conj(), -z),
    "magnitudes": lambda z: (z.abs(), z.angle(), z.abs() ** 2),
    "functions": lambda z: (z.exp(), z.log(), z**2, z**3, 1 / z, z.reciprocal()),
    "numbers": lambda z: (z * 2, z * 1j, z + 1, z - (1 + 2j), z / 3, z / (1 - 2j), 2 - z),
    "views": lambda z: (
        z.T, z[:, 1:], z[:, None], z.flip(1), z.reshape(-1), z[:, 2], z.expand(2, *z.shape), *z.split(2, 1),
        z.unbind(1)[0], z.roll(1, 1), torch.cat([z, z], 1), torch.stack([z, z.conj()]), z[:, [2, 0]],
    ),
    "padding": lambda z: (
        torch.nn.functional.pad(z, (1, 2)), torch.nn.functional.pad(z, (1, 2), value=3.0),
        torch.where(z.real > 0, z, 0), z.masked_fill(z.real > 0, 2.0),
    ),
    "sums": lambda z: (z.sum(1), z.mean(1), z.cumsum(1), z.sum()),
    "new tensors": lambda z: (
        torch.zeros_like(z), z.new_zeros(2, 3), torch.zeros(3, dtype=z.dtype), torch.full((2,), 1 + 2j),
        torch.cat([z, torch.zeros(z.shape[0], 1, dtype=z.dtype)], 1),
    ),
    "tests": lambda z: (z == z.conj(), z != z.conj(), torch.isnan(z), torch.isfinite(z)),
    "dtypes": lambda z: (z.to(torch.complex64), z.to(torch.complex128), z.real.to(torch.complex64)),
}  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), [*((name, F32) for name in UNARY), ("functions", F64)])
def test_of_one(name, dtype):
    exe = check(lambda x, y: real(UNARY[name](torch.complex(x, y))), [(("n", 4), dtype)] * 2, SIZES)
    assert not exe.machine.externs


BINARY = {
    "arithmetic": lambda z, w: (z + w, z - w, z * w, z / w, torch.add(z, w, alpha=2)),
    "with real tensors": lambda z, w: (z * w.real, w.real + z, z / w.real, w.imag / z, w.imag - z),
    "products": lambda z, w: (z @ w.T, z @ w.T.conj(), torch.einsum("ni,ni->n", z, w)),
    "wider dtypes": lambda z, w: (z * w.real.double(), z + w.to(torch.complex128), z * torch.tensor(1j)),
    "batches": lambda z, w: (z[None].expand(2, -1, -1) @ w.T, z @ w[0]),
}


@pytest.mark.parametrize("name", BINARY)
def test_of_two(name):
    def forward(a, b, c, d):
        return real(BINARY[name](torch.complex(a, b), torch.complex(c, d)))

    exe = check(forward, [(("n", 4), F32)] * 4, (6, 1))
    assert not exe.machine.externs


def test_numbers_that_are_neither_too_large_nor_too_small_stay_so():
    x = torch.tensor([1e30, 1e-30, 3e38, 1e-38])

    def forward(x):
        z = torch.complex(x, x)
        return real((z / z, 1 / z, z.abs() / 2))

    check(forward, [((4,), F32)], make=lambda *_: x)


def test_operators_without_a_rule_are_called_in_pytorch():
    exe = check(lambda x, y: real(torch.complex(x, y).sqrt() * 2), [(("n", 4), F32)] * 2, SIZES)
    assert exe.machine.externs == ("aten::sqrt.default",)
