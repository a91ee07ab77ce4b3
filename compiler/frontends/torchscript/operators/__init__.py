"""Operators and methods: what a node of the graph computes.

`dispatch` asks in turn. `containers` (with `run_time_lists` and `run_time_dicts`) has the operators of lists
and dicts, `texts` those of strings. `plain`, `creation` and `axes` are tables of operators that have a
function of their own. `tensor_operators` takes all others by their schemas: `attributes` and `library` where
only a call tells a number, else `arguments` and `converters`, which end in the tables that all frontends
share, in `composites` or in `decomposed`; `matching` tells which sizes must be equal.

An operator that other frontends have as well is added to `compiler/ops`, not here. One that only TorchScript
programs have is a row of `composites`; one that gives or takes plain values is a row of `OPERATORS` in
`plain`, `creation` or `axes`; one with a number that only a call tells is an entry of `library`.
"""

from .converters import run
from .dispatch import import_operator

__all__ = ["import_operator", "run"]
