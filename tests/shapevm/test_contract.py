"""What a program takes: every size in the ranges is right, every other call is refused in one sentence."""

import pytest
import torch
from torch.export import Dim

import shapevm

H = Dim("h", min=1, max=100)


def R(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def halves(self, x, y):
    return x + y[::2]


def tail(self, x, y):
    return x * y[1:]


def pairs(self, y):
    return y[1:].reshape(-1, 2).sum(1)


def fours(self, x):
    return x.view(-1, 4).sum(1)


def add(self, x, y):
    return x + y


def flat_add(self, x, y):
    return x.reshape(-1) + y


def product(self, x, y):
    return x @ y


def branch(self, x):
    return x + 1 if x.shape[0] > 5 else x - 1


AUTO = Dim.AUTO
#: model, example sizes, dynamic_shapes, sizes that it takes, sizes that it refuses and words of the sentence.
CASES = {
    "twice": (
        halves, [(3,), (6,)], ({0: H}, {0: 2 * H}), [[(1,), (2,)], [(100,), (200,)]],
        {
            ((4,), (7,)): 'input "y": axis 0 has size 7; it must be 2*h with a whole h',
            ((4,), (10,)): 'input "y": axis 0 has size 10, so h is 5; but input "x": axis 0 has size 4',
            ((101,), (202,)): 'input "x": axis 0 has size 101, so h is 101; it must be at most 100',
        },
    ),
    "one more": (
        tail, [(3,), (4,)], ({0: H}, {0: H + 1}), [[(1,), (2,)], [(7,), (8,)]],
        {
            ((4,), (4,)): 'input "y": axis 0 has size 4, so h is 3; but input "x": axis 0 has size 4',
            ((0,), (1,)): 'input "x": axis 0 has size 0, so h is 0; it must be at least 1',
        },
    ),
    "odd": (
        pairs, [(7,)], ({0: 2 * H + 1},), [[(3,)], [(201,)]],
        {
            ((8,),): 'input "y": axis 0 has size 8; it must be 2*h+1 with a whole h',
            ((1,),): 'input "y": axis 0 has size 1, so h is 0; it must be at least 1',
            ((203,),): "so h is 101; it must be at most 100",
        },
    ),
    "a multiple": (
        fours, [(8,)], ({0: 4 * Dim("q", min=1, max=25)},), [[(4,)], [(100,)]],
        {
            ((6,),): 'input "x": axis 0 has size 6; it must be 4*q with a whole q',
            ((0,),): "so q is 0; it must be at least 1",
        },
    ),
    "a multiple that tracing found": (
        fours, [(8,)], ({0: AUTO},), [[(4,)], [(100,)], [(0,)]],
        {((6,),): 'input "x": axis 0 has size 6, so s0 is 6; it must be a multiple of 4'},
    ),
    "equal": (
        add, [(3,), (3,)], ({0: H}, {0: H}), [[(1,), (1,)], [(7,), (7,)]],
        {
            ((4,), (5,)): 'input "y": axis 0 has size 5, so h is 5; but input "x": axis 0 has size 4',
            ((4,), (1,)): 'input "y": axis 0 has size 1, so h is 1; but',
        },
    ),
    "equal, found by tracing": (
        add, [(3,), (3,)], ({0: AUTO}, {0: AUTO}), [[(2,), (2,)], [(7,), (7,)]],
        {((4,), (5,)): 'input "y": axis 0 has size 5, so s0 is 5; but input "x": axis 0 has size 4'},
    ),
    "a multiple of another": (
        flat_add, [(3, 4), (12,)], ({0: AUTO}, {0: AUTO}), [[(2, 4), (8,)]],
        {((2, 4), (9,)): 'input "y": axis 0 has size 9; it must be 4*s0 with a whole s0'},
    ),
    "a product of others": (
        flat_add, [(3, 4), (12,)], ({0: AUTO, 1: AUTO}, {0: AUTO}), [[(2, 5), (10,)], [(7, 3), (21,)]],
        {((2, 4), (9,)): 'input "y": axis 0 must have size s0*s1, as other inputs determine s0, s1; here s0'},
    ),
    "three sizes": (
        product, [(3, 4), (4, 5)],
        ({0: Dim("m", min=0), 1: Dim("k", min=0)}, {0: Dim("k", min=0), 1: Dim("n", min=0)}),
        [[(2, 3), (3, 2)], [(1, 1), (1, 1)], [(0, 3), (3, 2)], [(2, 0), (0, 2)], [(2, 3), (3, 0)]],
        {((2, 3), (4, 2)): 'input "y": axis 0 has size 4, so k is 4; but input "x": axis 1 has size 3'},
    ),
    "fixed": (
        add, [(3, 4), (4,)], None, [[(3, 4), (4,)]],
        {
            ((3, 5), (4,)): 'input "x": axis 1 has size 5; it must be 4',
            ((4, 4), (4,)): 'input "x": axis 0 has size 4; it must be 3',
        },
    ),
    "from the model's own branch": (
        branch, [(8,)], ({0: AUTO},), [[(6,)], [(60,)]],
        {((5,),): 'input "x": axis 0 has size 5, so s0 is 5; it must be at least 6'},
    ),
    "at least": (
        branch, [(8,)], ({0: Dim("b", min=7, max=9)},), [[(7,)], [(9,)]],
        {((6,),): "so b is 6; it must be at least 7 (dynamic_shapes: b)", ((10,),): "it must be at most 9"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_contract(build, name):
    forward, example, dynamic_shapes, taken, refused = CASES[name]
    exe = build(forward, *(R(*shape) for shape in example), dynamic_shapes=dynamic_shapes)
    for shapes in [example, *taken, example]:
        args = [R(*shape) for shape in shapes]
        for _ in range(2):
            torch.testing.assert_close(exe(*args), forward(None, *args))
    for shapes, words in refused.items():
        for give in (lambda t: t, lambda t: t.numpy()):
            with pytest.raises(shapevm.Error) as caught:
                exe(*(give(R(*shape)) for shape in shapes))
            assert words in str(caught.value) and "\n" not in str(caught.value)


def test_bind_tells_the_sizes_and_runs_nothing(build):
    exe = build(halves, R(3), R(6), dynamic_shapes=({0: H}, {0: 2 * H}))
    assert exe.bind(R(5), R(10)) == {"h": 5} == exe.bind(y=R(10), x=R(5))
    with pytest.raises(shapevm.ShapeError, match="it must be at most 100"):
        exe.bind(R(101), R(202))
    assert exe.stats().calls == 0


def test_a_call_that_is_refused_changes_nothing(build):
    exe = build(add, R(3), R(3), dynamic_shapes=({0: H}, {0: H}))
    exe(R(4), R(4))
    before = exe.stats()
    with pytest.raises(shapevm.ShapeError):
        exe(R(4), R(5))
    after = exe.stats()
    assert (after.plans, after.entries) == (before.plans, before.entries)
    torch.testing.assert_close(exe(R(4), R(4)), R(4) * 2)


def test_an_index_out_of_range_is_refused(build):
    table = torch.nn.Embedding(10, 4)
    exe = build(table, torch.tensor([1, 2]), dynamic_shapes=({0: Dim("n", min=0)},))
    for ids in ([0, 9, 5], []):
        ids = torch.tensor(ids, dtype=torch.int64)
        torch.testing.assert_close(exe(ids), table(ids).detach())
    for wrong in (10, -1, 2**40, -(2**63)):
        with pytest.raises(IndexError) as caught:
            exe(torch.tensor([1, wrong]))
        assert str(wrong) in str(caught.value) and "10" in str(caught.value)
