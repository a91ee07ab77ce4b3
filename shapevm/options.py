"""What `shapevm.compile` can be asked for beyond the model and its sizes: the fields of `Options`.

    exe = shapevm.compile(model, (x,), options=shapevm.Options(weights="bf16", sizes=[{"rows": 16}]))

This file is the only list of these options. Each field is also a flag of the command line
(`shapevm compile model.pt2 -o model.svm --weights bf16 --sizes rows=16`) and a key of torch.compile's options
(`torch.compile(model, backend="shapevm", options={"weights": "bf16"})`, which knows those of `BackendOptions`
as well). To add an option, add a field here and use it in build.py; the flag, the key, the check and the
documentation follow from its row.
"""

from __future__ import annotations

import inspect
import reprlib
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from .settings import STRATEGIES, TARGETS, unknown_name
from .vm.errors import ArgumentError


def parse_sizes(text: str) -> dict[str, int]:
    """Return {"batch": 1, "length": 16} from "batch=1,length=16". Raises ArgumentError for another form."""
    try:
        return {name.strip(): int(value) for name, value in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise ArgumentError(f"sizes {text!r} must look like batch=1,length=16") from None


def _parse_all_sizes(texts: Iterable[str]) -> list[dict[str, int]]:
    return [parse_sizes(text) for text in texts]


def _parse_buckets(texts: Iterable[str]) -> dict[str, list[Any]]:
    from .buckets import parse_buckets

    return parse_buckets(texts)


def _are_sizes(value: Any) -> bool:
    return _is_list(value) and all(
        isinstance(sizes, Mapping) and all(isinstance(n, str) and type(v) is int for n, v in sizes.items())
        for sizes in value
    )


def _are_buckets(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(n, str) and _is_list(v) for n, v in value.items())


def _parse_samples(paths: Iterable[str]) -> list[dict[str, Any]]:
    from .calibration import read_sample

    return [read_sample(path) for path in paths]


def _are_samples(value: Any) -> bool:
    return _is_list(value) and all(isinstance(sample, tuple | list | Mapping) for sample in value)


def _is_share(value: Any) -> bool:
    return value is None or (
        isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    )


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


@dataclass(frozen=True)
class Row:
    """What is known of one option besides its name, type and default.

    `meaning`: a sentence without its full stop, which the command line shows as well. `errors`: a sentence
    on what is refused when the model is known. `choices`: the values that it may have, or with `is_many` a
    list of different ones too. A value of another kind is checked by `is_right`, and `must_be` says what it
    is. `form`: how the flag's value is written; `parse` makes the option's of the texts of a flag that may be
    repeated, `parse_one` of the text of another one.
    """

    meaning: str
    errors: str = ""
    choices: tuple[Any, ...] = ()
    is_many: bool = False
    is_right: Callable[[Any], bool] = lambda value: isinstance(value, bool)
    must_be: str = "True or False"
    form: str = ""
    parse: Callable[[Iterable[str]], Any] | None = None
    parse_one: Callable[[str], Any] | None = None

    def check(self, name: str, value: Any) -> None:
        """Raise ArgumentError for a value that the option cannot have."""
        several = list(value) if self.is_many and _is_list(value) else [value]
        for each in several if self.choices else ():
            if each not in self.choices:
                known = ", ".join(str(choice) for choice in self.choices if choice is not None)
                raise ArgumentError(f"{name} {each!r} is unknown; known are {known}")
        if self.choices and (not several or len(set(several)) < len(several)):
            known = ", ".join(str(choice) for choice in self.choices if choice is not None)
            raise ArgumentError(f"{name} is {value!r}; give one of {known}, or a list of different ones")
        if not self.choices and not self.is_right(value):
            raise ArgumentError(f"{name} is {reprlib.repr(value)}; it must be {self.must_be}")


def option(default: Any, row: Row) -> Any:
    """Return a field of `Options`: its default (a class such as dict: an empty one) and its row."""
    given = {"default_factory": default} if isinstance(default, type) else {"default": default}
    return field(**given, metadata={"row": row})


def row_of(known: Field[Any]) -> Row:
    """Return the row of an option's field."""
    row: Row = known.metadata["row"]
    return row


def default_of(known: Field[Any]) -> Any:
    """Return the default of an option's field."""
    return known.default if known.default_factory is MISSING else known.default_factory()


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `shapevm.compile` can be asked for beyond the model and its sizes. The compiled program depends on
    each of these; how it runs is its strategy's matter.

    Raises ArgumentError for a name that is no option (with the nearest one that is) and for a value that an
    option cannot have. Use `dataclasses.replace` to change one."""

    sizes: Sequence[Mapping[str, int]] = option(
        (),
        Row(
            "exact kernels for these sizes are compiled now and travel in the artifact",
            "Raises ArgumentError where one lacks a size of the model, names another or breaks its bounds.",
            is_right=_are_sizes,
            must_be='a list with the values of all symbols in each item, such as [{"batch": 1}]',
            form="NAME=N,...",
            parse=_parse_all_sizes,
        ),
    )
    buckets: Mapping[str, Sequence[Any]] = option(
        dict,
        Row(
            "kernels for ranges of sizes are compiled now and travel in the artifact: sizes, 33..128, "
            "max512, round16to512 (sizes that round up to the same multiple share a kernel), multiple8, "
            "8..512/8; see shapevm/buckets.py",
            "Raises ArgumentError for a name or a range that the contract has no room for.",
            is_right=_are_buckets,
            must_be='a mapping from sizes\' names to lists, such as {"length": [16, (17, 64), "max 512"]}',
            form="NAME=ITEM,...",
            parse=_parse_buckets,
        ),
    )
    target: str | Sequence[str] | None = option(
        None,
        Row(
            "the machine to compile for, or several: the artifact then has code for each; by default the "
            "setting's, and without one this machine",
            "Raises TargetError where none is given and the CPU here is none of these.",
            choices=(None, *TARGETS),
            is_many=True,
        ),
    )
    fallback: str = option(
        "torch",
        Row(
            "what becomes of operators that cannot be compiled: torch, PyTorch is called (`shapevm inspect` "
            "lists them, and torch must be installed where the artifact runs); error, they are refused",
            "Under error raises UnsupportedOp, which names all of them with the model's lines.",
            choices=("torch", "error"),
        ),
    )
    weights: str = option(
        "f32",
        Row(
            "the dtype that the weights of matrix products are rounded to: bf16 and f16 have half the bytes "
            "to read; int8, with a scale for each column, a quarter; int4, with a scale for each 32 elements "
            "of a column, a sixth; f32 rounds nothing",
            choices=("f32", "bf16", "f16", "int8", "int4"),
        ),
    )
    precision: str = option(
        "f32",
        Row(
            "what products and convolutions by constant weights may round both operands to: bf16, with sums "
            "in f32, which a CPU with AMX multiplies several times as fast; products whose weights are "
            "integers, attention and what would be slower stay as they are (`shapevm inspect` lists the "
            "weights)",
            choices=("f32", "bf16"),
        ),
    )
    calibrate: Sequence[Any] = option(
        (),
        Row(
            "under int8 and int4 the activations of products become integers of a byte as well, with the "
            "ranges of these samples: some typical inputs, each a tuple of the model's arguments or a "
            "mapping of them by name; a file holds one (.npz) by the names of the program's inputs",
            "Raises ArgumentError for a sample that is no arguments of the model.",
            is_right=_are_samples,
            must_be="a list of samples, each a tuple or a mapping of the model's arguments",
            form="FILE.npz",
            parse=_parse_samples,
        ),
    )
    max_error: float | None = option(
        None,
        Row(
            "under int8 and int4 a weight that rounding would change by more than this share of its norm is "
            "rounded less: to int8 instead of int4, else not at all; with `calibrate`, and where precision "
            "is bf16, so is a product whose weight and activation together would change it by more (`shapevm "
            "inspect` lists the weights)",
            is_right=_is_share,
            must_be="a number from 0 to 1, or None",
            form="SHARE",
            parse_one=float,
        ),
    )
    random: str = option(
        "native",
        Row(
            "who draws random numbers: native, the program, from a seed that it keeps between calls "
            "(`Executable.manual_seed`; torch's initial one at first); torch, PyTorch, what eager would",
            choices=("native", "torch"),
        ),
    )
    accurate: bool = option(
        False,
        Row(
            "matrix products add up at most 16 products in a row, convolutions are sums of products, "
            "never by Winograd's algorithm, whose errors may be 4 times PyTorch's (3 x 3 taps take up to 2.7 "
            "times as long then), and batch norms stay apart from the weights before them",
        ),
    )

    def __new__(cls, **given: Any) -> Options:
        """Raise ArgumentError for a name that is no option."""
        known = [each.name for each in fields(cls)]
        for name in given:
            if name not in known:
                raise unknown_name("option", name, known)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for known in fields(self):
            row_of(known).check(known.name, getattr(self, known.name))
        if len(self.calibrate) and self.weights not in ("int8", "int4"):
            raise ArgumentError(
                f"calibrate is given, but weights is {self.weights!r}: activations become integers where "
                "weights do, under 'int8' and 'int4'"
            )

    @property
    def targets(self) -> tuple[str | None, ...]:
        """The targets to compile for, the best first; None: that of the setting or this machine."""
        if self.target is None or isinstance(self.target, str):
            return (self.target,)
        return tuple(name for name in TARGETS if name in self.target)


_DYNAMO_NAMES_SIZES = "Dynamo takes the model apart and names the sizes of its graphs itself"
#: Options that only their default fits in torch.compile, and why.
FIXED_IN_GRAPHS = {
    "sizes": _DYNAMO_NAMES_SIZES,
    "buckets": _DYNAMO_NAMES_SIZES,
    "calibrate": "its samples are the whole model's, and graphs are parts of it; compile the model",
    "random": "PyTorch draws there, as eager does",
}


@dataclass(frozen=True, kw_only=True)
class BackendOptions(Options):
    """What `torch.compile(model, backend="shapevm", options={...})` takes: the options of `shapevm.compile`
    and those of its own. `sizes`, `buckets`, `calibrate` and `random` have their defaults there and no other
    value.

    Raises ArgumentError as `Options` does."""

    random: str = option(
        "torch", Row("PyTorch draws random numbers, as eager does", choices=("native", "torch"))
    )
    target: str | None = option(
        None,
        Row(
            "the target to compile for, which must run here; by default the setting's, and without one this "
            "machine",
            choices=(None, *TARGETS),
        ),
    )
    strategy: str | None = option(
        None,
        Row(
            "when exact kernels are compiled, as `shapevm.compile` takes it; by default what torch.compile's "
            "mode says, and without one the setting's",
            choices=(None, *STRATEGIES),
        ),
    )
    freeze: bool = option(
        True,
        Row(
            "weights are constants where no gradients are wanted; False for models in which single elements "
            "of weights are written through `.data` or numpy"
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for known in fields(self):
            value = getattr(self, known.name)
            if known.name in FIXED_IN_GRAPHS and value != default_of(known):
                reason = FIXED_IN_GRAPHS[known.name]
                raise ArgumentError(f"{known.name} {value!r} is not available under torch.compile: {reason}")


def check_options(options: Any) -> Options:
    """Return `options`, None as the defaults. Raises ArgumentError for what is no `Options`."""
    if options is None:
        return Options()
    if not isinstance(options, Options):
        raise ArgumentError(
            f"options is a {type(options).__name__}; it must be a shapevm.Options, such as "
            'shapevm.Options(weights="bf16")'
        )
    return options


def described(kind: type[Options]) -> str:
    """Return a class's docstring with its options, one after the other: type, default, meaning, errors."""
    parts = [inspect.cleandoc(kind.__doc__ or ""), ""]
    for known in fields(kind):
        row = row_of(known)
        choices = f" One of {', '.join(map(repr, row.choices))}." if row.choices else ""
        text = f"{row.meaning}.{choices} {row.errors}"
        parts.append(f"{known.name}: {known.type} = {default_of(known)!r}")
        parts += textwrap.wrap(text, 100, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(parts)


for _kind in (Options, BackendOptions):
    _kind.__doc__ = described(_kind)
    _own = [p for p in inspect.signature(_kind.__init__).parameters.values() if p.name != "self"]
    _kind.__signature__ = inspect.Signature(_own)  # type: ignore[union-attr]
