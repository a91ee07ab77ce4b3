"""Static activations: products of f32 become products of bytes, using ranges calibrated from samples.

An activation is quantised to u8 with one scale and zero point, from its least and greatest values; the weight
to i8 with a scale for each column, or to i4 in groups (`quantise_weights`). The input of a linear layer is
smoothed: a channel is divided by a factor, by which its row of the weight is multiplied, so that channels of
large values leave steps for the others. That costs nothing if activations are scaled anyway. An image that
convolutions read is held only in u8: other operators read it dequantised.

`products` finds the activations, in the same order in each import of a program; `observe` makes their ranges
results of a program. A product stays in f32, or only its weight is rounded, if it would change by more than
`Rounding.max_error`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ..ir.dims import equal, product
from ..ir.graph import Builder, Graph, Node, Value
from ..ir.rounding import Activation, RoundedWeight
from ..lower.access import shape_of
from ..lower.packing import has_depthwise_kernel, takes_bytes_in_f32
from ..lower.specs import window_of
from ..ops import OPS
from ..ops import build as B
from ..ops.integer_conv import Image, integer_conv
from ..ops.integer_product import STEP, integer_product, is_short_enough
from .cse import cse
from .dce import dce
from .fold_affine import fold_affine, with_vector
from .move_scales import of_bytes_in_groups
from .quantise_weights import FORMATS, error_of, n_bytes
from .windows import pool_again, pooled

STEPS = 255  # of an activation
IMAGE_RANK = 4
STRENGTHS = (0.0, 0.25, 0.5, 0.75)  # smoothing strengths: the exponent of a channel's range in its factor
SPREAD, WIDER = 4.0, 1.5  # of ranges: see `_widened`
FEW_STEPS = 16  # at most, of a product that is not worth rounding
SLOWER = "depthwise convolutions of an input gain nothing that pays for rounding it"


@dataclass(frozen=True)
class Static:
    """The quantisation of an activation: x is (q - zero) * scale * factors of its channels."""

    scale: float
    zero: int
    factors: np.ndarray

    @staticmethod
    def of(found: Activation, factors: np.ndarray) -> Static:
        """Return the parameters for a range that includes the samples' values and 0."""
        low = min(0.0, float((found.low / factors).min(initial=0)))
        high = max(0.0, float((found.high / factors).max(initial=0)))
        scale = (high - low) / STEPS or 1.0
        return Static(scale, int(np.rint(-low / scale)), factors)

    def error(self, found: Activation, energies: np.ndarray) -> float:
        """Return the relative change of a product's result, with the errors of channels as noise of one step;
        `energies`: of the weight's rows, by channel."""
        noise = ((self.scale * self.factors) ** 2 / 12 * energies).sum()
        signal = (found.squares * energies).sum()
        return float(np.sqrt(noise / signal)) if signal > 0 else 0.0


def quantise_activations(graph: Graph) -> None:
    """Quantise the observed activations, if `Graph.rounding` requires it."""
    found = graph.rounding.activations
    if found is None:
        return
    cse(graph)  # readers of one activation read one value
    dce(graph)  # what is left is in use
    groups = products(graph)
    assert not found or len(found) == len(groups)
    made: dict[Value, Value] = {}  # by their f32 values, which may be the activations of others
    for (activation, readers), values in zip(groups.items(), found, strict=False):
        made |= _Quantised(graph, made.get(activation, activation), readers, values).emit()
    dce(graph)  # the products of f32
    if found:
        _note_others(graph)
    fold_affine(graph, list(made.values()))
    dce(graph)  # what was folded


def products(graph: Graph) -> dict[Value, list[Node]]:
    """Return the activations that products by constants read, outside of branches and loops, with these
    products; and, with no products, images that are added in a product's epilogue."""
    found: dict[Value, list[Node]] = {}
    for node in graph.body.nodes:
        if _is_product(node):
            found.setdefault(_memory_of(node.arg(0)), []).append(node)
    order = {node: i for i, node in enumerate(graph.body.nodes)}
    for node in graph.body.nodes:
        if (branch := _branch_of(node, order)) is not None:
            found.setdefault(branch, [])
    return found


