"""Predictions of clicks (`deepctr_torch`)."""

from __future__ import annotations

import torch
from deepctr_torch import layers, models
from deepctr_torch.inputs import DenseFeat, SparseFeat

COLUMNS = [SparseFeat("user", 10, 4), SparseFeat("item", 12, 4), DenseFeat("age", 1), DenseFeat("price", 2)]


def _rows() -> torch.Tensor:
    kinds = torch.stack((torch.randint(0, 10, (6,)), torch.randint(0, 12, (6,))), 1)
    return torch.cat((kinds.float(), torch.rand(6, 3)), 1)


def _of(name: str, **more):
    return lambda: (getattr(models, name)(COLUMNS, COLUMNS, **more), (_rows(),), {})


def _layer(make, *shape: int):
    return lambda: (make(), (torch.randn(shape),), {})


PROGRAMS = {
    "DeepFM": _of("DeepFM", dnn_hidden_units=(8, 8)),
    "WDL": _of("WDL", dnn_hidden_units=(8, 8)),
    "xDeepFM": _of("xDeepFM", dnn_hidden_units=(8,), cin_layer_size=(4, 4)),
    "AutoInt": _of("AutoInt", dnn_hidden_units=(8,), att_layer_num=1),
    "NFM": _of("NFM", dnn_hidden_units=(8,)),
    "AFM": lambda: (models.AFM(COLUMNS[:2], COLUMNS[:2]), (_rows()[:, :2],), {}),
    "ONN": _of("ONN", dnn_hidden_units=(8,)),
    "FiBiNET": _of("FiBiNET", dnn_hidden_units=(8,)),
    "IFM": _of("IFM", dnn_hidden_units=(8,)),
    "DIFM": _of("DIFM", dnn_hidden_units=(8,), att_head_num=2),
    "AFN": _of("AFN", ltl_hidden_size=8, afn_dnn_hidden_units=(8,)),
    "DCN": _of("DCN", dnn_hidden_units=(8,)),
    "DCNMix": _of("DCNMix", dnn_hidden_units=(8,), low_rank=2, num_experts=2),
    "PNN": lambda: (models.PNN(COLUMNS, dnn_hidden_units=(8,)), (_rows(),), {}),
    "MMOE": lambda: (
        models.MMOE(
            COLUMNS,
            num_experts=2,
            expert_dnn_hidden_units=(8,),
            gate_dnn_hidden_units=(4,),
            tower_dnn_hidden_units=(4,),
            task_types=("binary", "binary"),
            task_names=("a", "b"),
        ),
        (_rows(),),
        {},
    ),
    "BiInteractionPooling": _layer(layers.BiInteractionPooling, 3, 4, 5),
    "SENETLayer": _layer(lambda: layers.SENETLayer(4), 3, 4, 5),
    "InteractingLayer": _layer(lambda: layers.InteractingLayer(8), 3, 4, 8),
    "CrossNet": _layer(lambda: layers.CrossNet(6), 3, 6),
}
