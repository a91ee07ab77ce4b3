"""Calls in a child process, where a crash costs one call.

Some of PyTorch's operators do not check their indices, so a model that runs on truncated data may crash its
process. The child is forked: it has the model without a copy, and no import runs.
"""

from __future__ import annotations

import faulthandler
import gc
import io
import os
import resource
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any, NoReturn

TIMEOUT_S = 300.0  # of one call, perhaps of a large model


class CallFailed(Exception):
    """The call raised an exception, or ended its process."""


class Apart:
    """Calls functions of `subject` in a child process, which starts with the first call and restarts with the
    next call after a crash. The child has this process's state at that moment, and computes on one thread,
    because a thread pool does not survive a fork."""

    def __init__(self, subject: Any) -> None:
        self._subject = subject
        self._child: int | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Apart:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __call__(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return `function(subject, *args)`, which may consist of tensors, text, numbers, lists and tuples;
        the function and `args` are pickled. Raises CallFailed if the call raises, ends its process, or
        takes longer than TIMEOUT_S."""
        import torch

        connection = self._connection or self._start()
        try:
            connection.send((function, args))
            if not connection.poll(TIMEOUT_S):
                self.close()
                raise CallFailed(f"it takes longer than {TIMEOUT_S:.0f} s")
            said = connection.recv_bytes()
        except (EOFError, OSError):
            raise CallFailed(self._how_it_ended()) from None
        has_failed, found = torch.load(io.BytesIO(said), weights_only=True)
        if has_failed:
            raise CallFailed(found)
        return found

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            self._how_it_ended()

    def _start(self) -> Connection:
        ours, theirs = Pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
            child = os.fork()
        if child == 0:
            ours.close()
            _serve(theirs, self._subject)
        theirs.close()
        self._child, self._connection = child, ours
        return ours

    def _how_it_ended(self) -> str:
        """Release the child and return a sentence about how it ended."""
        assert self._child is not None and self._connection is not None
        self._connection.close()
        status = 0
        with suppress(ChildProcessError):  # the host program does not keep its children
            _, status = os.waitpid(self._child, 0)
        self._child = self._connection = None
        by = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "no signal"
        return f"PyTorch ends the process ({by})"


def _serve(connection: Connection, subject: Any) -> NoReturn:
    """Answer calls until the other end is closed."""
    try:
        _prepare()
        while True:
            connection.send_bytes(_answer(subject, *connection.recv()))
    except BaseException:  # the parent is gone or no longer waits
        os._exit(1)
    finally:
        os._exit(0)


def _prepare() -> None:
    """Let this process crash silently and run none of its parent's handlers."""
    import torch

    gc.disable()  # objects of the parent are not finalised here
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    torch.set_num_threads(1)


def _answer(subject: Any, function: Callable[..., Any], args: Any) -> bytes:
    """Return whether a call fails, and its result or the error message, as bytes."""
    import torch

    file = io.BytesIO()
    try:
        torch.save((False, function(subject, *args)), file)
    except Exception as error:  # anything that a model may raise
        file = io.BytesIO()
        torch.save((True, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"), file)
    return file.getvalue()
