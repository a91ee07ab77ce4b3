"""Requests that join, leave and fail, against each one alone."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from shapevm.errors import ArgumentError
from shapevm.llm.sampling import Sampling

from .fakes import Fake, engine_of, expected


def test_a_request_has_the_tokens_that_it_has_alone() -> None:
    how = Sampling(max_new_tokens=40)
    with engine_of(Fake(8)) as engine:
        request = engine.submit([3, 4, 5], how)
        assert list(request) == expected([3, 4, 5], how, 200)
        assert request.finish_reason == "length"
        assert list(request) == []


def test_a_stop_token_ends_a_request_and_is_not_returned() -> None:
    plain = expected([3, 4, 5], Sampling(max_new_tokens=40), 200)
    how = Sampling(max_new_tokens=40, stop_tokens=frozenset({plain[7]}))
    with engine_of(Fake(8)) as engine:
        request = engine.submit([3, 4, 5], how)
        assert list(request) == plain[: plain.index(plain[7])]
        assert request.finish_reason == "stop"


def test_prompts_are_computed_in_parts_within_the_budget() -> None:
    fake, how = Fake(16), Sampling(max_new_tokens=3)
    prompts = [list(np.random.default_rng(i).integers(0, 40, 50)) for i in range(4)]
    with engine_of(fake, max_tokens=17) as engine:
        requests = [engine.submit(prompt, how) for prompt in prompts]
        for prompt, request in zip(prompts, requests, strict=True):
            assert list(request) == expected(prompt, how, 200)
    assert fake.widest <= 17


def test_equal_beginnings_are_computed_once() -> None:
    fake, how = Fake(32), Sampling(max_new_tokens=2)
    prompt = list(range(39)) * 3
    with engine_of(fake) as engine:
        first = list(engine.submit(prompt, how))
        before = fake.n_tokens
        assert list(engine.submit(prompt, how)) == first
        assert fake.n_tokens - before == 117 % 16 + 1


def test_cancelled_requests_free_their_pages_and_others_go_on() -> None:
    cancelled, how = threading.Event(), Sampling(max_new_tokens=150)
    fake = Fake(12, before=lambda number: number != 8 or cancelled.wait(60))
    with engine_of(fake) as engine:
        one, other = engine.submit([1], how), engine.submit([2], how)
        taken = [next(one) for _ in range(5)]
        one.cancel()
        cancelled.set()
        taken += list(one)
        assert taken == expected([1], how, 200)[: len(taken)] and len(taken) < 8
        assert one.finish_reason == "cancelled"
        assert list(other) == expected([2], how, 200)
        assert engine._scheduler.pool.n_available == 12


def test_a_full_pool_interrupts_the_youngest_and_loses_nothing() -> None:
    fake, how = Fake(12), Sampling(max_new_tokens=120)
    with engine_of(fake) as engine:
        requests = [engine.submit([i], how) for i in range(6)]
        for i, request in enumerate(requests):
            assert list(request) == expected([i], how, 200)
    assert fake.n_tokens > 6 * 120, "no sequence was interrupted: the test needs a smaller pool"


def test_a_failed_call_ends_its_requests_and_no_others() -> None:
    fake, how = Fake(12, fail_at=4), Sampling(max_new_tokens=30)
    with engine_of(fake, max_sequences=2) as engine:
        requests = [engine.submit([i], how) for i in range(4)]
        for i, request in enumerate(requests):
            if i == 0:
                with pytest.raises(MemoryError):
                    list(request)
            elif i > 1:  # the second one is in the failed call only if it came in time
                assert list(request) == expected([i], how, 200)
        assert [each.finish_reason for each in requests].count("error") in (1, 2)
        assert engine._scheduler.pool.n_available == 12


def test_a_draw_that_fails_ends_its_request_and_no_other() -> None:
    fake, plain = Fake(12), Sampling(max_new_tokens=30)
    fake.draw = lambda *_: 1 // 0  # type: ignore[method-assign]
    with engine_of(fake) as engine:
        failing, other = engine.submit([1], Sampling(temperature=1.0)), engine.submit([2], plain)
        with pytest.raises(ZeroDivisionError):
            list(failing)
        assert failing.finish_reason == "error"
        assert list(other) == expected([2], plain, 200)
        assert engine._scheduler.pool.n_available == 12


def test_refusals_are_one_sentence() -> None:
    engine = engine_of(Fake(2))
    cases: list[tuple[list[int], Sampling, str]] = [
        ([], Sampling(), "the prompt has 0 tokens; it must have 1 to 200"),
        ([40], Sampling(), "the prompt has the token 40; token ids are 0 to 39"),
        ([True], Sampling(), "the prompt has the token True; token ids are 0 to 39"),
        ([1], Sampling(max_new_tokens=99), "the sequence may get 100 tokens; the cache holds 32"),
    ]
    for tokens, how, said in cases:
        with pytest.raises(ArgumentError, match=said):
            engine.submit(tokens, how)
    engine.close()
    with pytest.raises(ArgumentError, match="the engine is closed"):
        engine.submit([1], Sampling(max_new_tokens=1))


def test_closing_ends_all_requests() -> None:
    engine = engine_of(Fake(4))
    requests = [engine.submit([i], Sampling(max_new_tokens=60)) for i in range(9)]
    engine.close()
    assert all(list(each) is not None for each in requests)
    assert {each.finish_reason for each in requests} <= {"cancelled", "length"}
    assert engine.n_unfinished == 0


def test_soak_of_threads_cancels_and_full_pools() -> None:
    fake, wrong = Fake(14), []
    engine = engine_of(fake)

    def client(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(25):
            prompt = [
                *range(int(rng.integers(0, 39))),
                *map(int, rng.integers(0, 40, int(rng.integers(1, 60)))),
            ]
            how = Sampling(int(rng.integers(0, 40)), float(rng.integers(0, 2)), seed=int(rng.integers(9)))
            request, wanted = engine.submit(prompt, how), expected(prompt, how, 200)
            if rng.integers(4):
                made = list(request)
                wrong.extend([(prompt, how)] if made != wanted else [])
            else:
                made = [token for token, _ in zip(request, range(int(rng.integers(9))), strict=False)]
                request.cancel()
                wrong.extend([(prompt, how)] if made != wanted[: len(made)] else [])

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
    assert engine.n_unfinished == 0 and engine._scheduler.pool.n_available == 14
    engine.close()
