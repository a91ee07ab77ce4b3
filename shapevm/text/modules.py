"""Text models as modules of PyTorch, for the compiler: a transformer and what sentence-transformers puts
behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..vm.errors import ArgumentError

Step = Callable[[Tensor, Tensor], Tensor]
LEAST = 1e-9  # of a sum of weights


def _weights(mask: Tensor, hidden: Tensor) -> Tensor:
    return mask.unsqueeze(-1).to(hidden.dtype)


def _sum(hidden: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    weights = _weights(mask, hidden)
    return (hidden * weights).sum(1), weights.sum(1).clamp(min=LEAST)


def _mean(hidden: Tensor, mask: Tensor) -> Tensor:
    total, count = _sum(hidden, mask)
    return total / count


def _mean_sqrt(hidden: Tensor, mask: Tensor) -> Tensor:
    total, count = _sum(hidden, mask)
    return total / count.sqrt()


def _weighted_mean(hidden: Tensor, mask: Tensor) -> Tensor:
    positions = torch.arange(1, hidden.shape[1] + 1, dtype=hidden.dtype).view(1, -1, 1)
    weights = _weights(mask, hidden) * positions
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=LEAST)


def _last(hidden: Tensor, mask: Tensor) -> Tensor:
    return hidden[torch.arange(hidden.shape[0]), (mask.sum(1) - 1).clamp(min=0)]


#: By the name of a pooling mode: from hidden states [batch, length, width] and mask [batch, length], whose
#: tokens come first, to [batch, width].
POOLS: Mapping[str, Step] = {
    "cls": lambda hidden, mask: hidden[:, 0],
    "max": lambda hidden, mask: hidden.masked_fill(mask.unsqueeze(-1) == 0, float("-inf")).amax(1),
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_sqrt,
    "weightedmean": _weighted_mean,
    "lasttoken": _last,
}


def pooling(modes: Sequence[str]) -> Step:
    """Return the step that concatenates pooled states. Raises ArgumentError for an unknown mode."""
    for mode in modes:
        if mode not in POOLS:
            raise ArgumentError(f"the pooling mode {mode!r} is unknown; known are {', '.join(POOLS)}")
    pools = [POOLS[mode] for mode in modes]
    return lambda hidden, mask: torch.cat([pool(hidden, mask) for pool in pools], dim=-1)


def normalize(x: Tensor, mask: Tensor) -> Tensor:
    """Return embeddings of length 1."""
    return functional.normalize(x, p=2.0, dim=-1)


class Layer(torch.nn.Module):
    """A module of an embedding [batch, width] as a step."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the module's result."""
        return self.module(x)


class Residual(torch.nn.Module):
    """A dense layer whose input, or a projection of it, is added to its result."""

    def __init__(self, module: torch.nn.Module, projection: torch.nn.Module) -> None:
        super().__init__()
        self.module, self.projection = module, projection

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum."""
        return self.module(x) + self.projection(x)


class Embedder(torch.nn.Module):
    """Token ids to an embedding of each text, f32[batch, width]; `with_tokens`: also the transformer's state
    of each token, f32[batch, length, hidden size]."""

    def __init__(self, transformer: torch.nn.Module, steps: Sequence[Step], with_tokens: bool) -> None:
        super().__init__()
        self.transformer, self.with_tokens = transformer, with_tokens
        self.layers = torch.nn.ModuleList([step for step in steps if isinstance(step, torch.nn.Module)])
        self._steps = list(steps)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        """input_ids, attention_mask: i64[batch, length]."""
        hidden = self.transformer(input_ids=input_ids, attention_mask=attention_mask, return_dict=True)[0]
        found = hidden
        for step in self._steps:
            found = step(found, attention_mask)
        tokens = {"token_embeddings": hidden} if self.with_tokens else {}
        return {"sentence_embedding": found, **tokens}


class Scorer(torch.nn.Module):
    """Token ids of pairs to logits f32[batch, labels] and scores, the activation of these."""

    def __init__(self, classifier: torch.nn.Module, activation: torch.nn.Module) -> None:
        super().__init__()
        self.classifier, self.activation = classifier, activation

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> dict[str, Tensor]:
        """input_ids, attention_mask: i64[batch, length]; so token_type_ids, if the model takes them."""
        given: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            given["token_type_ids"] = token_type_ids
        logits = self.classifier(**given, return_dict=True).logits
        return {"logits": logits, "scores": self.activation(logits)}
