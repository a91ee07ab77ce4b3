"""Background specialisation: what it may cost."""

import pytest

from shapevm.specialise import Budget


def test_the_budget_grants_its_share_after_a_burst(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("shapevm.specialise.time.monotonic", lambda: now[0])
    budget = Budget(0.2, burst=0.1)
    assert budget.spend(0.06) == 0.0
    assert budget.spend(0.06) == pytest.approx(0.1)  # 0.02 s too much: 0.1 s at a fifth
    now[0] += 0.1
    assert budget.spend(0.01) == pytest.approx(0.05)
    now[0] += 1000.0
    assert budget.spend(0.1) == 0.0  # no more than the burst is saved
    assert budget.spend(0.1) == pytest.approx(0.5)
    assert Budget(None).spend(1e9) == 0.0
