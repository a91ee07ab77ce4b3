"""Small random models whose sizes are free: arithmetic of shapes, broadcasts, slices, products."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import onnx

from tests.compiler.frontends.onnx.onnx_models import model_of, node

#: The values of each free size, one for each call. `c` is that of `a`, or 1.
SIZES = {"a": (0, 1, 2, 7, 13), "b": (3, 1, 0, 2, 5), "c": (1, 1, 2, 1, 13)}
N_CALLS = 5
MAX_ELEMENTS = 1 << 14

Size = tuple[int, ...]  # of an axis, in each call


def fixed(size: int) -> Size:
    """Return a size that is the same in each call."""
    return (size,) * N_CALLS


def is_fixed(size: Size) -> bool:
    """Whether a size is the same in each call."""
    return len(set(size)) == 1


@dataclass
class Tensor:
    """A tensor of f32: its name and its sizes."""

    name: str
    shape: list[Size]


@dataclass
class Writer:
    """Writes the nodes of one model."""

    draw: random.Random
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, Any] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)

    def add(self, op: str, *inputs: str, n: int = 1, **attributes: Any) -> Any:
        """Append a node; return the names of its results, or the only one."""
        names = [f"{op.lower()}_{len(self.nodes)}_{i}" for i in range(n)]
        self.nodes.append(node(op, list(inputs), names, **attributes))
        return names[0] if n == 1 else names

    def weight(self, value: Any, dtype: Any = np.int64) -> str:
        """Append a constant."""
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(value, dtype)
        return name

    def size_of(self, x: Tensor, axis: int) -> str:
        """Append what reads one size of a tensor, as a list of one."""
        shape = self.add("Shape", x.name)
        return str(self.add("Gather", shape, self.weight([axis]), axis=0))

    def result(self, name: str, shape: list[Size]) -> Tensor:
        """Return a tensor that may be used from now on."""
        made = Tensor(name, shape)
        self.tensors.append(made)
        return made

    def floats(self, *shape: int) -> str:
        """Append a constant of random numbers."""
        values = np.random.default_rng(self.draw.randrange(1 << 30)).standard_normal(shape, np.float32)
        return self.weight(values, np.float32)


Step = Callable[[Writer, Tensor], Any]


def _broadcast(x: Tensor, y: Tensor) -> list[Size] | None:
    rank = max(len(x.shape), len(y.shape))
    shapes = [[fixed(1)] * (rank - len(each.shape)) + each.shape for each in (x, y)]
    made = []
    for p, q in zip(*shapes, strict=True):
        if any(i != j and 1 not in (i, j) for i, j in zip(p, q, strict=True)):
            return None
        made.append(tuple(j if i == 1 else i for i, j in zip(p, q, strict=True)))
    fits = all(prod(size[i] for size in made) <= MAX_ELEMENTS for i in range(N_CALLS))
    return made if fits else None


def unary(w: Writer, x: Tensor) -> Any:
    """An operator on elements."""
    return w.result(w.add(w.draw.choice(["Neg", "Tanh", "Relu", "Abs", "Sigmoid"]), x.name), x.shape)


def binary(w: Writer, x: Tensor) -> Any:
    """An operator on the elements of two tensors, or a choice between them."""
    y = w.draw.choice(w.tensors)
    shape = _broadcast(x, y)
    if shape is None:
        return None
    if w.draw.random() < 0.3:
        above = w.add("Greater", x.name, y.name)
        return w.result(w.add("Where", above, x.name, y.name), shape)
    return w.result(w.add(w.draw.choice(["Add", "Sub", "Mul", "Max", "Min"]), x.name, y.name), shape)


def reshape(w: Writer, x: Tensor) -> Any:
    """Two neighbouring axes become one, by arithmetic of shapes, or all of them do."""
    if len(x.shape) < 2 or w.draw.random() < 0.2:
        total = tuple(prod(size[i] for size in x.shape) for i in range(N_CALLS))
        return w.result(w.add("Reshape", x.name, w.weight([-1])), [total])
    at = w.draw.randrange(len(x.shape) - 1)
    parts = [w.size_of(x, i) for i in range(len(x.shape))]
    merged = w.add("Mul", parts[at], parts[at + 1])
    wanted = w.add("Concat", *parts[:at], merged, *parts[at + 2 :], axis=0)
    size = tuple(p * q for p, q in zip(x.shape[at], x.shape[at + 1], strict=True))
    shape = [*x.shape[:at], size, *x.shape[at + 2 :]]
    return w.result(w.add("Reshape", x.name, wanted, allowzero=1), shape)


def cut(w: Writer, x: Tensor) -> Any:
    """A slice with constant bounds, or the first half of an axis."""
    if not x.shape:
        return None
    axis = w.draw.randrange(len(x.shape))
    axes = w.weight([axis])
    if w.draw.random() < 0.4:
        end = w.add("Div", w.size_of(x, axis), w.weight([2]))
        name = w.add("Slice", x.name, w.weight([0]), end, axes)
        size = tuple(n // 2 for n in x.shape[axis])
    else:
        start, end = w.draw.choice([0, 1, -2, -1]), w.draw.choice([2, -1, 2**31 - 1, 2**63 - 1, -3])
        step = w.draw.choice([1, 1, 2, -1])
        if step < 0:
            start, end = w.draw.choice([-1, 2**31 - 1]), w.draw.choice([-(2**63) + 1, 0, -3])
        name = w.add("Slice", x.name, w.weight([start]), w.weight([end]), axes, w.weight([step]))
        size = tuple(len(range(n)[start:end:step]) for n in x.shape[axis])
    return w.result(name, [*x.shape[:axis], size, *x.shape[axis + 1 :]])


def take(w: Writer, x: Tensor) -> Any:
    """Elements by constant positions of an axis whose size is constant."""
    axes = [i for i, size in enumerate(x.shape) if is_fixed(size) and size[0] > 0]
    if not axes:
        return None
    axis = w.draw.choice(axes)
    size = x.shape[axis][0]
    index = [w.draw.randrange(-size, size) for _ in range(w.draw.choice([1, 2, 3]))]
    is_scalar = len(index) == 1 and w.draw.random() < 0.5
    name = w.add("Gather", x.name, w.weight(index[0] if is_scalar else index), axis=axis)
    middle = [] if is_scalar else [fixed(len(index))]
    return w.result(name, [*x.shape[:axis], *middle, *x.shape[axis + 1 :]])


def total(w: Writer, x: Tensor) -> Any:
    """A reduction."""
    if not x.shape:
        return None
    axis, keep = w.draw.randrange(len(x.shape)), w.draw.choice([0, 1])
    op = w.draw.choice(["ReduceSum", "ReduceMax", "ReduceMean"] if min(x.shape[axis]) else ["ReduceSum"])
    name = w.add(op, x.name, w.weight([axis]), keepdims=keep)
    return w.result(name, [*x.shape[:axis], *([fixed(1)] if keep else []), *x.shape[axis + 1 :]])


def concat(w: Writer, x: Tensor) -> Any:
    """A tensor beside a changed copy of itself."""
    if not x.shape:
        return None
    axis = w.draw.randrange(len(x.shape))
    name = w.add("Concat", x.name, w.add("Neg", x.name), axis=axis)
    return w.result(name, [*x.shape[:axis], tuple(2 * n for n in x.shape[axis]), *x.shape[axis + 1 :]])


def matmul(w: Writer, x: Tensor) -> Any:
    """A product with weights, or with the transposed tensor."""
    if not x.shape:
        return None
    if is_fixed(x.shape[-1]) and w.draw.random() < 0.6:
        return w.result(w.add("MatMul", x.name, w.floats(x.shape[-1][0], 4)), [*x.shape[:-1], fixed(4)])
    if len(x.shape) < 2:
        return None
    order = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
    other = w.add("Transpose", x.name, perm=order)
    return w.result(w.add("MatMul", x.name, other), [*x.shape[:-1], x.shape[-2]])


def conv(w: Writer, x: Tensor) -> Any:
    """A convolution with padding, which keeps the length; as PyTorch's it needs a padded length of 3."""
    if len(x.shape) != 3 or not is_fixed(x.shape[1]) or x.shape[1][0] == 0 or not min(x.shape[2]):
        return None
    made = w.add("Conv", x.name, w.floats(2, x.shape[1][0], 3), pads=[1, 1])
    return w.result(made, [x.shape[0], fixed(2), x.shape[2]])


