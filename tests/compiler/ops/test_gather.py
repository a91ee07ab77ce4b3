import re

import pytest
import torch

import shapevm
from shapevm.errors import IndexOutOfRange

X, ROWS, COLUMNS = torch.randn(4, 5), torch.tensor([1, 2]), torch.tensor([0, 3])


def read(x, i, j):
    return x[i, j]


def read_rows(x, i):
    return x[i]


def read_columns(x, i):
    return x[:, i]


def put(x, i, j):
    x = x.clone()
    x[i, j] = 1.0
    return x


def fill(x, i):
    return x.index_fill(1, i, 2.0)


def take(x, i):
    return x.take(i)


def scatter(x, i):
    return x.scatter(0, i[:, None], 2.0)


def count_up(x, i):
    return x.index_add(0, i, x[: i.shape[0]])


def add_up(x, i):
    return x.scatter_add(1, i[None], x[:1, : i.shape[0]])


WRONG = [
    (read, {"i": 4}, 4),
    (read, {"i": -5}, 4),
    (read, {"j": 7}, 5),
    (read, {"j": -6}, 5),
    (read, {"i": -(2**60)}, 4),
    (read_rows, {"i": 4}, 4),
    (read_rows, {"i": -7}, 4),
    (read_columns, {"i": -6}, 5),
    (put, {"i": 9}, 4),
    (put, {"j": -8}, 5),
    (fill, {"i": -6}, 5),
    (take, {"i": -21}, 20),
    (scatter, {"i": -1}, 4),
    (count_up, {"i": 4}, 4),
    (add_up, {"i": 5}, 5),
]


class Program(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, i):
        return self.function(x, i)


class Pair(Program):
    def forward(self, x, i, j):
        return self.function(x, i, j)


def arguments(function):
    return (X, ROWS, COLUMNS) if function in (read, put) else (X, ROWS)


@pytest.mark.parametrize("is_script", [False, True])
@pytest.mark.parametrize(("function", "wrong", "size"), WRONG)
def test_an_index_error_names_the_input_and_the_index_as_given(function, wrong, size, is_script):
    args = arguments(function)
    ((name, value),) = wrong.items()
    with torch.no_grad():
        if is_script:
            exe = shapevm.compile(torch.jit.script(function), args=args)
        else:
            auto = torch.export.Dim.AUTO
            shapes = ({0: auto, 1: auto}, *({0: auto} for _ in args[1:]))
            kind = Pair if len(args) == 3 else Program
            exe = shapevm.compile(kind(function), args, dynamic_shapes=shapes)
    bad = torch.tensor([0, value])
    given = [bad if n == name else t for n, t in zip("xij", args, strict=False)]
    said = rf"by [ij, ]*\b{name}\b.*\": index {value} is out of range for an axis of size {size} "
    with pytest.raises(IndexOutOfRange, match=said) as caught:
        exe(*given)
    assert not re.search(r"\d{9}", str(caught.value).replace(str(value), ""))
    edges = [torch.tensor([n - 1, -n]) if n else t for n, t in zip((0, 4, 5), args, strict=False)]
    if function in (read, put):
        assert torch.equal(exe(*edges), function(*edges))
