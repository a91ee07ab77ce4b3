"""Unknown names: suggestions of the nearest known one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .errors import ArgumentError


def nearest(name: str, known: Iterable[str], otherwise: str, cutoff: float = 0.6) -> str:
    """Return the question whether the nearest of the `known` names was meant; `otherwise` if none has a
    similarity of `cutoff`."""
    import difflib

    near = difflib.get_close_matches(name, list(known), 1, cutoff)
    return f"did you mean {near[0]}?" if near else otherwise


def unknown_name(what: str, name: Any, known: Iterable[str]) -> ArgumentError:
    """Return the error for a name that is not among the `known` ones of its kind."""
    names = list(known)
    hint = nearest(str(name), names, f"known are {', '.join(names)}")
    return ArgumentError(f"{what} {name!r} is unknown; {hint}")
