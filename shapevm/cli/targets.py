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
    """Write ARTIFACT with the code of some targets only.

    Machines of these targets run it with the same kernels as before.
    """
    from ..program.targets import only_targets
    from ..vm.artifact import read_verified

    saved(only_targets(read_verified(artifact), targets), output)


@click.command("merge-targets")
@click.argument("artifacts", nargs=-1, required=True, type=existing)
@output_option
def merge_command(artifacts: tuple[Path, ...], output: Path) -> None:
    """Write one artifact with the code of all ARTIFACTS.

    The artifacts must be of one program, compiled for different targets.
    """
    from ..calls.checks import check_artifact
    from ..program.targets import merged
    from ..vm.artifact import read_verified

    for path in artifacts:
        check_artifact(path)
    saved(merged([read_verified(path) for path in artifacts], list(map(str, artifacts))), output)


COMMANDS = (strip_command, merge_command)