def _branch_of(node: Node, order: Mapping[Node, int]) -> Value | None:
    """Return the image that a sum of two products' images reads from memory: the first one computed."""
    if node.op != "add" or len(shape_of(node.result)) != IMAGE_RANK:
        return None
    first, second = map(_product_behind, node.present)
    if any(arg.users != [node] for arg in node.present) or first is None or second is None:
        return None
    return node.arg(0 if order[first] < order[second] else 1)


def _product_behind(x: Value) -> Node | None:
    """Return the product of which `x` is a multiple plus constants, by channel; else None."""
    while x.node is not None and x.node.op in ("mul", "add", "sub"):
        inner, _ = with_vector(x.node)
        if inner is None or inner.users != [x.node]:
            return None
        x = inner
    return x.node if x.node is not None and _is_product(x.node) else None


def observe(graph: Graph) -> int:
    """Add the least and greatest values and the mean squares of all activations to the results of the graph,
    after those of the user; return the number of activations."""
    groups = products(graph)
    builder = Builder(graph)
    results = [value for x in groups for value in _moments(builder, x)]
    structure = graph.structure
    n_others = len(structure.get("changed", [])) + len(structure.get("kept", structure.get("state", [])))
    at = len(graph.outputs) - n_others
    graph.body.results[at:at] = results
    graph.outputs[at:at] = [graph.new_name("observed") for _ in results]
    structure["outputs"] = json.dumps({"tuple": ["*"] * (at + len(results))})
    return len(groups)


def _moments(b: Builder, x: Value) -> list[Value]:
    """Return the least and greatest value and the mean of the squares of each channel."""
    shape = shape_of(x)
    axes = list(range(len(shape) - 1))
    low, high, squares = (
        B.reduce(b, f"reduce_{name}", x, axes, keepdim=False) for name in ("min", "max", "squares")
    )
    return [low, high, B.pointwise(b, "div", squares, B.full(b, product(shape[:-1]), "f32"))]


def _widened(found: Activation) -> Activation:
    """Return the observed statistics with ranges up to WIDER times as wide, if the samples were so few that
    SPREAD standard deviations exceed the range."""
    spread = SPREAD * np.sqrt(found.squares)
    low = np.minimum(found.low, np.maximum(-spread, WIDER * found.low))
    return replace(found, low=low, high=np.maximum(found.high, np.minimum(spread, WIDER * found.high)))


def _is_product(node: Node) -> bool:
    """Whether a node is a product of f32 by a constant that has a form in bytes."""
    return _is_by_constant(node) and not _without_bytes(node)


def _is_by_constant(node: Node) -> bool:
    """Whether a node is a product or convolution of f32 by a constant."""
    if node.op not in ("matmul", "conv") or len(node.present) != 2:
        return False
    x, weight = node.arg(0), node.arg(1)
    is_constant = weight.node is not None and weight.node.op == "constant" and len(shape_of(weight)) == 2
    return is_constant and {x.tensor.dtype, weight.tensor.dtype} == {"f32"}


def _without_bytes(node: Node) -> str:
    """Return why a product by a constant has no form in bytes, "" if it has one."""
    x, weight = node.arg(0), node.arg(1)
    k, channels = shape_of(weight)[0], shape_of(x)[-1] if shape_of(x) else None
    if len(shape_of(x)) < 2 or not isinstance(k, int) or not isinstance(channels, int) or not k > 0:
        return "no kernel of bytes has such operands"
    if not is_short_enough(k):
        return "sums of that many products of bytes may not fit in 32 bits"
    if node.op == "matmul":
        return "" if k >= FEW_STEPS else f"sums of fewer than {FEW_STEPS} products gain nothing"
    is_plain = not node.attrs["planes"] and set(node.attrs["expansion"]) == {1}
    is_whole = channels // node.attrs["groups"] % STEP == 0
    has_kernel = is_plain and (_is_narrow(node) or is_whole or node.attrs["groups"] == 1)
    return "" if has_kernel else "no convolution of bytes has such a window or such groups"


