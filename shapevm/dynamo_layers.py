"""Recurrent layers under torch.compile: where no gradients are wanted, LSTM, GRU and RNN are one operator
each, of any length.

Dynamo leaves these layers to PyTorch unless its setting `allow_rnn` is on, and then PyTorch's decompositions
unroll them at one length. So while Dynamo traces for this backend the setting is on for such a layer, and the
decompositions give `shapevm::layers`; for other backends, and where gradients are wanted, both are PyTorch's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.variables.builder import VariableBuilder
from torch.nn.utils.rnn import PackedSequence

from .compiler.frontends.recurrent import KINDS, layers

_LOG = logging.getLogger("shapevm")
aten = torch.ops.aten
_KEYS = (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd)


def let_dynamo_trace(backend: Callable[..., Any]) -> None:
    """Make Dynamo trace recurrent layers for a backend. What it changes of Dynamo is not public: in a version
    of PyTorch without it, these layers stay PyTorch's, and the logger says so."""
    wrapper: Any = VariableBuilder
    original = getattr(wrapper, "wrap_module", None)
    if original is None:
        _LOG.info("torch.compile leaves recurrent layers to PyTorch %s", torch.__version__)
        return

    @wraps(original)
    def wrap_module(builder: Any, module: torch.nn.Module) -> Any:
        if not isinstance(module, torch.nn.RNNBase) or not _are_ours(backend, builder.tx):
            return original(builder, module)
        with torch._dynamo.config.patch(allow_rnn=True):
            return original(builder, module)

    wrapper.wrap_module = wrap_module
    for kind in KINDS:
        op = getattr(aten, kind).input
        for key in _KEYS:
            if key in op.py_kernels:
                op.py_kernels[key] = partial(_decomposed, backend, kind, op.py_kernels[key])
        op._dispatch_cache.clear()


def _decomposed(backend: Callable[..., Any], kind: str, original: Callable[..., Any], *args: Any) -> Any:
    """The decomposition of recurrent layers: ours, or else PyTorch's."""
    x, hx, params, has_biases, n_layers, dropout, train, both_ways, batch_first = args
    try:
        tracer = InstructionTranslator.current_tx()
    except AttributeError:  # Dynamo does not trace
        return original(*args)
    if (train and dropout) or not _are_ours(backend, tracer):
        return original(*args)
    states = list(hx) if isinstance(hx, tuple | list) else [hx]
    return tuple(layers(kind, x, states, params, has_biases, n_layers, both_ways, batch_first))


def _are_ours(backend: Callable[..., Any], tracer: Any) -> bool:
    """Return whether what Dynamo traces is for the backend, without gradients, and without packed sequences,
    which it cannot trace."""
    compiler = tracer.output.compiler_fn
    while compiler is not backend and hasattr(compiler, "__wrapped__"):
        compiler = compiler.__wrapped__
    if torch.is_grad_enabled() or getattr(compiler, "compiler_fn", compiler) is not backend:
        return False
    return not any(isinstance(x, PackedSequence) for x in tracer.output.root_tx.f_locals.values())
