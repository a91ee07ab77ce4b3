"""Flags that stop calls."""

import threading
import time

import pytest
from shapevm.vm.artifact import to_bytes
from shapevm.vm.assembler import assemble
from shapevm.vm.cancel import CancelFlag
from shapevm.vm.errors import ArgumentError, Cancelled

import shapevm

from .programs import forever_at_0


@pytest.fixture
def exe():
    with shapevm.load(to_bytes(assemble(forever_at_0("return (r0)")))) as exe:
        yield exe


def test_a_flag_stops_its_calls_alone(exe):
    flag, errors = CancelFlag(), []

    def call():
        try:
            exe.using(cancel=flag).run({"k": 0})
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    assert not flag.is_set and not errors
    assert exe.using(cancel=shapevm.CancelFlag()).run({"k": 1}) == {"y": 1}  # which they do not hold up
    flag.set()
    for thread in threads:
        thread.join(60)
    assert flag.is_set and [type(error) for error in errors] == [Cancelled] * 3
    with pytest.raises(Cancelled):
        exe.using(cancel=flag)(0)
    assert exe.run({"k": 1}) == {"y": 1}


def test_what_is_no_flag(exe):
    with pytest.raises(ArgumentError, match="cancel is 1; give a shapevm.CancelFlag"):
        exe.using(cancel=1)
