"""The flags of `shapevm compile`: one for each field of `shapevm.Options`, made from its row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, fields, replace
from typing import Any

import click

from ..build.options import Options, default_of, row_of

_MAX_CHOICES = 40  # characters: longer lists are in the text, which is wrapped
_FLAGGED = {known.name: known for known in fields(Options)}


def flag(name: str) -> Callable[[Any], Any]:
    """Return the flag of one option as a decorator for a command. If the flag is absent, the command gets
    None, or () for a repeatable one."""
    known = _FLAGGED[name]
    row, dashed = row_of(known), name.replace("_", "-")
    if row.parse is not None:
        return click.option(
            f"--{dashed}", multiple=True, metavar=row.form, help=f"{row.meaning} (repeatable)"
        )
    if row.parse_one is not None:
        return click.option(f"--{dashed}", type=row.parse_one, metavar=row.form, help=row.meaning)
    if row.choices:
        choices = [choice for choice in row.choices if choice is not None]
        is_long = sum(map(len, choices)) > _MAX_CHOICES
        text = row.meaning + (f": {', '.join(choices)}" if is_long else "")
        text += " (repeatable)" if row.is_many else _shown(known)
        return click.option(
            f"--{dashed}", type=click.Choice(choices), multiple=row.is_many, help=text,
            metavar=name.upper() if is_long else None,
        )  # fmt: skip
    return click.option(f"--{dashed}/--no-{dashed}", default=None, help=row.meaning)


def _shown(known: Field[Any]) -> str:
    default = default_of(known)
    return "" if default is None else f"  [default: {default}]"


def option_flags(command: Any) -> Any:
    """Decorate a command with the flags of all options."""
    for name in reversed(_FLAGGED):
        command = flag(name)(command)
    return command


def with_flags(options: Options, given: Mapping[str, Any]) -> Options:
    """Return options overridden by flags."""
    values: dict[str, Any] = {}
    for name, value in given.items():
        parse = row_of(_FLAGGED[name]).parse
        if value not in (None, ()):
            values[name] = value if parse is None else parse(value)
    return replace(options, **values)
