"""A sample of the structure-aware mutants; `python -m tests.runtime_c.mutants` takes 200,000."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from pathlib import Path

from . import mutants


def test_mutants_are_taken_or_refused(build: Callable[[str, str], Path]) -> None:
    seed = secrets.randbits(32)
    report, wrong = mutants.run(2000, seed, build("fuzz", "address"))
    assert not wrong, (seed, report, wrong[:5])
    loaded, ran = (
        int(report.split("artifacts: ")[1].split()[0]),
        re.findall(r"(\d+) ran", report.split("specs: ")[1]),
    )
    assert 50 < loaded < 950 and int(ran[0]) > 10, report
