"""Recurrent layers under torch.compile: without gradients, LSTM, GRU and RNN are one operator each, for any
length.

Dynamo leaves these layers to PyTorch unless its setting `allow_rnn` is on, and then PyTorch's decompositions
unroll them at one length. So while Dynamo traces for this backend the setting is on for such a layer, and the
decompositions return `shapevm::layers`; for other backends, and with gradients, both are PyTorch's. Likewise,
for packed sequences Dynamo traces the functions of `dynamo_packed`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import torch
from torch._dynamo.guards import GuardBuilder
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.utils import nnmodule_has_hooks
from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.functions import SkipFunctionVariable, UserFunctionVariable
from torch._dynamo.variables.nn_module import UnspecializedBuiltinNNModuleVariable
from torch.nn.utils.rnn import PackedSequence

from ..compiler.frontends.recurrent import KINDS
from ..compiler.frontends.recurrent_operators import layers
from . import dynamo_packed

_LOG = logging.getLogger("shapevm")
aten = torch.ops.aten
_KEYS = (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd)


def let_dynamo_trace(backend: Callable[..., Any]) -> None:
    """Make Dynamo trace recurrent layers for a backend. It patches internals of Dynamo: in a version of
    PyTorch without these, the layers stay PyTorch's, and the logger says so."""
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
            made = original(builder, module)
        if type(made) is UnspecializedBuiltinNNModuleVariable:
            made.__class__ = _Layer
        return made

    wrapper.wrap_module = wrap_module
    for theirs, ours in dynamo_packed.REPLACED.items():
        wrapper._id_dispatch()[id(theirs)] = partial(_function, backend, ours)
    for kind in KINDS:
        op = getattr(aten, kind).input
        for key in _KEYS:
            if key in op.py_kernels:
                op.py_kernels[key] = partial(_decomposed, backend, kind, op.py_kernels[key])
        op._dispatch_cache.clear()


class _Layer(UnspecializedBuiltinNNModuleVariable):
    """A recurrent layer, which may be called with packed sequences."""

    def call_function(self, tx: Any, args: Any, kwargs: Any) -> Any:
        """Trace a call of the layer."""
        given = args[0] if args else kwargs.get("input")
        is_packed = given is not None and given.python_type() is PackedSequence
        layer: Any = self.value
        if not is_packed or nnmodule_has_hooks(layer) or (layer.training and layer.dropout):
            return super().call_function(tx, args, kwargs)
        _allow_open_sizes(tx)
        ours: Any = dynamo_packed.forward
        return UserFunctionVariable(ours).call_function(tx, [self, *args], kwargs)


def _function(backend: Callable[..., Any], ours: Any, builder: Any, theirs: Any) -> Any:
    """Dynamo's handler for a function that packs or pads: ours, or else PyTorch's."""
    guards = builder.install_guards(GuardBuilder.CLOSURE_MATCH)
    if not _are_ours(backend, builder.tx):
        return SkipFunctionVariable(theirs, source=builder.source, **guards)
    _allow_open_sizes(builder.tx)
    return UserFunctionVariable(ours, **guards)


def _allow_open_sizes(tracer: Any) -> None:
    """Allow data-dependent sizes in a trace, and register operators for packed sequences."""
    from ..compiler.frontends import packed_operators  # noqa: F401 - registers them

    env = tracer.output.shape_env
    env.settings = replace(env.settings, allow_dynamic_output_shape_ops=True, allow_scalar_outputs=True)


def _decomposed(backend: Callable[..., Any], kind: str, original: Callable[..., Any], *args: Any) -> Any:
    """The decomposition of recurrent layers: ours, or else PyTorch's."""
    x, hx, params, has_biases, n_layers, dropout, train, both_ways, batch_first = args
    try:
        tracer: Any = InstructionTranslator.current_tx()
    except AttributeError:  # Dynamo has traced nothing
        tracer = None
    if tracer is None or (train and dropout) or not _are_ours(backend, tracer):
        return original(*args)
    states = list(hx) if isinstance(hx, tuple | list) else [hx]
    return tuple(layers(kind, x, states, params, has_biases, n_layers, both_ways, batch_first))


def _are_ours(backend: Callable[..., Any], tracer: Any) -> bool:
    """Return whether Dynamo traces for this backend, without gradients."""
    compiler = tracer.output.compiler_fn
    while compiler is not backend and hasattr(compiler, "__wrapped__"):
        compiler = compiler.__wrapped__
    return not torch.is_grad_enabled() and getattr(compiler, "compiler_fn", compiler) is backend
