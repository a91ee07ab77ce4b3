"""Freed memory goes back to the system."""

import mmap
import threading
from pathlib import Path

import pytest

from shapevm.serve import memory

SIZE = 16 << 10  # less than blocks that the C library maps one by one


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_gaps_between_what_stays_are_returned():
    blocks = [bytearray(SIZE) for _ in range(4096)]
    kept, blocks = blocks[::8], None
    before = resident()
    with memory.trimming(0.01):
        ended = threading.Event()
        for _ in range(200):
            if resident() < before - (32 << 20):
                break
            ended.wait(0.05)
        else:
            pytest.fail(f"{before >> 20} MiB, then {resident() >> 20}")
    assert len(kept) == 512
    assert not any(thread.name == "shapevm-memory" for thread in threading.enumerate())
