"""Judges ONNX's node cases: `python -m tests.compiler.frontends.onnx.nodes [PATTERN]`.

Each case gives the values, dtypes and shapes that it says, or is refused in one sentence. Cases that the
tables below name are out of scope.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx.backend.test.case.node import TestCase, collect_testcases

import shapevm
from tests.compiler.frontends.onnx.onnx_models import compiled

#: Why cases are out of scope though they compile, by a pattern of their names.
OTHERWISE: dict[str, str] = {
    r"^test_(training_dropout(?!_zero)|bernoulli)": "its numbers are random",
    r"downsample_scales_(linear|cubic)_align_corners$": "it divides by a length that is no integer, which "
    "neither PyTorch nor onnxruntime does",
}
#: Why cases are out of scope, by a pattern of the sentence that refuses them.
OUT_OF_SCOPE: dict[str, str] = {
    r"is of type (UINT|INT[24]|FLOAT[468]|STRING|COMPLEX)": "no tensor of a program has the dtype",
    r"is a (sequence|optional)_type": "programs take tensors",
    r"operator (ai\.onnx\.)?(Sequence|SplitToSequence|ConcatFromSequence|Optional)": "no tensors",
    r"operator (ai\.onnx\.)?(String|Regex|TfIdf)|strings": "programs have no strings",
    r"operator ai\.onnx\.ImageDecoder": "programs decode no files",
    r"operators; 7 to 28 are read": "the model's version is older",
    r"operator ai\.onnx\.(preview\.training|ml)\.": "it trains, or is no tensor's operator",
}


@cache
def cases() -> dict[str, TestCase]:
    """Return all cases by name."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return {case.name: case for case in collect_testcases(None)}


def listed(text: str, table: dict[str, str]) -> str:
    """Return the reason that a table has for a name or a sentence, "" if it has none."""
    return next((reason for pattern, reason in table.items() if re.search(pattern, text)), "")


def verdict(name: str) -> tuple[str, str]:
    """Return "right", "out of scope", "refused" or "wrong", and the reason or sentence."""
    reason = listed(name, OTHERWISE)
    try:
        _check(cases()[name])
    except shapevm.Error as error:
        outside = listed(str(error), OUT_OF_SCOPE)
        return ("out of scope", outside) if outside else ("refused", str(error))
    except AssertionError as error:
        return ("out of scope", reason) if reason else ("wrong", str(error).strip())
    return ("wrong", "it is right, but listed as out of scope") if reason else ("right", "")


def _array(x: Any) -> Any:
    return onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x


def _check(case: TestCase) -> None:
    """Compare a case's results. What cannot be compiled with all inputs free, such as axes and sizes, is
    compiled with all but the first as constants, or with all."""
    names = [each.name for each in case.model.graph.input]
    given = dict(zip(names, map(_array, case.data_sets[0][0]), strict=True))
    last = dict(list(given.items())[1:])
    try:
        _check_with(case, names, {})
    except shapevm.Error as error:
        if listed(str(error), OUT_OF_SCOPE) or not last:
            raise
        try:
            _check_with(case, names, last)
        except shapevm.Error:
            _check_with(case, names, given)


def _check_with(case: TestCase, names: list[str], constants: dict[str, Any]) -> None:
    with compiled(case.model, constants) as exe:
        for inputs, wanted in case.data_sets:
            given = [_array(x) for name, x in zip(names, inputs, strict=True) if name not in constants]
            found = exe(*given)
            found = found if isinstance(found, tuple) else (found,)
            for one, other in zip(found, map(_array, wanted), strict=True):
                _compare(np.asarray(one), np.asarray(other), case)


def _compare(found: np.ndarray, wanted: np.ndarray, case: TestCase) -> None:
    if wanted.dtype == ml_dtypes.bfloat16 and found.dtype == np.uint16:
        found = found.view(ml_dtypes.bfloat16)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    is_short = wanted.dtype in (np.float16, ml_dtypes.bfloat16)
    relative = max(case.rtol, 8e-3 if wanted.dtype == ml_dtypes.bfloat16 else 1e-3)
    absolute = max(case.atol, 2e-3 if is_short else 1e-5)
    numbers = (x.astype(np.float64) for x in (found, wanted))
    np.testing.assert_allclose(*numbers, rtol=relative, atol=absolute)


def main(pattern: str = "") -> int:
    """Judge the cases whose names match and print the counts; return 1 if one is wrong."""
    names = [name for name in sorted(cases()) if re.search(pattern, name)]
    counts: Counter[str] = Counter()
    outside: Counter[str] = Counter()
    for name in names:
        kind, reason = verdict(name)
        counts[kind] += 1
        if kind == "out of scope":
            outside[reason] += 1
        elif kind != "right":
            print(f"{kind}: {name}: {' '.join(reason.split())[:300]}", flush=True)
    for reason, count in outside.most_common():
        print(f"out of scope: {count}: {reason}")
    within = len(names) - counts["out of scope"]
    share = 100 * counts["right"] / max(1, within)
    print(f"{len(names)} cases: {', '.join(f'{n} {kind}' for kind, n in counts.items())}")
    print(f"{share:.1f} % of the {within} in scope are right")
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
