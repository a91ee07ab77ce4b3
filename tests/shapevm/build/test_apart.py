"""Calls in a child process: what becomes of them, of crashes and of errors."""

import ctypes
import os
import signal

import pytest
import torch

from shapevm.build import apart
from shapevm.build.apart import Apart, CallFailed


def double(subject, x):
    return [subject * x, "text", None]


def fails(subject, x):
    raise ValueError(f"no {x}\nmore lines")


def crashes(subject):
    ctypes.string_at(0)


def process(subject):
    return os.getpid(), os.getppid(), torch.get_num_threads()


def sleeps(subject):
    signal.pause()


def test_results_come_back():
    with Apart(3) as call:
        found, *rest = call(double, torch.arange(4))
        assert found.tolist() == [0, 3, 6, 9] and rest == ["text", None]


def test_calls_share_one_child_on_one_thread():
    with Apart(None) as call:
        first = call(process)
        assert call(process) == first and first[1:] == (os.getpid(), 1) and first[0] != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(first[0], 0)


def test_an_exception_is_a_sentence():
    with Apart(None) as call, pytest.raises(CallFailed, match="^ValueError: no 7$"):
        call(fails, 7)


def test_a_crash_costs_one_call():
    with Apart(2) as call:
        with pytest.raises(CallFailed, match="SIGSEGV"):
            call(crashes)
        assert call(double, 4)[0] == 8


def test_a_call_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(apart, "TIMEOUT_S", 0.2)
    with Apart(2) as call:
        with pytest.raises(CallFailed, match=r"longer than 0 s"):
            call(sleeps)
        monkeypatch.setattr(apart, "TIMEOUT_S", 60.0)
        assert call(double, 4)[0] == 8
