"""The command line `shapevm`: a file for each group of commands."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from functools import wraps
from typing import Any

import click

from .. import __version__
from ..build.progress import waiting
from ..vm.errors import ArtifactError, Cancelled, Error, InputError, TargetError
from ..vm.literals import printable
from . import chatting, checking, compiling, running, serving, specialising, targets
from .shared import CANCELLED, NOT_LOADED, failure, is_quiet, json_option, quiet_option, say_data

#: Exit codes of errors, those of shapevm-run; of others: 1.
_EXIT_CODES = (((ArtifactError, TargetError), NOT_LOADED),)
#: Commands that show their own stages.
_STAGED = {"chat", "compile", "serve", "show", "profile", "tune"}


class Commands(click.Group):
    """A group whose commands end with one sentence for an error of ours or of the system, and with
    shapevm-run's exit code for it, or else 1."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the arguments and run the command. stdout may be unable to print some text."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # names of files may not be valid text
        try:
            return super().main(*args, **kwargs)
        except (OSError, MemoryError) as error:
            if isinstance(error, Error):
                raise
            if isinstance(error, MemoryError):
                error = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), "the command")
            what = "standard output" if error.filename is None else os.fspath(error.filename)
            click.ClickException(f"{what}: {error.strerror or error}").show()
            _discard_stdout()
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            if ctx.obj is not None:
                ctx.obj()  # of __main__: from now on Ctrl-C raises KeyboardInterrupt
            return super().invoke(ctx)
        except InputError as error:
            raise click.UsageError(printable(str(error))) from None
        except (KeyboardInterrupt, Cancelled):
            raise failure("ended by Ctrl-C", CANCELLED) from None
        except Error as error:
            code = next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 1)
            raise failure(printable(str(error)), code) from None


def _discard_stdout() -> None:
    """Drop unwritten output: Python would retry at exit."""
    with suppress(OSError):
        sys.stdout.close()


def _dashed(name: str) -> str:
    """Return the name of a flag written in Python's style: --max_error is --max-error."""
    return name.replace("_", "-")


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": _dashed}
)
@click.version_option(__version__, prog_name="shapevm")
@quiet_option
def main() -> None:
    """Compile a PyTorch program once, run it at any shape."""


def _whole(command: click.Command) -> click.Command:
    """Return a command with `--quiet` and `--json`, which shows a progress message when it takes long."""
    run = command.callback
    assert run is not None
    quiet_option(command)
    has_json = any(parameter.name == "as_json" for parameter in command.params)
    if not has_json:
        json_option(command)

    @wraps(run)
    def callback(*args: Any, **kwargs: Any) -> Any:
        with waiting(f"shapevm {command.name}", is_quiet() or command.name in _STAGED):
            status = None
            try:
                run(*args, **kwargs)
            except SystemExit as end:
                status = end
            say_data()
            if status is not None:
                raise status

    command.callback = callback
    return command


for group in (compiling, running, serving, chatting, specialising, targets, checking):
    for command in group.COMMANDS:
        main.add_command(_whole(command))