def _note_others(graph: Graph) -> None:
    """Note why products by constants are unchanged: for convolutions in the list of weights, for others for
    `quantise_weights`, which may still round their weights."""
    rounding = graph.rounding
    for node in (node for block in graph.blocks() for node in block.nodes if _is_by_constant(node)):
        weight = node.arg(1)
        name, array = str(weight.definition.attrs["name"]), weight.definition.attrs["array"]
        why = f"activations in u8: {_without_bytes(node) or 'its product is in a branch or a loop'}"
        reason = rounding.reasons.setdefault(name, why)
        if node.op == "conv" and name not in rounding.weights:
            shape = tuple(map(int, array.shape))
            rounding.weights[name] = RoundedWeight(name, shape, "f32", 4 * array.size, 0.0, reason)


def _is_narrow(conv: Node) -> bool:
    if conv.op != "conv":
        return False
    x, weight = conv.arg(0), conv.arg(1)
    return has_depthwise_kernel(window_of(conv), False, shape_of(x)[-1], shape_of(weight)[1])


def _is_input(x: Value) -> bool:
    """Whether a value is an input, perhaps with its axes in another order."""
    while x.node is not None and x.node.op == "permute":
        x = x.node.arg(0)
    return x.node is None


def _memory_of(x: Value) -> Value:
    """Return the value of which `x` is a reshape of rows."""
    while x.node is not None and x.node.op == "reshape":
        before = x.node.arg(0)
        if not shape_of(before) or not equal(shape_of(before)[-1], shape_of(x)[-1]):
            break
        x = before
    return x