def expand(w: Writer, x: Tensor) -> Any:
    """Copies along a new first axis, or the shape of another tensor."""
    y = w.draw.choice(w.tensors)
    shape = _broadcast(x, y)
    if shape is not None and w.draw.random() < 0.5:
        return w.result(w.add("Expand", x.name, w.add("Shape", y.name)), shape)
    wanted = w.add("Concat", w.weight([2]), w.add("Shape", x.name), axis=0)
    return w.result(w.add("Expand", x.name, wanted), [fixed(2), *x.shape])


def transpose(w: Writer, x: Tensor) -> Any:
    """Axes in another order."""
    if not x.shape:
        return None
    order = w.draw.sample(range(len(x.shape)), len(x.shape))
    return w.result(w.add("Transpose", x.name, perm=order), [x.shape[i] for i in order])


def softmax(w: Writer, x: Tensor) -> Any:
    """A softmax along an axis that has elements."""
    axes = [i for i, size in enumerate(x.shape) if min(size)]
    return w.result(w.add("Softmax", x.name, axis=w.draw.choice(axes)), x.shape) if axes else None


def pad(w: Writer, x: Tensor) -> Any:
    """Zeros around the last axis, or without its ends."""
    if not x.shape:
        return None
    low, high = w.draw.choice([(1, 2), (0, 1), (2, 0)])
    amounts = [0] * (2 * len(x.shape))
    amounts[len(x.shape) - 1], amounts[-1] = low, high
    name = w.add("Pad", x.name, w.weight(amounts))
    return w.result(name, [*x.shape[:-1], tuple(n + low + high for n in x.shape[-1])])


