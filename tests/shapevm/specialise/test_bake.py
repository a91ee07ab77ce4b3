"""Baking: the choice is the best there is, the budget holds, what was promised happens."""

import itertools
import json

import numpy as np
import pytest
from shapevm.vm.artifact import read, write
from shapevm.vm.program import SizeRange

import shapevm
from shapevm.calls.profiles import Calls, Profile
from shapevm.specialise.bake import Group, bake, choose, identity
from shapevm.specialise.cost_model import BUCKET, EXACT, GENERIC
from shapevm.specialise.kernel_store import open_store


def rows(n):
    return np.random.default_rng(n).random((n, 8), "f")


def profile_for(program, counts):
    return Profile(identity(program), ("n",), {(n,): Calls(c, c, 1) for n, c in counts.items()})


def cost(groups, choice, exact_bytes, range_bytes):
    time = sum(g.ns[tier] for g, (tier, _) in zip(groups, choice, strict=True))
    is_open = [o for _, o in choice]
    opened = sum(now and not before for before, now in itertools.pairwise([False, *is_open]))
    return time, opened * range_bytes + sum(tier == EXACT for tier, _ in choice) * exact_bytes


@pytest.mark.parametrize("seed", range(20))
def test_the_choice_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    groups = []
    for n in range(6):
        times = dict(zip((EXACT, BUCKET, GENERIC), rng.integers(1, 60, 3).tolist(), strict=True))
        groups.append(Group({(n,): 1} if rng.random() < 0.8 else {(n,): 1, (n + 100,): 1}, times))
    exact_bytes, range_bytes, budget = 3, int(rng.integers(1, 9)), int(rng.integers(0, 20))
    options = [(GENERIC, False), (EXACT, False), (BUCKET, True), (EXACT, True)]
    best = np.inf
    for choice in itertools.product(options, repeat=len(groups)):
        if any(tier == EXACT and not g.is_point for g, (tier, _) in zip(groups, choice, strict=True)):
            continue
        time, spent = cost(groups, choice, exact_bytes, range_bytes)
        if spent <= budget:
            best = min(best, time)
    found = choose(groups, exact_bytes, range_bytes, budget)
    time, spent = cost(groups, found, exact_bytes, range_bytes)
    assert spent <= budget and time == best


@pytest.mark.parametrize("measure", [False, True])
def test_a_baked_program_does_what_was_promised(artifact, tmp_path, measure):
    program = read(artifact)
    counts = {**dict.fromkeys(range(40, 80), 1), 7: 500, 9: 300}
    baked = bake(program, profile_for(program, counts), open_store(), 60_000, measure)
    assert baked.n_bytes or measure  # a measurement may find that generic code is as quick
    assert baked.n_bytes <= 60_000 and baked.is_measured == measure
    assert sum(baked.shares.values()) == pytest.approx(1)
    assert 1 <= baked.slowdown <= baked.generic_slowdown + 1e-9
    write(baked.program, tmp_path / "baked.svm")
    with (
        shapevm.load(tmp_path / "baked.svm", strategy="bucket") as exe,
        shapevm.load(artifact, strategy="generic") as plain,
    ):
        tiers = dict.fromkeys((EXACT, BUCKET, GENERIC), 0)
        for n, count in counts.items():
            before = exe.stats()
            assert exe(rows(n))["sum"].tobytes() == plain(rows(n))["sum"].tobytes()
            tiers[exe.stats().since(before).tier()] += count
        assert exe.stats().compiled == 0
    total = sum(counts.values())
    for tier, share in baked.shares.items():
        assert tiers[tier] / total == pytest.approx(share)


def test_more_bytes_never_serve_worse(artifact):
    program = read(artifact)
    profile = profile_for(program, {n: 1 + 600 // n for n in range(4, 60)})
    found = [bake(program, profile, open_store(), b, False) for b in (0, 20_000, 60_000, 10**7)]
    assert [b.slowdown for b in found] == sorted((b.slowdown for b in found), reverse=True)
    assert found[0].n_bytes == 0 and found[0].slowdown == found[0].generic_slowdown
    assert found[-1].slowdown == 1 and found[-1].shares[EXACT] == 1
    assert any(isinstance(size, SizeRange) for b in found for cell in b.cells for size in cell.values())


def test_a_profile_of_another_program_is_refused(artifact):
    program = read(artifact)
    with pytest.raises(shapevm.ArgumentError, match="the profile is of program 0000"):
        bake(program, Profile("0" * 64, ("n",), {(3,): Calls(1)}), open_store(), 1000)
    with pytest.raises(shapevm.ArgumentError, match="has no calls"):
        bake(program, Profile(identity(program), ("n",)), open_store(), 1000)


def test_recorded_and_baked_agree_on_the_program(artifact):
    with shapevm.load(artifact, strategy="generic") as exe, shapevm.record(exe) as recording:
        exe(rows(3))
    assert recording.profiles[0].program == identity(read(artifact))
    assert json.loads(recording.profiles[0].json())["sizes"][0]["values"] == [3]
