"""The command line `shapevm`: a file for each group of commands."""

from __future__ import annotations

from functools import wraps
from typing import Any

import click

from .. import __version__
from ..errors import InputError
from ..progress import waiting
from ..vm.errors import Error
from . import checking, compiling, running, specialising, targets
from .shared import is_quiet, json_option, quiet_option, say_data

#: Commands that show their stages themselves.
_STAGED = {"compile", "show", "profile", "tune"}


class Commands(click.Group):
    """A group whose commands end with one sentence for an error of ours, and with exit code 1; 2 for inputs
    that are missing or unknown."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except InputError as error:  # as shapevm-run does
            raise click.UsageError(str(error)) from None
        except Error as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="shapevm")
@quiet_option
def main() -> None:
    """Compile a PyTorch program once, run it at any shape."""


def _whole(command: click.Command) -> click.Command:
    """Return a command with `--quiet` and `--json`, which says so when it takes long."""
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


for group in (compiling, running, specialising, targets, checking):
    for command in group.COMMANDS:
        main.add_command(_whole(command))
