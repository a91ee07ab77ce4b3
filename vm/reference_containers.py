"""Instructions on lists, tuples, dicts and strings."""

from __future__ import annotations

from typing import Any

from .contract import tag_of
from .errors import IndexOutOfRange, KeyMissing, KindError
from .instruction import Instruction
from .isa import STRING_FUNCTIONS, article
from .literals import written
from .reference_checks import check_key, check_nesting
from .reference_frame import Frame
from .string_functions import call_string_function, check_size, to_bytes, to_text


class Containers:
    """A method for each of these instructions."""

    def op_list(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Make a list."""
        r[i["d"]] = check_nesting([r[value] for value in i["values"]])

    def op_tuple(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Make a tuple."""
        r[i["d"]] = check_nesting(tuple(r[value] for value in i["values"]))

    def op_dict(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Make a dict; a later value of an equal key replaces the earlier one."""
        items = [r[item] for item in i["items"]]
        keys = [check_key(key, "int", "str") for key in items[::2]]
        r[i["d"]] = check_nesting(dict(zip(keys, items[1::2], strict=True)))

    def op_get(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """An element."""
        a, key = r[i["a"]], r[i["key"]]
        if isinstance(a, dict):
            if check_key(key, "int", "str") not in a:
                raise KeyMissing(f"get: {key!r} is not in the dict")
        elif not 0 <= check_key(key, "int") < len(a):
            raise IndexOutOfRange(f"get: {key} is not in the {tag_of(a)} of {len(a)} elements")
        r[i["d"]] = a[key]

    def op_len(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Number of elements; of a str, its bytes."""
        a = r[i["a"]]
        r[i["d"]] = len(to_bytes(a) if isinstance(a, str) else a)

    def op_append(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """A list with one more element; the old one is unchanged."""
        r[i["d"]] = check_nesting([*r[i["a"]], r[i["value"]]])

    def op_set(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """A list with another element at an index; the old one is unchanged."""
        items, index = list(r[i["a"]]), r[i["index"]]
        value = check_nesting([r[i["value"]]])[0]
        if not 0 <= index < len(items):
            raise IndexOutOfRange(f"set: {index} is not in the list of {len(items)} elements")
        items[index] = value
        r[i["d"]] = items

    def op_slice(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """The elements from one index to before another one."""
        items, begin, end = r[i["a"]], r[i["begin"]], r[i["end"]]
        if not 0 <= begin <= end <= len(items):
            raise IndexOutOfRange(f"slice: {begin} .. {end} is not in the list of {len(items)} elements")
        r[i["d"]] = items[begin:end]

    def op_distinct(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Whether plain values are distinct; NaN equals nothing."""
        items = r[i["a"]]
        for index, tag in enumerate(map(tag_of, items)):
            if tag not in ("bool", "int", "float", "str"):
                raise KindError(f"distinct: element {index} is {article(tag)}; it must be a plain value")
        found = [(tag_of(x), x) for x in items if x == x]
        r[i["d"]] = len(set(found)) == len(found)

    def op_concat(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """One string after the other."""
        made = to_bytes(r[i["a"]]) + to_bytes(r[i["b"]])
        check_size(len(made))
        r[i["d"]] = to_text(made)

    def op_format(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """A bool, int or float in TorchScript's format."""
        r[i["d"]] = written(r[i["a"]])

    def op_text(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """A function of strings."""
        name = list(STRING_FUNCTIONS)[i["function"]]
        r[i["d"]] = check_nesting(call_string_function(name, [r[a] for a in i["args"]]))
