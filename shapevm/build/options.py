"""Options of `shapevm.compile` beyond the model and its sizes: the fields of `Options`.

    exe = shapevm.compile(model, (x,), options=shapevm.Options(weights="bf16", sizes=[{"rows": 16}]))

This file is the only list of these options. Each field is also a flag of the command line
(`shapevm compile model.pt2 -o model.svm --weights bf16 --sizes rows=16`) and a key of torch.compile's options
(`torch.compile(model, backend="shapevm", options={"weights": "bf16"})`, which also accepts those of
`BackendOptions`). To add an option, add a field here and use it in build.py; the flag, the key, the check and
the documentation are derived from its row.
"""

from __future__ import annotations

import inspect
import reprlib
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Literal, Self, get_args

from ..settings import TARGETS, Target
from ..vm.codes import STRATEGIES, Strategy
from ..vm.errors import ArgumentError
from ..vm.spelling import unknown_name

Fallback = Literal["torch", "error"]
Weights = Literal["f32", "bf16", "f16", "int8", "int4"]
Precision = Literal["f32", "i16", "bf16", "bf16x6"]
Random = Literal["native", "torch"]
Bits = Literal["target", "portable"]
PORTABLE: Bits = "portable"


def parse_sizes(text: str) -> dict[str, int]:
    """Return {"batch": 1, "length": 16} from "batch=1,length=16". Raises ArgumentError for any other form."""
    try:
        return {name.strip(): int(value) for name, value in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise ArgumentError(f"sizes {text!r} must look like batch=1,length=16") from None


def _parse_all_sizes(texts: Iterable[str]) -> list[dict[str, int]]:
    return [parse_sizes(text) for text in texts]


def _parse_buckets(texts: Iterable[str]) -> dict[str, list[Any]]:
    from ..specialise.buckets import parse_buckets

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
    """The properties of one option besides its name, type and default.

    `meaning`: a sentence without its full stop, which the command line also shows. `errors`: a sentence on
    the values that are refused once the model is known. `choices`: the permitted values, or with `is_many`
    also lists of distinct ones. Other values are checked by `is_right`, which `must_be` describes. `form`:
    how the flag's value is written. `parse` makes the option's value from the texts of a repeatable flag,
    `parse_one` from the text of any other.
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
        """Raise ArgumentError for an invalid value."""
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
    """Return a field of `Options`: its default (for a class such as dict, an empty one) and its row."""
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
class CommonOptions:
    """Options common to `shapevm.compile` and torch.compile."""

    sizes: Sequence[Mapping[str, int]] = option(
        (),
        Row(
            "compile exact kernels for these sizes now and store them in the artifact",
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
            "compile kernels for ranges of sizes now and store them in the artifact: sizes, 33..128, "
            "max512, round16to512 (sizes that round up to the same multiple share a kernel), multiple8, "
            "8..512/8; see docs/specialisation.md",
            "Raises ArgumentError for a name or a range outside the contract.",
            is_right=_are_buckets,
            must_be='a mapping from sizes\' names to lists, such as {"length": [16, (17, 64), "max 512"]}',
            form="NAME=ITEM,...",
            parse=_parse_buckets,
        ),
    )
    target: Target | Sequence[Target] | None = option(
        None,
        Row(
            "the target to compile for, or several, so that the artifact has code for each; by default the "
            "setting `target`, or else this machine",
            "Raises TargetError if none is given and this CPU is none of these.",
            choices=(None, *TARGETS),
            is_many=True,
        ),
    )
    fallback: Fallback = option(
        "torch",
        Row(
            "how to handle operators that cannot be compiled: torch calls PyTorch (`shapevm inspect` lists "
            "them, and torch must be installed where the artifact runs); error refuses them",
            "Under error raises UnsupportedOp, which names all of them with the model's lines.",
            choices=get_args(Fallback),
        ),
    )
    weights: Weights = option(
        "f32",
        Row(
            "the dtype to which weights of matrix products are rounded: bf16 and f16 have half the bytes; "
            "int8, with a scale for each column, a quarter; int4, with a scale for each 32 elements of a "
            "column, a sixth; f32 rounds nothing",
            choices=get_args(Weights),
        ),
    )
    precision: Precision = option(
        "f32",
        Row(
            "the dtype to which products and convolutions by constant weights may round both operands: "
            "bf16, with sums in f32, is several times as fast on CPUs with AMX. It does not apply to "
            "integer weights, to attention, or where it would be slower (`shapevm inspect` lists the "
            "weights). i16 applies to integer weights only: activations become 16-bit integers times a "
            "power of two for each 16 to 128 numbers, of which each changes by at most 2^-15 of the "
            "greatest. bf16x6 rounds nothing: with AMX, f32 products of 96 or more rows are sums of six "
            "bf16 products, as exact as f32 products and faster (MiniLM up to 1.3 times), but a row then "
            "has other bits in a batch of 96 or more rows than in a smaller one",
            choices=get_args(Precision),
        ),
    )
    calibrate: Sequence[Any] = option(
        (),
        Row(
            "under int8 and int4, also make activations of products one-byte integers, with the ranges of "
            "these samples: typical inputs, each a tuple of the model's arguments or a mapping of them by "
            "name; an .npz file holds one sample, by the names of the program's inputs",
            "Raises ArgumentError for a sample that does not fit the model's arguments.",
            is_right=_are_samples,
            must_be="a list of samples, each a tuple or a mapping of the model's arguments",
            form="FILE.npz",
            parse=_parse_samples,
        ),
    )
    max_error: float | None = option(
        None,
        Row(
            "under int8 and int4, a weight that rounding would change by more than this share of its norm "
            "is rounded less: to int8 instead of int4, or not at all. With `calibrate` or precision bf16 "
            "the limit applies to a product's weight and activation together (`shapevm inspect` lists the "
            "weights)",
            is_right=_is_share,
            must_be="a number from 0 to 1, or None",
            form="SHARE",
            parse_one=float,
        ),
    )
    random: Random = option(
        "native",
        Row(
            "the source of random numbers: native, the program's generator, whose state it keeps between "
            "calls (`Executable.manual_seed`; the first seed is torch's initial one); torch, PyTorch's "
            "generator, as in eager",
            choices=get_args(Random),
        ),
    )
    accurate: bool = option(
        False,
        Row(
            "sum matrix products in chains of at most 16, do not use Winograd's algorithm, whose errors may "
            "be 4 times PyTorch's (3 x 3 taps then take up to 2.7 times as long), and do not fold batch "
            "norms into weights",
        ),
    )

    def __new__(cls, **given: Any) -> Self:
        """Raise ArgumentError for an unknown option."""
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
    def is_portable(self) -> bool:
        """Whether results have the same bits on all targets."""
        return False

    @property
    def allowed_fallback(self) -> Fallback:
        """The effective `fallback`: "error" if PyTorch's results would not be `is_portable`."""
        return "error" if self.is_portable else self.fallback

    @property
    def targets(self) -> tuple[Target | None, ...]:
        """The targets to compile for, the best first; None: the setting's or this machine's."""
        if self.target is None or isinstance(self.target, str):
            return (self.target,)
        return tuple(name for name in TARGETS if name in self.target)


#: Values of other options that PORTABLE excludes, and why.
_NOT_PORTABLE = (
    ("precision", "bf16", "each target adds up products of bf16 in its own order"),
    ("precision", "bf16x6", "only AMX has sums in the order of its tiles"),
    ("random", "torch", "PyTorch's random numbers differ between machines"),
)


@dataclass(frozen=True, kw_only=True)
class Options(CommonOptions):
    """Options of `shapevm.compile` beyond the model and its sizes. The compiled program depends on each of
    these; the strategy decides how it runs.

    Raises ArgumentError for an unknown option (and suggests the nearest name) and for an invalid value. Use
    `dataclasses.replace` to change one."""

    bits: Bits = option(
        "target",
        Row(
            "where results have equal bits: target, on every tier, thread count and batch of one target; "
            "portable, also on all targets: tanh, gelu and silu use only instructions that all targets have, "
            "products of bf16 sum in f32 with multiply-adds, and rounding does not depend on the target",
            "Under portable, operators that PyTorch would run are refused: their results differ between "
            "machines.",
            choices=get_args(Bits),
        ),
    )
    pack: str = option(
        "",
        Row(
            "the input [batch, length] that masks padded tokens, or auto: a padded batch then costs what its "
            "valid tokens cost, with the same bits at these, and 0 at padding where the model does not say "
            "what is there",
            "Raises UnsupportedOp where an operator mixes tokens other than by attention and pooling; auto "
            "leaves such programs as they are.",
            is_right=lambda value: isinstance(value, str),
            must_be='the name of an input, or "auto"',
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, wrong, reason in _NOT_PORTABLE:
            if self.is_portable and getattr(self, name) == wrong:
                raise ArgumentError(f"{name} is {wrong!r}, but bits is {PORTABLE!r}: {reason}")

    @property
    def is_portable(self) -> bool:
        """Whether results have the same bits on all targets."""
        return self.bits == PORTABLE


_DYNAMO_NAMES_SIZES = "Dynamo takes the model apart and names the sizes of its graphs itself"
#: Options that must have their default in torch.compile, and why.
FIXED_IN_GRAPHS = {
    "sizes": _DYNAMO_NAMES_SIZES,
    "buckets": _DYNAMO_NAMES_SIZES,
    "calibrate": "its samples are the whole model's, and graphs are parts of it; compile the model",
    "random": "PyTorch draws there, as eager does",
}


@dataclass(frozen=True, kw_only=True)
class BackendOptions(CommonOptions):
    """The options of `torch.compile(model, backend="shapevm", options={...})`: those of `shapevm.compile` and
    the backend's. `sizes`, `buckets`, `calibrate` and `random` must have their defaults.

    Raises ArgumentError as `Options` does."""

    random: Random = option(
        "torch", Row("PyTorch draws random numbers, as eager does", choices=get_args(Random))
    )
    target: Target | None = option(
        None,
        Row(
            "the target to compile for, which must run here; by default the setting `target`, or else this "
            "machine",
            choices=(None, *TARGETS),
        ),
    )
    strategy: Strategy | None = option(
        None,
        Row(
            "when exact kernels are compiled, as in `shapevm.compile`; by default that of torch.compile's "
            "mode, or else the setting `strategy`",
            choices=(None, *STRATEGIES),
        ),
    )
    freeze: bool = option(
        True,
        Row(
            "treat weights as constants if no gradients are needed; use False for models in which single "
            "elements of weights are written through `.data` or numpy"
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
    """Return `options`, or the defaults for None. Raises ArgumentError unless it is an `Options`."""
    if options is None:
        return Options()
    if not isinstance(options, Options):
        raise ArgumentError(
            f"options is a {type(options).__name__}; it must be a shapevm.Options, such as "
            'shapevm.Options(weights="bf16")'
        )
    return options


def described(kind: type[CommonOptions]) -> str:
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
