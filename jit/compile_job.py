"""Jobs for a compile process: compile a kernel and measure it against its generic code, or measure this
machine's register tiles.

The process answers one job at a time. Jobs and answers are in a file that both sides have open; only their
length goes through the socket, so neither side ever waits for the other to read. A length of 0 cancels the
rest of a `Batch`.
"""

from __future__ import annotations

import errno
import os
import pickle
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING

from ..vm.objects import parse_object, serialise_object
from ..vm.program import KernelKey, KernelObject

if TYPE_CHECKING:
    from .measure.objects import Scratch

LENGTH_BYTES = 8
MAX_MEASURED_BYTES = 64 << 20  # of a launch's buffers: larger ones are not measured beside the program


@dataclass(frozen=True)
class Job:
    """A kernel to compile: its spec as JSON, and the arguments of `compile_kernel`. `generic`: the record of
    its generic code, with which exact code is compared; b"": it is not measured. `cache`: the folder of the
    kernel cache, which has parts of kernels, "" for none."""

    spec: str
    dims: KernelKey
    target: str
    schedule: str | None
    generic: bytes
    cache: str = ""


@dataclass(frozen=True)
class TilesJob:
    """A measurement of this machine's register tiles, in code for `target`, and of ways to read narrow
    weights, or streams of weights from memory; the answer's record is that of the choice. `cache`: as in
    `Job`."""

    target: str
    are_streams: bool = False
    cache: str = field(default="", compare=False)


@dataclass(frozen=True)
class Batch:
    """Kernels to compile one after the other, until the batch is stopped or one cannot be compiled. Sending
    them one by one would wait for the GIL after each, beside a computing thread."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Answer:
    """The record of the code, the seconds of compilation, the total CPU seconds, and the nanoseconds of a
    launch, 0 if it was not measured. `failure`: why there is no code. `records`: those of the finished jobs
    of a batch."""

    record: bytes = b""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    exact_ns: int = 0
    generic_ns: int = 0
    failure: str = ""
    records: tuple[bytes, ...] = ()


@cache
def _scratch() -> Scratch:
    from .measure.objects import Scratch

    return Scratch()


def answer(job: Job | TilesJob) -> Answer:
    """Do a job. Raises the errors of compilation."""
    return _measure_tiles(job) if isinstance(job, TilesJob) else _compile(job)


def _measure_tiles(job: TilesJob) -> Answer:
    from .measure import narrow, streams, tiles

    begin, cpu = perf_counter(), process_time()
    if job.are_streams:
        choice = streams.measure(job.target)
    else:
        choice = narrow.measure(job.target).beside(tiles.measure(job.target))
    return Answer(choice.record(), perf_counter() - begin, process_time() - cpu)


def _compile(job: Job) -> Answer:
    from .compiler import compile_kernel
    from .measure.objects import compared_ns
    from .spec_reader import from_json

    begin, cpu = perf_counter(), process_time()
    spec, cache = from_json(job.spec), Path(job.cache) if job.cache else None
    made = compile_kernel(spec, job.dims, job.target, schedule=job.schedule, cache=cache)
    seconds, ns = perf_counter() - begin, {}
    if job.generic and made.exact_dims is not None:
        objects: dict[str, KernelObject] = {"exact": made, "generic": parse_object(job.generic)}
        ns = compared_ns(objects, made.exact_dims, max_bytes=MAX_MEASURED_BYTES, scratch=_scratch())
    measured = ns.get("exact", 0), ns.get("generic", 0)
    return Answer(serialise_object(made), seconds, process_time() - cpu, *measured)


def write_payload(file: int, payload: bytes) -> None:
    """Write all of a job or an answer. Raises OSError if it does not fit the file."""
    if os.pwrite(file, payload, 0) < len(payload):  # a disk that is full takes a part
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def serve(connection: int, file: int, do: Callable[[Job | TilesJob], Answer] = answer) -> None:
    """Answer jobs until the other end is closed."""
    with socket.socket(fileno=connection) as link:
        while length := link.recv(LENGTH_BYTES, socket.MSG_WAITALL):
            if not int.from_bytes(length):
                continue  # the batch was done before it was stopped
            job = pickle.loads(os.pread(file, int.from_bytes(length), 0))
            if isinstance(job, Batch):
                made = _do_batch(job, link, do)
            else:
                made = _done(job, do)
            payload = pickle.dumps(made)
            write_payload(file, payload)  # if it does not fit, this process ends, which the parent notices
            link.sendall(len(payload).to_bytes(LENGTH_BYTES))


def _done(job: Job | TilesJob, do: Callable[[Job | TilesJob], Answer]) -> Answer:
    try:
        return do(job)
    except Exception as error:  # whatever it is, the program must be told
        return Answer(failure=f"{type(error).__name__}: {error}")


def _do_batch(batch: Batch, link: socket.socket, do: Callable[[Job | TilesJob], Answer]) -> Answer:
    records: list[bytes] = []
    for job in batch.jobs:
        if _has_message(link) or (made := _done(job, do)).failure:
            break
        records.append(made.record)
    return Answer(records=tuple(records))


def _has_message(link: socket.socket) -> bool:
    """Whether the other end has sent something, or is closed."""
    looking = select.poll()  # `select` takes no descriptors beyond 1023
    looking.register(link, select.POLLIN)
    return bool(looking.poll(0))
