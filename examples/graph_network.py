"""A graph network for graphs of any size: `python examples/graph_network.py`.

Messages are passed along edges with `index_add`. The numbers of nodes and edges may change in every call. The
weights are random, in place of trained ones.
"""

from __future__ import annotations

import torch

import shapevm


class Layer(torch.nn.Module):
    """One round: every node takes the mean of its neighbours' features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own, self.other = torch.nn.Linear(width, width), torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """x: f32[nodes, width]; edges: i64[2, edges], from and to."""
        source, target = edges
        total = torch.zeros_like(x).index_add(0, target, x[source])
        count = torch.zeros_like(x[:, :1]).index_add(0, target, torch.ones_like(x[source][:, :1]))
        return torch.relu(self.own(x) + self.other(total / count.clamp(min=1)))


class Network(torch.nn.Module):
    """Three rounds, then one score for the whole graph."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(width) for _ in range(3))
        self.head = torch.nn.Linear(width, 1)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, edges)
        return self.head(x.mean(0))


def ring(nodes: int, chords: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features and edges of a ring with some chords."""
    around = torch.stack([torch.arange(nodes), (torch.arange(nodes) + 1) % nodes])
    return torch.randn(nodes, 32), torch.cat([around, torch.randint(0, nodes, (2, chords))], 1)


def main() -> None:
    torch.manual_seed(0)
    model = Network().eval()
    nodes, edges = torch.export.Dim("nodes", min=1, max=10_000), torch.export.Dim("edges", min=1, max=100_000)
    exe = shapevm.compile(model, ring(5, 3), dynamic_shapes=({0: nodes}, {1: edges}))
    for size, chords in ((3, 0), (12, 20), (700, 4000), (1, 0)):
        x, links = ring(size, chords)
        score = exe(x, links)
        torch.testing.assert_close(score, model(x, links))
        print(f"{size} nodes, {links.shape[1]} edges: score {score.item():.4f}, as PyTorch's")


if __name__ == "__main__":
    main()
