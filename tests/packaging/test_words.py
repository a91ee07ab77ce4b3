"""Words that were retired stay so: one word for each thing, the field's, in code, docs and messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENDS = (".py", ".c", ".h", ".md")

#: What was retired, as a regular expression of whole words -> what stands for it.
RETIRED = {
    # modules that were renamed
    r"\bin_image\b": "indirection, an indirection buffer",
    r"nest/crossing|jit[./]crossing": "tiled_transpose",
    r"jit[./]left|matmul/left": "lhs, the left operand",
    r"jit[./]streams|matmul/streams": "gemv",
    r"jit[./]streamed|loops/streamed": "nontemporal, non-temporal stores",
    r"jit[./]shallow|matmul/shallow": "register_resident",
    r"jit[./]strip\b(?!_)|loops/strip\b(?!_)": "strip_mining",
    r"moves/places|jit[./]places": "nonzero",
    r"jit[./]numbers|llvm/numbers": "constant_pool",
    r"jit[./]lookup|math/lookup": "tabulated",
    r"compiler/ops/(places|sources|count|values)\b": "nonzero, creation, histogram, scalars",
    r"(?-i:\bwith_numbers\b|\bn_numbers\b)|table of numbers": "the constant pool",
    r"\bdeliver(y|y_\w+|_\w+)\b": "an output binding",
    r"\bheap \*heap\b|->heap\b|\bheap_(count|release)\b|arena, (the )?heap": "the memory budget",
    r"\bstreamed stores?\b": "nontemporal stores",
    r"(?-i:\bMOST_[A-Z]|\b(?:ENTRIES|QUEUE|ROWS|OUTPUTS|POLYMORPHIC)_MAX\b)": "MAX_X",
    r"(?-i:\bInImage\b|\bShallow\b)": "Indirection, RegisterResident",
    r"vm[./]hot_call\b": "fast_path",
    r"shapevm[./]gain\b": "profitability",
    r"families[./]moves": "a folder for each of scan, scatter, search, sort, nonzero",
    r"reference_(moves|math|conv)": "reference, in the folder of what it defines",
    r"compiler/(ir|lower|emit)\.py": "compiler/ir/graph.py, compiler/lower/lower.py, compiler/emit/emit.py",
    # idioms that need a second reading
    r"(is|are) not to be had|(can|could|cannot) be had": "reached, available, allocated",
    r"goes on to ask": "asks",
    r"a wish for|wishes for": "a request for",
    r"what stands in the way": "what limits it",
    r"the front door": "the public interface",
    r"(hangs?|hung) on": "depends on",
}
#: The same for pages written by hand, whose readers are users.
RETIRED_IN_PAGES = {
    r"(calls?|which calls?) tells?|told by (each |a )?calls?": "a run-time value, known at run time",
    r"a call (gives|decides)|given by calls": "a run-time value, known at run time",
    r"of (its|their|his) own": "its, a separate",
    r"(?-i:^What (?!happens)[a-z ]+ (is|are) )": "a noun as the subject",
    r"asks? for (a |the )?(lines?|weights?)": "prefetches",
    r"in digits": "in fixed-point limbs",
    r"contestants?": "systems",
}
GENERATED = (
    "operators.md",
    "modules.md",
    "models.md",
    "benchmarks.md",
    "opcodes.md",
    "c-api.md",
    "artifact.md",
)


def files() -> list[Path]:
    """The text files of the repository's folders."""
    folders = ["benchmarks", "compiler", "docs", "examples", "jit", "runtime_c", "shapevm", "tests", "vm"]
    inside = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in ENDS]
    return [path for path in (*ROOT.glob("*.md"), ROOT / "Makefile", *inside) if path != Path(__file__)]


def found(text: str, retired: dict[str, str] = RETIRED) -> list[tuple[int, str, str]]:
    """Each retired word of a text: line, the word, what stands for it."""
    return sorted(
        (text.count("\n", 0, match.start()) + 1, match[0], instead)
        for word, instead in retired.items()
        for match in re.finditer(word, text, re.I | re.M)
    )


def test_no_retired_word_is_used() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {word!r}; write: {instead}"
        for path in files()
        for line, word, instead in found(path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


def test_pages_use_no_retired_idiom() -> None:
    pages = [
        page for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")) if page.name not in GENERATED
    ]
    wrong = [
        f"{page.relative_to(ROOT)}:{line}: {idiom!r}; write: {instead}"
        for page in pages
        if page.stem not in GENERATED
        for line, idiom, instead in found(page.read_text(), RETIRED_IN_PAGES)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("text", ["Sizes that a call tells.", "A file of its own.", "What works is listed."])
def test_an_idiom_is_found(text: str) -> None:
    assert found(text, RETIRED_IN_PAGES)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("see jit/families/conv/in_image.py", "in_image"),
        ("from shapevm.jit.streams import x", "jit.streams"),
        ("one\nThe goal is not to be had.", "is not to be had"),
    ],
)
def test_a_retired_word_is_found(text: str, word: str) -> None:
    assert [(line, found_word) for line, found_word, _ in found(text)] == [(text.count("\n") + 1, word)]


def test_the_fields_words_are_not_retired() -> None:
    for text in ("strip_mining", "jit/loops/strip_mining.py", "compiler/ops/nonzero.py"):
        assert not found(text), text
