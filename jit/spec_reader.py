"""Kernel specs from JSON. A spec from a file is checked before a generator sees it."""

from __future__ import annotations

import json

from .decode import Numbered, SpecError, decode, refuse
from .families.table import FAMILIES, bounds
from .spec import SPEC_VERSION, Dim, KernelSpec
from .spec_check import check_common


def from_json(text: str) -> KernelSpec:
    """Return the spec that `to_json` wrote. Raises SpecError, which names the place, for any other text."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"kernel spec: it is no JSON: {error}; export the artifact again") from None
    if not isinstance(data, dict):
        raise refuse("the whole", data, "an object")
    family, version = data.pop("family", None), data.pop("version", None)
    if not isinstance(family, str) or family not in FAMILIES or version != SPEC_VERSION:
        raise SpecError(
            f"kernel spec: family {str(family)[:40]!r} version {str(version)[:40]!r} is unknown; "
            f"this build reads version {SPEC_VERSION}"
        )
    spec: KernelSpec = decode(FAMILIES[family].spec, data, family, Numbered(Dim, "dim"))
    check_common(spec)
    FAMILIES[family].check(spec)
    bounds(spec)
    return spec
