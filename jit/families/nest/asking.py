"""The schedules of nests. A layout change prefetches the lines that its next blocks read and write, each of
which is in a separate row; some processors are faster without, which is measured (`jit.measure.streams`).
"""

from __future__ import annotations

from ...spec import Nest

VECTORS, WITHOUT_ASKING = "vectors", "vectors-unasked"  # schedules
LAYOUTS = "layout changes"  # their name in a measured choice


def changes_layout(spec: Nest) -> bool:
    """Whether a nest copies an array such that another of its axes becomes the last."""
    if [instr.op for instr in spec.body] != ["load", "store"]:
        return False
    loops = [instr.index[-1].loop if instr.index else None for instr in spec.body]
    return None not in loops and loops[0] != loops[1]
