"""Artifacts for several kinds of CPU: strip, merge-targets."""

from __future__ import annotations

from pathlib import Path

import click

from .shared import artifact_argument, existing, output_option, saved


@click.command("strip")
@artifact_argument
@click.option(
    "--target",
    "targets",
    multiple=True,
    required=True,
    metavar="TARGET",
    help="a target to keep (repeatable)",
)
@output_option
def strip_command(artifact: Path, targets: tuple[str, ...], output: Path) -> None:
    """Write ARTIFACT with the code of some targets alone.

    Machines of these targets run it, with the kernels that it had for them.
    """
    from ..fat import only_targets
    from ..vm.artifact import read

    saved(only_targets(read(artifact), targets), output)


@click.command("merge-targets")
@click.argument("artifacts", nargs=-1, required=True, type=existing)
@output_option
def merge_command(artifacts: tuple[Path, ...], output: Path) -> None:
    """Write one artifact with the code of all ARTIFACTS.

    They are of one program, compiled for several targets.
    """
    from ..argument_check import check_artifact
    from ..fat import merged
    from ..vm.artifact import read

    for path in artifacts:
        check_artifact(path)
    saved(merged([read(path) for path in artifacts], list(map(str, artifacts))), output)


COMMANDS = (strip_command, merge_command)
