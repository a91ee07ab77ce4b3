"""Modules in evaluation mode for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from torch import nn


@contextmanager
def in_evaluation(model: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode, and restore each part's mode afterwards.

    Programs of torch.export, which PT2E quantisation also produces, refuse to change their mode, because it
    is part of their graph; so does a module that holds one. Its other parts are changed.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        _change(model, False)
        yield
    finally:
        _change(model, modes[0][1])
        for module, mode in modes:
            module.training = mode


def _change(model: nn.Module, training: bool) -> None:
    """Change a module's mode as far as its parts have one, including other effects of its `train` method."""
    with suppress(NotImplementedError):
        model.train(training)
        return
    for part in model.children():
        _change(part, training)
