"""The collector of cycles rests while a program is compiled."""

import gc
import os
import threading

import pytest
import torch

import shapevm
from shapevm.build.collector import paused


@pytest.fixture(autouse=True)
def enabled():
    assert gc.isenabled()
    yield
    gc.enable()


def test_it_rests_while_a_program_is_compiled():
    seen = []
    shapevm.compile(
        torch.nn.Linear(3, 4), (torch.ones(2, 3),), progress=lambda *_: seen.append(gc.isenabled())
    ).close()
    assert seen and not any(seen)
    assert gc.isenabled()


def test_it_goes_on_after_an_error():
    with pytest.raises(shapevm.ArgumentError):
        shapevm.compile(3)
    assert gc.isenabled()


def test_the_last_thread_lets_it_go_on():
    entered, leave = threading.Event(), threading.Event()

    def other():
        with paused():
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with paused():
        thread.start()
        assert entered.wait(60)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_it_stays_off_where_the_user_has_turned_it_off():
    gc.disable()
    with paused():
        pass
    assert not gc.isenabled()


def test_it_goes_on_in_a_forked_child():
    with paused():
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert not gc.isenabled()
