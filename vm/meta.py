"""The section META of an artifact: data about a program, beyond its contract, for hosts in Python."""

from __future__ import annotations

from typing import Any

from .layout import LIMITS
from .schema import MAX_BYTES, ListOf, MapOf, Number, Object, Text, decode
from .schema import Integer as Int

_NAMES = ListOf(Text(plain=True), most=LIMITS["INPUTS"][0])
_SIZE, _NAME = Int(0), Text(plain=True)

#: The call form of a function (`inputs`, `outputs`: texts of `shapevm.calls.pytree`), and the buffers it
#: keeps.
STRUCTURE = Object(
    {},
    {
        "inputs": Text(MAX_BYTES), "outputs": Text(MAX_BYTES),
        "state": _NAMES, "changed": _NAMES, "kept": _NAMES, "in_place": _NAMES, "in_rows": _NAMES,
    },
)  # fmt: skip
WEIGHT = Object(
    {
        "name": _NAME, "shape": ListOf(_SIZE, most=LIMITS["RANK"][0]), "format": _NAME, "bytes": _SIZE,
        "error": Number(finite=False), "reason": _NAME,
    }
)  # fmt: skip
#: A text model (`shapevm.text`); its tokenizer is a constant.
TEXT = Object(
    {
        "kind": Text(among=("encoder", "cross-encoder")), "name": _NAME, "max_length": Int(1, 1 << 24),
        "vocabulary": Int(1, 1 << 31), "pad": Int(0, 1 << 31), "prompts": MapOf(Text(), _NAME, most=256),
        "default_prompt": Text(), "similarity": Text(among=("cosine", "dot", "euclidean", "manhattan")),
    }
)  # fmt: skip
#: A language model (`shapevm.llm`); its tokenizer is a constant. `length`: the most tokens of a sequence;
#: `sampling`: the model's own, by the names of `llm.Sampling`.
LANGUAGE = Object(
    {
        "name": _NAME, "length": Int(1, 1 << 24), "stop_tokens": ListOf(Int(0, 1 << 31), most=256),
        "template": Text(1 << 18), "special": MapOf(Text(256), _NAME, most=16),
        "sampling": MapOf(Number(), _NAME, most=16),
    }
)  # fmt: skip
META = Object(
    {},
    {
        "name": _NAME, "structure": STRUCTURE, "weights": ListOf(WEIGHT), "packed": Text(), "text": TEXT,
        "language": LANGUAGE,
        "functions": MapOf(STRUCTURE, most=LIMITS["ENTRY_POINTS"][0]),
    },
)  # fmt: skip


def read_meta(text: bytes | memoryview) -> dict[str, Any]:
    """Return the section's JSON. Raises ArtifactError if it does not match `META`."""
    return dict(decode(text, META, "section META"))
