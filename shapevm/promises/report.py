"""The report of `shapevm prove`: the relations between results, and where they differ."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..reports.invariance.verdicts import along_text


@dataclass
class Relation:
    """One guarantee: the number of results compared, and those that differ."""

    compared: int = 0
    differences: list[str] = field(default_factory=list)


@dataclass
class Report:
    """What was tested, and the outcome.

    `sizes`: of each round. `along`: for each symbol the results that depend on more than their row, and why.
    `notes`: what was not tested. `exceptions`: code whose bits depend on the number of rows, as documented.
    `golden`: the outcome for golden vectors, "" if there are none.
    """

    sizes: list[dict[str, int]] = field(default_factory=list)
    relations: dict[str, Relation] = field(default_factory=dict)
    along: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    exceptions: list[str] = field(default_factory=list)
    golden: str = ""

    @property
    def is_proved(self) -> bool:
        """Whether nothing differs."""
        return not any(relation.differences for relation in self.relations.values())

    def compare(self, relation: str, where: str, output: str, a: Any, b: Any) -> None:
        """Count a comparison of two results for a relation; note where they differ."""
        found = self.relations.setdefault(relation, Relation())
        found.compared += 1
        text = difference(a, b)
        if text:
            found.differences.append(f"{where}, result {output}: {text}")

    def note(self, text: str) -> None:
        """Note what is not tested."""
        if text not in self.notes:
            self.notes.append(text)

    def text(self) -> str:
        """Return the report as text."""
        rounds = len(self.sizes)
        lines = [f"{rounds} round{'' if rounds == 1 else 's'} of inputs"]
        for name, relation in self.relations.items():
            bad = len(relation.differences)
            lines.append(f"  {name}: {relation.compared} results, {f'{bad} DIFFER' if bad else 'equal bits'}")
            lines += [f"    {text}" for text in relation.differences[:5]]
        lines += [f"  {line}" for line in along_text(self.along)]
        lines += [f"  exception: {text}" for text in self.exceptions]
        lines += [f"  not tried: {text}" for text in self.notes]
        lines += [f"  golden: {self.golden}"] if self.golden else []
        return "\n".join([*lines, "proved" if self.is_proved else "NOT proved: results differ"])

    def json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {**asdict(self), "is_proved": self.is_proved}


def difference(a: Any, b: Any) -> str:
    """Return where two results differ, "" if they are equal."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype}{list(a.shape)} is not {b.dtype}{list(b.shape)}"
    if a.dtype.kind not in "biuf":  # text
        return "" if np.array_equal(a, b) else f"{a} is not {b}"
    raw = [np.ascontiguousarray(x).reshape(-1) for x in (a, b)]
    one, other = (x.view(f"u{x.itemsize}") for x in raw)
    bad = one != other
    if a.dtype.kind == "f":
        bad &= ~(np.isnan(raw[0]) & np.isnan(raw[1]))
    if not bad.any():
        return ""
    at = int(np.flatnonzero(bad)[0])
    index = [int(i) for i in np.unravel_index(at, a.shape)]
    return f"{int(bad.sum())} of {bad.size} elements, first at {index}: {raw[0][at]} is not {raw[1][at]}"
