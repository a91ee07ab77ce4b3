"""THE table of kernel families. A new family is a folder with a `family.py`, and one line here."""

from __future__ import annotations

from typing import Any

from ..spec import KernelSpec
from .attention.family import FAMILY as ATTENTION
from .concat.family import FAMILY as CONCAT
from .conv.family import FAMILY as CONV
from .family import Family
from .matmul.family import FAMILY as MATMUL
from .nest.family import FAMILY as NEST
from .nms.family import FAMILY as NMS
from .nonzero.family import FAMILY as NONZERO
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
        SCAN,
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
