"""The schedules of nests. A layout change asks for the lines that its next blocks read and write, each of
which lies in a row of its own; some processors are faster without, which is measured (`jit.measure.streams`).
"""

from __future__ import annotations

from ...spec import Nest

VECTORS, WITHOUT_ASKING = "vectors", "vectors-unasked"  # schedules
LAYOUTS = "layout changes"  # what stands for them in a choice that was measured


def changes_layout(spec: Nest) -> bool:
    """Whether a nest copies an array to where another of its axes is the last."""
    if [instr.op for instr in spec.body] != ["load", "store"]:
        return False
    loops = [instr.index[-1].loop if instr.index else None for instr in spec.body]
    return None not in loops and loops[0] != loops[1]