STEPS: tuple[Step, ...] = (
    unary, binary, binary, reshape, cut, cut, take, total, concat, matmul, conv, expand, transpose, softmax,
    pad,
)  # fmt: skip


def random_model(seed: int) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """Return a model of 3 to 8 random steps and its inputs in each call."""
    w = Writer(random.Random(seed))
    inputs: dict[str, list[Any]] = {}
    sizes = {**SIZES, **{str(n): fixed(n) for n in (1, 2, 3)}}
    for name in ("x", "y"):
        names = [w.draw.choice(list(sizes)) for _ in range(w.draw.choice([1, 2, 3, 3]))]
        inputs[name] = [int(each) if each.isdigit() else each for each in names]
        w.result(name, [sizes[each] for each in names])
    n_steps, done = w.draw.randint(3, 8), 0
    while done < n_steps:
        x = w.draw.choice(w.tensors[-3:])
        is_small = all(prod(size[i] for size in x.shape) <= MAX_ELEMENTS // 16 for i in range(N_CALLS))
        done += is_small and w.draw.choice(STEPS)(w, x) is not None
        done += not is_small
    outputs = [w.tensors[-1].name, w.tensors[-2].name]
    draw = np.random.default_rng(seed)
    calls = [
        {
            name: draw.standard_normal([SIZES[s][i] if isinstance(s, str) else s for s in shape], np.float32)
            for name, shape in inputs.items()
        }
        for i in range(N_CALLS)
    ]
    return model_of(w.nodes, inputs, w.weights, outputs), calls
