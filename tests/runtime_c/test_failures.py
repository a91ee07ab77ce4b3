"""Failures of the system: a sample; `python -m tests.runtime_c.failures` takes all of them."""

from __future__ import annotations

import secrets

import shapevm

from . import failures


def test_the_runner_says_what_failed() -> None:
    seed = secrets.randbits(32)
    done, wrong = failures.run_all(150, shapevm.runner_path(), seed)
    assert done.total() == 150 and not wrong, (seed, wrong)
