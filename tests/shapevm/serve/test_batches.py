"""Batches: their sizes and order, what is cancelled, and what fails alone."""

import asyncio
import threading
import time

import pytest
from shapevm.vm.errors import Cancelled

from shapevm.serve.batches import Batcher, Job, Rules


class Runs:
    """Doubles numbers; keeps the batches. A number below 0 fails; 0 waits until `released` is set."""

    def __init__(self):
        self.batches, self.released, self.begun = [], threading.Event(), threading.Event()

    def __call__(self, payloads, cancel):
        self.batches.append(list(payloads))
        if any(number < 0 for number in payloads):
            raise ValueError("a number below 0")
        if 0 in payloads:
            self.begun.set()
            while not self.released.wait(0.005):
                if cancel is not None and cancel.is_set:
                    raise Cancelled("a call was cancelled")
        return [2 * number for number in payloads]


@pytest.fixture
def batcher():
    """Return a function that makes a batcher and what it runs, closed when the test ends."""
    made = []

    def batcher(tokens=10, max_wait=0.0, threads=1):
        runs = Runs()
        made.append((Batcher(runs, Rules(tokens, max_wait, threads)), runs))
        return made[-1]

    yield batcher
    for one, runs in made:
        runs.released.set()
        one.close()
        assert not any(thread.is_alive() for thread in one._threads)


def job(*numbers, costs=None):
    return Job(numbers, costs or [1] * len(numbers))


async def blocked(one, runs):
    """Keep the thread of a batcher busy until `released` is set."""
    task = asyncio.create_task(one.results(job(0)))
    await asyncio.to_thread(runs.begun.wait, 60)
    return task


def test_results_are_in_order(batcher):
    one, runs = batcher(tokens=3, threads=2)

    async def main():
        jobs = [job(*range(start, start + 7)) for start in range(1, 400, 7)]
        return await asyncio.gather(*map(one.results, jobs))

    found = asyncio.run(main())
    assert [value for values in found for value in values] == [2 * number for number in range(1, 400)]
    assert all(len(batch) <= 3 for batch in runs.batches)


def batches_of(one, runs, jobs):
    """Return the batches that jobs become which come at once."""

    async def main():
        first = await blocked(one, runs)
        tasks = [asyncio.create_task(one.results(each())) for each in jobs]
        await asyncio.sleep(0)
        runs.released.set()
        await asyncio.gather(first, *tasks)

    asyncio.run(main())
    return runs.batches[1:]


def test_batches_are_full_and_in_order(batcher):
    jobs = [
        lambda: job(1, 2, costs=[4, 4]), lambda: job(3, 7, 8, costs=[3, 3, 3]), lambda: job(4, costs=[99]),
        lambda: job(5, 6, costs=[9, 1]),
    ]  # fmt: skip
    assert batches_of(*batcher(tokens=10), jobs) == [[1, 2], [3, 7, 8], [5, 6], [4]]


def test_short_requests_pass_long_ones(batcher):
    jobs = [lambda: job(1, 2, costs=[6, 6]), lambda: job(3, costs=[5]), lambda: job(4, costs=[5])]
    assert batches_of(*batcher(tokens=10), jobs) == [[3, 4], [1], [2]]


def test_a_long_request_is_passed_by_few_tokens(batcher):
    """A new short request before each batch: they pass the long one until 4 times its tokens were taken."""
    one, runs = batcher(tokens=1, threads=0)

    async def main():
        tasks = [asyncio.create_task(one.results(job(-7, costs=[5])))]
        for number in range(1, 40):
            tasks.append(asyncio.create_task(one.results(job(number))))
            await asyncio.sleep(0)
            one._run_batch(one._next())
        one._run_batch(one._next())
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    assert runs.batches.index([-7]) == 4 * (5 - 1)


def test_no_items(batcher):
    one, runs = batcher()

    async def main():
        return await one.results(job())

    assert asyncio.run(main()) == [] and not runs.batches


def test_a_batch_waits_for_others_until_it_is_full_or_old(batcher):
    one, runs = batcher(tokens=3, max_wait=0.2)

    async def later(delay, *numbers):
        await asyncio.sleep(delay)
        return await one.results(job(*numbers))

    async def main():
        begun = time.monotonic()
        await asyncio.gather(later(0, 1), later(0.01, 2), later(0.02, 3))
        full = time.monotonic() - begun
        await later(0, 4)
        return full, time.monotonic() - begun - full

    full, old = asyncio.run(main())
    assert runs.batches in ([[1, 2, 3], [4]], [[1, 2], [3], [4]], [[1], [2, 3], [4]])  # on a busy machine
    assert old >= 0.19


def test_one_item_fails_alone(batcher):
    one, runs = batcher(tokens=8)

    async def main():
        first = await blocked(one, runs)
        tasks = [asyncio.create_task(one.results(job(number))) for number in (1, 2, -3, 4, 5, 6, 7, 8)]
        await asyncio.sleep(0)
        runs.released.set()
        await first
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(main())
    assert (
        isinstance(found.pop(2), ValueError)
        and found == [2, 4, 8, 10, 12, 14, 16]
        or found == [[2 * number] for number in (1, 2, 4, 5, 6, 7, 8)]
    )
    assert len(runs.batches) <= 1 + 1 + 2 * 3


def test_a_wrong_number_of_results():
    one = Batcher(lambda payloads, cancel: [], Rules(10, 0, 1))

    async def main():
        with pytest.raises(RuntimeError, match="a batch of 1 gave 0 results"):
            await one.results(job(1))

    asyncio.run(main())
    one.close()


def test_what_waits_is_dropped_when_its_task_is_cancelled(batcher):
    one, runs = batcher()

    async def main():
        first = await blocked(one, runs)
        tasks = [asyncio.create_task(one.results(job(number, number))) for number in (1, 2, 3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(tasks[1], return_exceptions=True)
        assert one._tokens == 4 and len(one._waiting) == 2
        runs.released.set()
        await asyncio.gather(first, tasks[0], tasks[2])

    asyncio.run(main())
    assert runs.batches == [[0], [1, 1, 3, 3]] and one._tokens == 0 and not one._waiting


def test_what_runs_is_stopped_when_its_task_is_cancelled(batcher):
    one, runs = batcher()

    async def main():
        task = await blocked(one, runs)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return await asyncio.wait_for(one.results(job(1)), 60)

    assert asyncio.run(main()) == [2] and not runs.released.is_set()


def test_the_rest_of_a_failed_job_is_dropped(batcher):
    one, runs = batcher(tokens=1)

    async def main():
        with pytest.raises(ValueError, match="below 0"):
            await one.results(job(-1, *range(1, 1000)))

    asyncio.run(main())
    assert not one._waiting and one._tokens == 0


def test_close_runs_what_waits(batcher):
    one, runs = batcher()

    async def main():
        first = await blocked(one, runs)
        task = asyncio.create_task(one.results(job(1)))
        await asyncio.sleep(0)
        closing = asyncio.create_task(asyncio.to_thread(one.close, 60))
        runs.released.set()
        return await asyncio.gather(first, task, closing)

    assert asyncio.run(main())[:2] == [[0], [2]]


def test_a_loop_that_ended_before_the_result(batcher):
    one, runs = batcher()

    async def only_begin():
        task = await blocked(one, runs)
        task.cancel()

    async def main():
        return await one.results(job(2))

    asyncio.run(only_begin())
    runs.released.set()
    assert asyncio.run(main()) == [4]
