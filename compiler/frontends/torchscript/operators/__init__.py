"""Operators and methods: what a node of the graph computes.

`dispatch` tries them in order. `containers` (with `run_time_lists` and `run_time_dicts`) has the operators of
lists and dicts, `texts` those of strings. `plain`, `creation` and `axes` are tables of operators with special
functions. `tensor_operators` handles all others by their schemas: `attributes` and `library` for run-time
numbers, else `arguments` and `converters`, which end in the tables that all frontends share, in `composites`
or in `decomposed`; `matching` determines which sizes must be equal.

An operator that other frontends also have is added to `compiler/ops`, not here. One that only TorchScript
programs have is a row of `composites`; one with plain arguments or results is a row of `OPERATORS` in
`plain`, `creation` or `axes`; one with a run-time number is an entry of `library` if its decomposition in
torch compares the number or is in C++.
"""

from .converters import run
from .decomposed import decomposed
from .dispatch import import_operator

__all__ = ["decomposed", "import_operator", "run"]
