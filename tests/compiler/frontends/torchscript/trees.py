"""Programs over trees. TorchScript has no recursion: a tree is a table of children, or a list of actions of a
stack machine. Each program runs at any tree."""

from __future__ import annotations

import torch
from torch import Tensor

from .programs import program, x

HIDDEN = 4


def _weights(*shape: int) -> Tensor:
    return x(*shape) * 0.3


BINARY = (_weights(5 * HIDDEN, HIDDEN), _weights(5 * HIDDEN, HIDDEN), _weights(5 * HIDDEN))
CHILD_SUM = (_weights(3 * HIDDEN, HIDDEN), _weights(HIDDEN, HIDDEN), _weights(4 * HIDDEN))


def tree(*children: tuple[int, int]) -> Tensor:
    """Return a table of children; -1: none."""
    return torch.tensor(children, dtype=torch.int64).reshape(-1, 2)


BALANCED = tree((-1, -1), (-1, -1), (0, 1), (-1, -1), (-1, -1), (3, 4), (2, 5))
CHAIN = tree((-1, -1), (-1, -1), (0, 1), (-1, -1), (2, 3))
LEAF = tree((-1, -1))


@program(
    (x(7, HIDDEN), BALANCED, *BINARY),
    (x(5, HIDDEN), CHAIN, *BINARY),
    (x(1, HIDDEN), LEAF, *BINARY),
)
def binary_tree_lstm(words: Tensor, children: Tensor, left: Tensor, right: Tensor, bias: Tensor) -> Tensor:
    hs: list[Tensor] = []
    cs: list[Tensor] = []
    n = left.size(1)
    for i in range(words.size(0)):
        a = int(children[i, 0])
        b = int(children[i, 1])
        if a < 0:
            c = words[i]
            h = torch.tanh(c)
        else:
            gates = torch.mv(left, hs[a]) + torch.mv(right, hs[b]) + bias
            i_gate = torch.sigmoid(gates[:n])
            f_left = torch.sigmoid(gates[n : 2 * n])
            f_right = torch.sigmoid(gates[2 * n : 3 * n])
            o_gate = torch.sigmoid(gates[3 * n : 4 * n])
            c = i_gate * torch.tanh(gates[4 * n :]) + f_left * cs[a] + f_right * cs[b]
            h = o_gate * torch.tanh(c)
        hs.append(h)
        cs.append(c)
    return hs[-1]


@program(
    (x(5, HIDDEN), torch.tensor([2, 2, 4, 4, -1]), *CHILD_SUM),
    (x(4, HIDDEN), torch.tensor([3, 3, 3, -1]), *CHILD_SUM),
    (x(1, HIDDEN), torch.tensor([-1]), *CHILD_SUM),
)
def child_sum_tree_lstm(words: Tensor, parents: Tensor, w: Tensor, u: Tensor, bias: Tensor) -> Tensor:
    n = u.size(0)
    hs = torch.zeros(words.size(0), n)
    cs = torch.zeros(words.size(0), n)
    for i in range(words.size(0)):
        h_sum = torch.zeros(n)
        forgotten = torch.zeros(n)
        for k in range(i):
            if int(parents[k]) == i:
                h_sum = h_sum + hs[k]
                f = torch.sigmoid(torch.mv(u, hs[k]) + words[i] + bias[3 * n :])
                forgotten = forgotten + f * cs[k]
        gates = torch.mv(w, words[i] + h_sum) + bias[: 3 * n]
        cs[i] = torch.sigmoid(gates[:n]) * torch.tanh(gates[2 * n :]) + forgotten
        hs[i] = torch.sigmoid(gates[n : 2 * n]) * torch.tanh(cs[i])
    return hs


@program(
    (x(3, HIDDEN), torch.tensor([0, 0, 1, 0, 1])),
    (x(2, HIDDEN), torch.tensor([0, 0, 1])),
    (x(1, HIDDEN), torch.tensor([0])),
    (x(4, HIDDEN), torch.tensor([0, 0, 0, 0, 1, 1, 1])),
)
def shift_reduce(words: Tensor, actions: Tensor) -> Tensor:
    stack: list[Tensor] = []
    position = 0
    for i in range(actions.size(0)):
        if int(actions[i]) == 0:
            stack.append(words[position])
            position += 1
        else:
            right = stack.pop()
            left = stack.pop()
            stack.append(torch.tanh(left * 0.5 - right))
    return stack[-1]


@program((BALANCED,), (CHAIN,), (LEAF,))
def depth_of_a_tree(children: Tensor) -> int:
    stack = [(children.size(0) - 1, 1)]
    deepest = 0
    while len(stack) > 0:
        node, depth = stack.pop()
        deepest = max(deepest, depth)
        left = int(children[node, 0])
        if left >= 0:
            stack.append((left, depth + 1))
            stack.append((int(children[node, 1]), depth + 1))
    return deepest


@program((BALANCED,), (CHAIN,), (LEAF,))
def counts_the_leaves(children: Tensor) -> int:
    pending = [children.size(0) - 1]
    leaves = 0
    while pending:
        node = pending.pop()
        left = int(children[node, 0])
        if left < 0:
            leaves += 1
        else:
            pending.append(left)
            pending.append(int(children[node, 1]))
    return leaves


@program((x(7), BALANCED), (x(5), CHAIN), (x(1), LEAF))
def sums_of_subtrees(values: Tensor, children: Tensor) -> list[float]:
    sums: list[float] = []
    for i in range(values.size(0)):
        total = float(values[i])
        for side in range(2):
            child = int(children[i, side])
            if child >= 0:
                total += sums[child]
        sums.append(total)
    return sums


@program((torch.tensor([3, 1, 2, 0]),), (torch.tensor([0]),), (torch.tensor([2, 2, 1, 1, 0, 5]),))
def sorts_by_insertion(values: Tensor) -> list[int]:
    found: list[int] = []
    for i in range(values.size(0)):
        found.append(int(values[i]))
        k = i
        while k > 0 and found[k - 1] > found[k]:
            kept = found[k]
            found[k] = found[k - 1]
            found[k - 1] = kept
            k -= 1
    return found
