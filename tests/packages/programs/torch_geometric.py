"""Layers and models for graphs (`torch_geometric`): nodes, edges and the graph of each node are tensors."""

from __future__ import annotations

import torch
from torch_geometric import nn

EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 0, 2, 4], [1, 2, 3, 4, 5, 6, 0, 3, 5, 1]])
BATCH = torch.tensor([0, 0, 0, 1, 1, 2, 2])


def _nodes(width: int = 8) -> torch.Tensor:
    return torch.randn(7, width)


def _layer(make, *more):
    """Return a program: a layer over nodes, edges and further tensors."""
    return lambda: (make(), (_nodes(), EDGES, *[x() for x in more]), {})


def _pool(function):
    return lambda: (_Pool(function), (_nodes(), BATCH), {})


class _Pool(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, batch):
        return self.function(x, batch, 3)


class _Classifier(torch.nn.Module):
    """A graph classifier: convolutions, pooling, a linear layer."""

    def __init__(self, conv, graphs=None):
        super().__init__()
        self.first, self.second, self.last = conv(8, 16), conv(16, 16), torch.nn.Linear(16, 3)
        self.graphs = graphs

    def forward(self, x, edges, batch):
        x = self.second(self.first(x, edges).relu(), edges).relu()
        return self.last(nn.global_mean_pool(x, batch, self.graphs))


def _weights():
    return torch.rand(EDGES.shape[1])


def _attributes():
    return torch.randn(EDGES.shape[1], 4)


def _mlp(width=8):
    return torch.nn.Sequential(torch.nn.Linear(width, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))


PROGRAMS = {
    "GCNConv": _layer(lambda: nn.GCNConv(8, 16)),
    "GCNConv with weights": _layer(lambda: nn.GCNConv(8, 16), _weights),
    "GATConv": _layer(lambda: nn.GATConv(8, 16, heads=2)),
    "GATv2Conv with attributes": _layer(lambda: nn.GATv2Conv(8, 16, edge_dim=4), _attributes),
    "SAGEConv": _layer(lambda: nn.SAGEConv(8, 16)),
    "SAGEConv, max": _layer(lambda: nn.SAGEConv(8, 16, aggr="max")),
    "GINConv": _layer(lambda: nn.GINConv(_mlp())),
    "GINEConv": _layer(lambda: nn.GINEConv(_mlp(), edge_dim=4), _attributes),
    "TransformerConv": _layer(lambda: nn.TransformerConv(8, 16, heads=2)),
    "ChebConv": _layer(lambda: nn.ChebConv(8, 16, K=3)),
    "TAGConv": _layer(lambda: nn.TAGConv(8, 16)),
    "SGConv": _layer(lambda: nn.SGConv(8, 16, K=2)),
    "APPNP": _layer(lambda: nn.APPNP(K=3, alpha=0.1)),
    "ARMAConv": _layer(lambda: nn.ARMAConv(8, 16)),
    "GraphConv": _layer(lambda: nn.GraphConv(8, 16)),
    "GatedGraphConv": _layer(lambda: nn.GatedGraphConv(8, 2)),
    "ResGatedGraphConv": _layer(lambda: nn.ResGatedGraphConv(8, 16)),
    "EdgeConv": _layer(lambda: nn.EdgeConv(_mlp(16))),
    "PNAConv": _layer(
        lambda: nn.PNAConv(8, 16, ["mean", "min", "max", "std"], ["identity", "amplification"], torch.ones(5))
    ),
    "GENConv": _layer(lambda: nn.GENConv(8, 16)),
    "LEConv": _layer(lambda: nn.LEConv(8, 16)),
    "NNConv": _layer(lambda: nn.NNConv(8, 16, torch.nn.Linear(4, 128)), _attributes),
    "GMMConv": _layer(lambda: nn.GMMConv(8, 16, dim=4, kernel_size=2), _attributes),
    "GCN": _layer(lambda: nn.GCN(8, 16, 2, 3, norm="layer")),
    "GAT": _layer(lambda: nn.GAT(8, 16, 2, 3)),
    "GraphSAGE": _layer(lambda: nn.GraphSAGE(8, 16, 2, 3, jk="cat")),
    "GIN": _layer(lambda: nn.GIN(8, 16, 2, 3)),
    "DeepGCNLayer": _layer(lambda: nn.DeepGCNLayer(nn.GENConv(8, 8), nn.LayerNorm(8), torch.nn.ReLU())),
    "global_add_pool": _pool(nn.global_add_pool),
    "global_mean_pool": _pool(nn.global_mean_pool),
    "global_max_pool": _pool(nn.global_max_pool),
    "GraphNorm": lambda: (nn.GraphNorm(8), (_nodes(), BATCH), {"batch_size": 3}),
    "LayerNorm of graphs": lambda: (nn.LayerNorm(8), (_nodes(), BATCH), {"batch_size": 3}),
    "PairNorm": lambda: (nn.PairNorm(), (_nodes(),), {}),
    "SoftmaxAggregation": lambda: (nn.SoftmaxAggregation(learn=True), (_nodes(), BATCH), {"dim_size": 3}),
    "AttentionalAggregation": lambda: (
        nn.AttentionalAggregation(torch.nn.Linear(8, 1)),
        (_nodes(), BATCH),
        {"dim_size": 3},
    ),
    "Set2Set": lambda: (nn.Set2Set(8, 2), (_nodes(), BATCH), {"dim_size": 3}),
    "classifier of graphs": lambda: (_Classifier(nn.GCNConv), (_nodes(), EDGES, BATCH), {}),
    "classifier of three graphs": lambda: (_Classifier(nn.SAGEConv, 3), (_nodes(), EDGES, BATCH), {}),
}
