"""The command line `shapevm`: a file for each group of commands."""

from __future__ import annotations

from typing import Any

import click

from .. import __version__
from ..files import InputError
from ..vm.errors import Error
from . import checking, compiling, running, specialising


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
def main() -> None:
    """Compile a PyTorch program once, run it at any shape."""


for group in (compiling, running, specialising, checking):
    for command in group.COMMANDS:
        main.add_command(command)
