"""The results of a torch.compile graph: those that its program computes, and those that PyTorch derives from
them.

Code that was traced after the graph relies on PyTorch's layouts, and the caller relies on which results share
memory. So the program does not compute views of arguments, non-contiguous views, and views of a result that
is itself returned or has another returned view: PyTorch creates them from the program's results after each
call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.node import map_arg

from ..compiler.frontends.layout import memory_order, restored
from ..compiler.frontends.views import is_certain_view

aten = torch.ops.aten
#: Called with a graph's arguments and its program's results; returns the graph's results.
Finish = Callable[[Sequence[Any], Sequence[Any]], list[Any]]


def plan_results(module: torch.fx.GraphModule) -> tuple[list[torch.fx.Node], Finish]:
    """Return the nodes that the program of `module` computes, and the function from them to the graph's
    results."""
    plan = _Plan(module.graph)
    results = [plan.value(each) for each in plan.outputs]
    plan.graph.output(results)
    made = torch.fx.GraphModule(torch.nn.Module(), plan.graph)
    return list(plan.computed), made.forward


class _Plan:
    """Builds `graph`, which takes the arguments and the program's results and returns the graph's results.

    `computed`: the nodes that the program computes, and their positions among its results.
    """

    def __init__(self, graph: torch.fx.Graph) -> None:
        nodes = list(graph.nodes)
        self.outputs: Sequence[Any] = nodes[-1].args[0]
        self.graph = torch.fx.Graph()
        self.computed: dict[torch.fx.Node, int] = {}
        self._args, self._results = (self.graph.placeholder(name) for name in ("args", "results"))
        arguments = [node for node in nodes if node.op == "placeholder"]
        self._arguments = {node: i for i, node in enumerate(arguments)}
        self._made: dict[torch.fx.Node, torch.fx.Node] = {}
        self._views = self._views_to_take()

    def _views_to_take(self) -> set[torch.fx.Node]:
        """Return the nodes that PyTorch creates as views."""
        found = [node for node in dict.fromkeys(self.outputs) if isinstance(node, torch.fx.Node)]
        chains = {node: _chain(node) for node in found}
        bases = [chain[-1] for chain in chains.values()]
        return {
            view
            for node, chain in chains.items()
            if chain[-1] in self._arguments or bases.count(chain[-1]) > 1 or _order(node) is not None
            for view in chain[:-1]
        }

    def value(self, found: Any) -> Any:
        """Return the node of `graph` that holds a node's value; return a constant unchanged."""
        if not isinstance(found, torch.fx.Node):
            return found
        if found not in self._made:
            self._made[found] = self._make(found)
        return self._made[found]

    def _make(self, node: torch.fx.Node) -> torch.fx.Node:
        same = next((n for n in self._arguments if _is_same_size(n, node)), node)
        if same in self._arguments:
            return self._item(self._args, self._arguments[same])
        if node in self._views or _is_arithmetic(node):
            args, kwargs = map_arg(node.args, self.value), map_arg(node.kwargs, self.value)
            return self.graph.call_function(node.target, args, kwargs)  # type: ignore[arg-type]
        made = self._item(self._results, self.computed.setdefault(node, len(self.computed)))
        return self._laid_out(made, _order(node))

    def _item(self, container: torch.fx.Node, position: int) -> torch.fx.Node:
        return self.graph.call_function(operator.getitem, (container, position))

    def _laid_out(self, made: torch.fx.Node, order: tuple[int, ...] | None) -> torch.fx.Node:
        if order is None:
            return made
        call = self.graph.call_function
        packed = call(aten.contiguous.default, (call(aten.permute.default, (made, order)),))
        return call(aten.permute.default, (packed, restored(order)))


def _chain(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Return `node` and the chain of nodes that it is a view of."""
    chain = [node]
    while is_certain_view(chain[-1]):
        chain.append(chain[-1].args[0])  # type: ignore[arg-type]
    return chain


def _is_arithmetic(node: torch.fx.Node) -> bool:
    """Return True for arithmetic on sizes."""
    is_size = isinstance(node.meta.get("val"), torch.SymInt)
    return is_size and node.op == "call_function" and not isinstance(node.target, torch._ops.OpOverload)


def _is_same_size(argument: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Return True for a number that is also an argument."""
    mine, other = argument.meta.get("val"), node.meta.get("val")
    if argument is node:
        return True
    if not isinstance(mine, torch.SymInt) or not isinstance(other, torch.SymInt):
        return False
    return bool(mine.node.expr == other.node.expr)


def _order(node: torch.fx.Node) -> tuple[int, ...] | None:
    found = node.meta.get("val")
    return memory_order(found) if isinstance(found, torch.Tensor) else None
