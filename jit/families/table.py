"""THE table of kernel families. A new family is a folder with a `family.py`, and one line here."""

from __future__ import annotations

from typing import Any

from ...vm.program import KernelKey
from ..spec import Bound, KernelSpec, prove
from .attention.family import FAMILY as ATTENTION
from .concat.family import FAMILY as CONCAT
from .conv.family import FAMILY as CONV
from .family import Family
from .fft.family import FAMILY as FFT
from .matmul.family import FAMILY as MATMUL
from .nest.family import FAMILY as NEST
from .nms.family import FAMILY as NMS
from .nonzero.family import FAMILY as NONZERO
from .paged_attention.family import FAMILY as PAGED_ATTENTION
from .roi_align.family import FAMILY as ROI_ALIGN
from .scan.family import FAMILY as SCAN
from .scatter.family import FAMILY as SCATTER
from .search.family import FAMILY as SEARCH
from .sort.family import FAMILY as SORT

#: All families by name.
FAMILIES: dict[str, Family[Any]] = {
    family.spec.family: family
    for family in (
        NEST,
        CONCAT,
        MATMUL,
        CONV,
        ATTENTION,
        PAGED_ATTENTION,
        SCAN,
        FFT,
        SCATTER,
        SORT,
        NONZERO,
        SEARCH,
        NMS,
        ROI_ALIGN,
    )
}


def family_of(spec: KernelSpec) -> Family[Any]:
    """Return the row of a spec's family."""
    return FAMILIES[spec.family]


def bounds(spec: KernelSpec, dims: KernelKey = None) -> tuple[Bound, ...]:
    """Return the conditions that a launch must check so that a kernel stays within its buffers; see
    `spec.prove`."""
    return prove(spec, family_of(spec).accesses(spec), dims)
