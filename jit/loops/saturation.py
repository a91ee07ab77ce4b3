"""Casts to u8 of values that are limited to 0 .. 255 before: both limits and the cast become one conversion.

`maximum` and `minimum` keep a NaN, which takes two instructions more each; the cast makes 0 of it, and so
does the lower limit of `conversion.saturated`. So the bytes are the same.
"""

from __future__ import annotations

from ..spec import Body, Instr

LIMITS = {"maximum": 0.0, "minimum": 255.0}


def find_saturating(body: Body) -> dict[int, int]:
    """Return the casts that saturate, by id, each with the id of the clamped value."""
    found = {}
    for i, instr in enumerate(body):
        if instr.op != "cast" or instr.dtype != "u8" or body[instr.args[0]].dtype != "f32":
            continue
        outer = instr.args[0]
        inner = _limited(body, body[outer])
        source = None if inner is None else _limited(body, body[inner])
        if inner is not None and source is not None and body[inner].op != body[outer].op:
            found[i] = source
    return found


def _limited(body: Body, instr: Instr) -> int | None:
    """Return what `instr` limits by its number of LIMITS, None where it is something else."""
    if instr.op not in LIMITS:
        return None
    for value, limit in (instr.args, instr.args[::-1]):
        if body[limit].op == "const" and body[limit].value == LIMITS[instr.op]:
            return value
    return None
