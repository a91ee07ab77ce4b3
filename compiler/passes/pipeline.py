"""The order of the passes, each with its precondition."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.graph import Graph
from ..lower.bind import bind
from ..lower.collapse import collapse
from ..lower.fuse import fuse
from ..lower.lower import lower
from ..lower.packing import pack
from ..lower.prologue import prologue
from ..lower.tying import tie
from .compose import compose
from .copy_results import copy_results
from .cse import cse
from .dce import dce
from .decompose import decompose
from .fold_constants import fold_constants
from .fold_scales import fold_scales
from .hoist_products import hoist_products
from .layout import choose_layout
from .move_scales import move_scales
from .multiply_planes import multiply_planes
from .place_memory import place_memory
from .portable import use_portable_functions
from .quantise_activations import quantise_activations
from .quantise_weights import quantise_weights
from .read_elements import read_elements
from .read_parts import read_parts
from .read_planes import read_planes
from .round_products import round_products
from .simplify_convs import simplify_convs
from .skip_zeros import skip_zeros
from .sum_products import sum_products
from .tokens.pack import pack_tokens
from .update_in_place import find_updates, update_in_place

#: (pass, the stage of `compiler.verify` that the graph is in after it).
PASSES: tuple[tuple[Callable[[Graph], None], str], ...] = (
    (compose, "imported"),  # composites are whole, and what programs write in their place is as written
    (move_scales, "imported"),  # an imported graph: products are whole, and so are quantised weights
    (decompose, "core"),  # every op is declared
    (pack_tokens, "core"),  # products are whole, and no operator hides another
    (fold_scales, "core"),  # products are whole, their weights not integers; permutes are as in the program
    (dce, "core"),  # multiply_planes checks a value's users, from which replaced products must be gone
    (multiply_planes, "core"),  # permutes are next to their convolutions
    (choose_layout, "core"),  # canonical ops only, on which permutes move; weights' permutes fold afterwards
    (simplify_convs, "core"),  # the layout is chosen, which follows convolutions
    (fold_constants, "core"),  # canonical ops only: a weight's transposition is a permute of a constant
    (hoist_products, "core"),  # a weight's transposition is folded: it is a constant of the loop
    (quantise_activations, "core"),  # weights are constants as products read them
    (read_planes, "core"),  # convolutions of bytes have channels last, and nothing simpler is left
    (quantise_weights, "core"),  # weights are constants as products read them
    (round_products, "core"),  # products that are still f32 by f32 do not become integers
    (sum_products, "core"),  # weights are constants as products read them: other operands are run-time values
    (cse, "core"),  # folded: equal constants are equal nodes
    (read_elements, "core"),  # equal views are merged: those without other users are dead
    (read_parts, "core"),  # elements that are read alone need no part
    (dce, "core"),  # sharing and folding are done: nodes without users are dead
    (find_updates, "core"),  # shapes are final: a view of state must not become a copying kernel
    (fuse, "core"),  # only live canonical ops: fusion sees only needed nodes
    (prologue, "core"),  # it is known what is in memory
    (lower, "core"),  # every node that computes in a kernel is in a fused node, or is standalone
    (pack, "core"),  # kernels read constants, not values computed from them
    (skip_zeros, "core"),  # weights are in panels
    (tie, "core"),  # products have their panels, and loads still read tables
    (use_portable_functions, "core"),  # kernels have the bodies that they keep
    (collapse, "core"),  # kernels have the buffers that they keep
    (bind, "core"),  # sizes are final
    (copy_results, "core"),  # it is known which results a kernel makes, and which are views
    (dce, "lowered"),  # the lowered nodes have no users left
    (update_in_place, "lowered"),  # only final uses are left: a tensor with another use is copied
    (place_memory, "lowered"),  # kernels are in their final order
)


def run(graph: Graph, check: bool = True, watch: Callable[[str, Graph], None] | None = None) -> None:
    """Run all passes on `graph` in place. `check`: verify between them; `watch(name, graph)` is called after
    each.

    Raises VerifyError, or a pass's error about the program.
    """
    if check:
        from ..verify import verify

        verify(graph, "imported", "import")
    for step, stage in PASSES:
        step(graph)
        if check:
            verify(graph, stage, step.__name__)
        if watch is not None:
            watch(step.__name__, graph)
