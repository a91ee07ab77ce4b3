"""Jobs for a process of its own: a kernel compiled and measured against its generic code, or this machine's
register tiles measured.

The process answers one job at a time. Jobs and answers lie in a file that both sides have open; what goes
through the socket is their length, so that neither side ever waits for the other to read. A length of 0 says
that nobody needs the rest of a `Batch`.
"""

from __future__ import annotations

import errno
import os
import pickle
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
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
    """A kernel to compile: its spec as JSON, and what `compile_kernel` takes. `generic`: the record of its
    generic code, which exact code is measured against; b"": it is not measured. `cache`: the folder of the
    kernel cache, which has parts of kernels, "" for none."""

    spec: str
    dims: KernelKey
    target: str
    schedule: str | None
    generic: bytes
    cache: str = ""


@dataclass(frozen=True)
class TilesJob:
    """This machine's register tiles are to be measured, in code for `target`, and how narrow weights are
    read, or how streams of weights from memory are; the answer's record is that of the choice."""

    target: str
    are_streams: bool = False


@dataclass(frozen=True)
class Batch:
    """Kernels to compile one after the other, until that is stopped or one cannot be compiled. Whoever gave
    one after the other would wait for Python's lock after each, beside a thread that computes."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Answer:
    """The record of the code, the seconds that compiling took, those of the processor in all, and the
    nanoseconds of a launch, 0 where none was measured. `failure`: why there is no code. `records`: those of
    the jobs of a batch that were done."""

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
    """Do a job. Raises what compiling raises."""
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
    """Write all of a job or an answer. Raises OSError where the file has no room for it."""
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
            write_payload(file, payload)  # without room for it this process ends, which says so
            link.sendall(len(payload).to_bytes(LENGTH_BYTES))


def _done(job: Job | TilesJob, do: Callable[[Job | TilesJob], Answer]) -> Answer:
    try:
        return do(job)
    except Exception as error:  # whatever it is, the program must hear of it
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