class _Quantised:
    """An activation `x` that becomes bytes, and the products that read it."""

    def __init__(self, graph: Graph, x: Value, readers: Sequence[Node], found: Activation) -> None:
        self.graph, self.x, self.rounding = graph, x, graph.rounding
        has_conv = any(node.op == "conv" for node in graph.body.nodes)
        self.is_image = has_conv and (len(shape_of(x)) > 3 or any(node.op == "conv" for node in readers))
        self.found = found if self.is_image else _widened(found)  # an image has many pixels
        self.static = self._smoothed(readers)
        self.is_slower = bool(readers) and all(map(_is_narrow, readers)) and _is_input(x)
        self.readers = [node for node in readers if self._is_worth(node)]
        self.is_partial = len(self.readers) < len(readers)
        self.is_branch = not readers

    def emit(self) -> dict[Value, Value]:
        """Put products of bytes in place of those of f32; return them by these."""
        block, node = self.graph.body, self.x.node
        others = [user for user in dict.fromkeys(self.x.users) if user not in self._reshapes()]
        if not (self._is_exact_enough(others) if self.is_branch else self.readers):
            return {}
        b = Builder(self.graph, block, 0 if node is None else block.nodes.index(node) + 1)
        q = self._quantised(b, others)
        if self._is_dequantised_for(others):
            self._dequantise(b, q, others)
        made: dict[Value, Value] = {}
        for reader in self.readers:
            b.position, b.source = block.nodes.index(reader), reader.source
            made[reader.result] = self._product(b, reader, q)
            self.graph.replace(reader.result, made[reader.result])
        return made

    def _is_exact_enough(self, others: Sequence[Node]) -> bool:
        """Whether an image that only sums read may be held in bytes: if it was computed by products of
        bytes."""
        limit, product = self.rounding.max_error, _product_behind(self.x)
        noise, signal = self.static.scale**2 / 12, self.found.squares.mean()
        is_fine = limit is None or noise <= limit**2 * signal
        return product is None and is_fine and self._is_dequantised_for(others)

    def _reshapes(self) -> set[Node]:
        """Return the readers and the nodes between the activation and them."""
        found = set(self.readers)
        for reader in self.readers:
            x = reader.arg(0)
            while x is not self.x:
                found.add(x.definition)
                x = x.definition.arg(0)
        return found

    def _quantised(self, b: Builder, others: Sequence[Node]) -> Value:
        """Return the activation in u8; maxima over windows are taken of bytes."""
        static = self.static
        is_alone = not others or self._is_dequantised_for(others)
        if self._is_result() or not is_alone or self.is_partial or (static.factors != 1).any():
            return self._bytes(b, self.x)
        image = pooled(self.x)
        if image is None:
            return self._bytes(b, self._unclamped(self.x))
        return pool_again(b, self.x, image, self._bytes(b, self._unclamped(image)))

    def _unclamped(self, x: Value) -> Value:
        """Return a value without a clamp that rounding to bytes implies, such as relu."""
        while x.node is not None and x.node.op in ("maximum", "minimum"):
            inner, limit = with_vector(x.node)
            if inner is None or limit is None or not self._is_clamped_by_bytes(x.node.op, limit):
                break
            x, is_shared = inner, inner.users != [x.node]
            if is_shared:
                break
        return x

    def _is_clamped_by_bytes(self, op: str, limit: np.ndarray) -> bool:
        """Whether rounding to bytes has the effect of a maximum or minimum."""
        if op == "maximum":
            return not limit.any() and self.static.zero == 0
        return bool((limit / self.static.scale + self.static.zero + 0.5 >= STEPS).all())

    def _bytes(self, b: Builder, x: Value) -> Value:
        """Return an activation in u8: x * 1 / scale + zero, rounded to the nearest, halves up.

        For a channels-first image, the bytes are permuted rather than the f32.
        """
        static, node = self.static, x.node
        if node is not None and node.op == "permute" and (static.factors == 1).all():
            return B.permute(b, self._bytes(b, node.arg(0)), node.attrs["axes"])
        inverse = (1 / (static.scale * static.factors)).astype(np.float32)
        by = float(inverse[0]) if np.all(inverse == inverse[0]) else b.constant(inverse, "f32", "smoothing")
        scaled = B.pointwise(b, "add", B.pointwise(b, "mul", x, by), static.zero + 0.5)
        within = B.pointwise(b, "minimum", B.pointwise(b, "maximum", scaled, 0.0), float(STEPS))
        return B.cast_to(b, within, "u8")

    def _is_result(self) -> bool:
        return self.x.node is None or any(self.x in block.results for block in self.graph.blocks())

    def _is_dequantised_for(self, others: Sequence[Node]) -> bool:
        """Whether other operators read the dequantised bytes, so that the image is not also held in f32."""
        if not self.is_image or self._is_result():
            return False
        return all(user.op in OPS and OPS[user.op].kind == "pointwise" for user in others)

    def _dequantise(self, b: Builder, q: Value, others: Sequence[Node]) -> None:
        """Let other operators read the activation dequantised."""
        if not others:
            return
        wide = B.pointwise(b, "sub", B.cast_to(b, q, "f32"), float(self.static.zero))
        again = B.pointwise(b, "mul", wide, self.static.scale)
        for user in others:
            user.set_args([again if arg is self.x else arg for arg in user.args])

    # products

    def _smoothed(self, readers: Sequence[Node]) -> Static:
        """Return the parameters that change the readers least."""
        ones = np.ones(len(self.found.low))
        plain = Static.of(self.found, ones)
        if self.is_image or any(node.op != "matmul" for node in readers):
            return plain
        weights = [node.arg(1).definition.attrs["array"] for node in readers]
        reach = np.maximum(np.abs(self.found.low), np.abs(self.found.high))
        rows = np.max([np.abs(weight).max(1, initial=0) for weight in weights], axis=0)
        is_used = (reach > 0) & (rows > 0)
        if not is_used.any() or not np.isfinite(reach).all():
            return plain

        def with_strength(strength: float) -> Static:
            factors = np.where(is_used, reach, 1) ** strength / np.where(is_used, rows, 1) ** (1 - strength)
            factors = np.where(is_used, factors, 1) / np.exp(np.log(factors[is_used]).mean())
            return Static.of(self.found, np.where(is_used, factors, 1))

        choices = [plain, *(with_strength(strength) for strength in STRENGTHS if strength)]
        return min(choices, key=lambda static: sum(self._error(static, node) ** 2 for node in readers))

    def _weight(self, static: Static, node: Node) -> np.ndarray:
        """Return a product's weight in f32 with the factors of its rows."""
        weight: np.ndarray = node.arg(1).definition.attrs["array"]
        if node.op == "conv":
            return weight
        return (weight * static.factors[:, None]).astype(np.float32)

    def _integers(self, static: Static, node: Node) -> tuple[np.ndarray, np.ndarray] | str:
        """Return the integers and scales of a product's weight, or why there are none."""
        dtype = self.rounding.dtype if node.op == "matmul" else "int8"
        found = FORMATS[dtype](self._weight(static, node))
        return FORMATS["int8"](self._weight(static, node)) if isinstance(found, str) else found

    def _error(self, static: Static, node: Node) -> float:
        """Return the relative change of a product."""
        weight = self._weight(static, node)
        found = self._integers(static, node)
        if isinstance(found, str):
            return float("inf")
        of_weight = error_of(weight, *found)
        original = node.arg(1).definition.attrs["array"].astype(np.float64)
        energies = (original**2).sum(1)
        if node.op == "conv":
            taps = prod(node.attrs["kernel"])
            by_channel = energies.reshape(taps, -1).sum(0)
            energies = by_channel if node.attrs["groups"] == 1 else np.ones(len(self.found.low))
        return float(np.hypot(of_weight, static.error(self.found, energies)))

    def _is_worth(self, node: Node) -> bool:
        """Whether the change of a product is allowed; notes the outcome."""
        name = str(node.arg(1).definition.attrs["name"])
        found, error = self._integers(self.static, node), self._error(self.static, node)
        limit = self.rounding.max_error
        if self.is_slower:
            self.rounding.reasons[name] = f"activations in u8: {SLOWER}"
            return False
        if not isinstance(found, str) and (limit is None or error <= limit) and np.isfinite(error):
            shape = tuple(map(int, shape_of(node.arg(1))))
            held = "int4" if found[1].ndim == 2 else "int8"
            text = f"u8 x {held}"
            self.rounding.weights[name] = RoundedWeight(name, shape, text, n_bytes(*found), error)
            return True
        above = "" if limit is None else f", above {limit:g}"
        why = found if isinstance(found, str) else f"its error would be {error:.3g}{above}"
        self.rounding.reasons[name] = f"activations in u8: {why}"
        return False

    def _product(self, b: Builder, node: Node, q: Value) -> Value:
        """Return a product of f32 by integers."""
        found, static = self._integers(self.static, node), self.static
        assert not isinstance(found, str)
        integers, scales = found[0].astype(np.int8), found[1]
        name = str(node.arg(1).definition.attrs["name"])
        x = B.reshape(b, q, shape_of(node.arg(0)))
        if scales.ndim == 2:
            scale = B.full(b, static.scale, "f32")
            return of_bytes_in_groups(b, x, scale, B.full(b, static.zero, "i32"), name, integers, scales)
        result: Value | None
        if node.op == "matmul":
            zero = B.full(b, static.zero, "i32") if static.zero else None
            result = B.cast_to(b, integer_product(b, x, integers, name, zero), "f32")
        else:
            channels, columns = shape_of(node.arg(0))[-1], shape_of(node.arg(1))[1]
            targets = self.rounding.targets
            is_narrow = takes_bytes_in_f32(window_of(node), False, channels, columns, targets)
            result = integer_conv(b, Image(x, static.zero), integers, name, node.attrs, is_narrow)
        assert result is not None
        factor = (scales * np.float64(static.scale)).astype(np.float32)
        return B.pointwise(b, "mul", result, b.constant(factor, "f32", f"{name}.scale"))
