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
from .shared import quiet_option


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
def main(quiet: bool) -> None:
    """Compile a PyTorch program once, run it at any shape."""


def _patient(command: click.Command) -> click.Command:
    """Return a command that says so when it takes long; those that show their stages do that themselves."""
    run = command.callback
    if run is None or any(parameter.name == "quiet" for parameter in command.params):
        return command

    @wraps(run)
    def callback(*args: Any, **kwargs: Any) -> Any:
        parent = click.get_current_context().parent
        with waiting(f"shapevm {command.name}", parent is not None and parent.params.get("quiet", False)):
            return run(*args, **kwargs)

    command.callback = callback
    return command


for group in (compiling, running, specialising, targets, checking):
    for command in group.COMMANDS:
        main.add_command(_patient(command))
