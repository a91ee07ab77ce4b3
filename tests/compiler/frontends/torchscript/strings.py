"""Programs that take strings of calls apart; TorchScript counts bytes."""

# ruff: noqa: UP031, UP032 (TorchScript's formats)

from __future__ import annotations

import enum

import torch
from torch import Tensor

from .programs import program, x

WORDS = (("Hello World",), ("",), ("it's a DOG 12",), ("ÉCOLE né",), ("a\tb\n c",), ("123",))


@program(*WORDS)
def letters_of_a_string(s: str) -> tuple[str, str, str, str, str]:
    return s.upper(), s.lower(), s.capitalize(), s.title(), s.swapcase()


@program(*WORDS, ("abc",), ("ABC",), ("   ",), ("Title Case",), ("a1",))
def kinds_of_letters(s: str) -> list[bool]:
    return [
        s.isalnum(), s.isalpha(), s.isdigit(), s.isdecimal(), s.isnumeric(), s.isspace(), s.islower(),
        s.isupper(), s.istitle(), s.isprintable(), s.isidentifier(),
    ]  # fmt: skip


@program(("  a b ", "ab"), ("", ""), ("abcab", "ba"), ("xyz", ""), ("\t\nq\x0b", "q"), ("éaé", "é"))
def strips(s: str, chars: str) -> list[str]:
    return [s.strip(), s.lstrip(), s.rstrip(), s.strip(chars), s.lstrip(chars), s.rstrip(chars)]


@program(
    ("banana", "an", 0, -1), ("banana", "x", 0, -1), ("", "a", 0, -1), ("naïve na", "na", 1, -1),
    ("banana", "", 2, 4), ("banana", "a", -3, -2), ("banana", "banana!", 0, 9), ("banana", "a", 9, 12),
)  # fmt: skip
def searches_of_a_string(s: str, part: str, start: int, end: int) -> tuple[int, int, int, int]:
    return s.find(part), s.rfind(part), s.find(part, start, end), s.rfind(part, start, end)


@program(("banana", "an"), ("banana", "x"), ("", "a"), ("né né", "é"))
def searches_that_must_find(s: str, part: str) -> tuple[int, int]:
    return s.index(part), s.rindex(part)


@program(("banana", "an", 2), ("banana", "a", -2), ("", "a", 0), ("aaaa", "aa", 1), ("ééé", "é", 9))
def counts(s: str, part: str, start: int) -> tuple[int, int, bool]:
    return s.count(part), s.count(part, start), part in s


@program(
    ("banana", "ban", 1), ("banana", "ana", 3), ("", "", 0), ("éa", "é", 0), ("ab", "abc", -1), ("a", "a", 5)
)
def beginnings_and_ends(s: str, part: str, start: int) -> tuple[bool, bool, bool, bool]:
    return s.startswith(part), s.endswith(part), s.startswith(part, start), s.endswith(part, start, -2)


@program(("hello", 1), ("hello", -1), ("", 0), ("hello", 5), ("h", -2), ("né", 0), ("né", 1))
def one_character(s: str, i: int) -> tuple[str, int]:
    return s[i], len(s)


@program(
    ("hello world", 2, 7, 2), ("hello", -3, 9, 1), ("", 0, 1, 1), ("abc", 5, 0, -1), ("abcdef", -1, -9, -2),
    ("abc", 1, 2, 0), ("ééé", 2, 6, 1),
)  # fmt: skip
def slices_of_a_string(s: str, a: int, b: int, step: int) -> list[str]:
    return [s[a:b], s[a:], s[:b], s[::-1], s[a:b:step], s[::step], s[-2:], s[:-1]]


@program(
    ("a,b,,c", ","), ("", ","), ("no separator", ","), ("a", "a"), ("abab", "ab"), ("x,y", ""), ("é-è", "-")
)
def splits_a_string(s: str, separator: str) -> tuple[list[str], list[str], list[str], list[str], int]:
    parts = s.split(separator)
    return parts, s.split(separator, 1), s.rsplit(separator), s.rsplit(separator, 1), len(parts)


@program(("the quick  brown\tfox\n",), ("",), ("   ",), ("one",), ("né a",))
def splits_at_spaces(s: str) -> tuple[list[str], int]:
    words = s.split()
    return words, len(words)


@program(("one\ntwo\r\nthree",), ("",), ("\n\n",), ("no end",), ("a\x0bb\x1cc\n",))
def splits_lines(s: str) -> tuple[list[str], list[str]]:
    return s.splitlines(), s.splitlines(True)


@program(("key=value=x", "="), ("", "="), ("none", "="), ("a::b", "::"), ("abc", ""))
def partitions(s: str, separator: str) -> tuple[str, str, str, tuple[str, str, str]]:
    head, middle, tail = s.partition(separator)
    return head, middle, tail, s.rpartition(separator)


@program(("ab", 7, "*"), ("ab", 6, "*"), ("", 3, " "), ("abcdef", 2, "-"), ("é", 5, "x"), ("a", 4, "ab"))
def pads(s: str, width: int, fill: str) -> list[str]:
    return [
        s.center(width, fill),
        s.ljust(width, fill),
        s.rjust(width, fill),
        s.zfill(width),
        s.center(width),
    ]


@program(("a\tbc\td", 4), ("\t", 0), ("", 8), ("abc\t", -3), ("é\té", 3))
def tabs(s: str, size: int) -> tuple[str, str]:
    return s.expandtabs(), s.expandtabs(size)


@program(
    ("banana", "an", "AN!", 1),
    ("aaa", "aa", "b", -1),
    ("", "a", "b", 2),
    ("x", "y", "z", 0),
    ("é", "é", "", -1),
)
def replaces(s: str, old: str, new: str, most: int) -> tuple[str, str]:
    return s.replace(old, new), s.replace(old, new, most)


@program((["a", "b", "c"], ", "), ([], "-"), (["one"], "-"), (["é", "", "x"], ""))
def joins_an_argument(items: list[str], separator: str) -> tuple[str, int]:
    return separator.join(items), len(separator.join(items))


@program(("a b c",), ("",), ("one",), ("the end of it",))
def joins_what_it_has_split(s: str) -> str:
    return "-".join([word.capitalize() for word in s.split(" ")])


@program(("hello",), ("",), ("a-b",), ("zZ",))
def iterates_over_characters(s: str) -> tuple[list[str], int, str]:
    found: list[str] = []
    total = 0
    back = ""
    for c in s:
        if c != "-":
            found.append(c)
        total += ord(c)
        back = c + back
    return found, total, back


@program(("hello",), ("",), ("a-b",))
def lists_characters(s: str) -> tuple[list[str], list[int], list[str]]:
    return list(s), [ord(c) for c in s], sorted(list(s))  # noqa: C414 (sorted(s) is [s] in TorchScript)


@program((65,), (0x7A,), (48,), (-1,), (2**40,))
def a_byte(n: int) -> str:
    return chr(n)


@program((0,), (255,), (-10,), (2**63 - 1,), (-(2**63),))
def bases(n: int) -> tuple[str, str, str]:
    return hex(n), oct(n), bin(n)


@program(("A",), ("z",), ("",), ("ab",), ("é",))
def code_of(s: str) -> int:
    return ord(s)


@program(("12",), (" -7",), ("",), ("1.5",), ("x",), ("99999999999999999999",), ("+3",))
def reads_an_int(s: str) -> int:
    return int(s) * 2


@program(("1.5",), ("-2e3",), ("",), ("inf",), ("0x1p3",), ("1e400",), ("7 ",))
def reads_a_float(s: str) -> float:
    return float(s)


@program(("1,2,3",), ("4",), ("1,x",), ("",))
def sums_a_line_of_numbers(s: str) -> int:
    total = 0
    for part in s.split(","):
        total += int(part)
    return total


@program(("a", 1, 2.5, True), ("", -3, 1e10, False), ("é", 2**40, 0.1, True))
def percents(s: str, n: int, f: float, b: bool) -> list[str]:
    return ["%s=%d %s" % (s, n, b), "%f|%e|%E" % (f, f, f), "%i%%" % n, "%s" % f, "%F" % n, "%c" % 65]


@program(
    ("%s: %d", "a", 3), ("%d%%", "a", 3), ("%s%c", "x", 65), ("", "", 0), ("%s", "a", 1), ("%q %s", "a", 1)
)
def a_format_of_a_call(text: str, s: str, n: int) -> str:
    return text % (s, n)


@program(("{} and {}", "a", 3), ("{}{}{}", "a", 3), ("none", "b", 1), ("{}", "", -1), ("{0}", "a", 1))
def fields_of_a_call(text: str, s: str, n: int) -> tuple[str, str]:
    return "{}: {}".format(s, n), text.format(s, n)


@program(("up", x(3)), ("down", x(2)), ("", x(1)), ("UP", x(4)))
def a_mode(mode: str, a: Tensor) -> Tensor:
    if mode.lower() == "up":
        return a * 2
    elif mode in ["down", "low"]:
        return a - 1
    return a


@program(("b", "a"), ("a", "b"), ("", "a"), ("é", "z"), ("ab", "abc"))
def compares(s: str, t: str) -> list[bool]:
    return [s < t, s <= t, s > t, s >= t, s == t, s != t, bool(s)]


@program((["b", "a", "c"],), ([],), (["x", "x"],), (["é", "z", "Z", ""],))
def sorts_strings_of_a_call(items: list[str]) -> tuple[list[str], list[str], bool, int]:
    found = sorted(items)
    items.sort(reverse=True)
    return found, items, "x" in items, items.count("x")


@program(({"a": 1, "b": 2}, "b"), ({"x": 5}, "x"), ({"x": 5, "y": 6, "z": 7}, "q"))
def looks_up(table: dict[str, int], key: str) -> int:
    return table[key] if key in table else -len(key)


@program(("the cat the dog",), ("",), ("a a a",), ("one two",))
def counts_words_of_a_text(s: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in s.split():
        if word in found:
            found[word] += 1
        else:
            found[word] = 1
    return found


@program(("b a c b", x(3, 2)), ("c", x(3, 2)), ("", x(4, 2)), ("q a", x(3, 2)))
def rows_of_words(s: str, table: Tensor) -> Tensor:
    vocabulary = {"a": 0, "b": 1, "c": 2}
    made = torch.zeros(2)
    for word in s.split():
        if word in vocabulary:
            made = made + table[vocabulary[word]]
    return made


@program(("2x3+1",), ("",), ("abc",), ("10-4",))
def a_scanner(s: str) -> tuple[list[int], str]:
    numbers: list[int] = []
    operators = ""
    digits = ""
    for i in range(len(s)):
        c = s[i]
        if c.isdigit():
            digits += c
        else:
            operators += c
            if len(digits) > 0:
                numbers.append(int(digits))
            digits = ""
    if digits != "":
        numbers.append(int(digits))
    return numbers, operators


@program((3,), (0,), (-2,))
def constants_by_bytes(n: int) -> tuple[int, list[int], str, bool]:
    text = "né" + str(n)
    known = "é"
    return len(text), [len(known), len("日本")], "É".lower() + "aB".swapcase(), "é".isalpha()


@program((3, "a"), (0, "bc"), (40, ""))
def many_of_one(n: int, s: str) -> str:
    made = ""
    for _ in range(n):
        made += s
    return f"{made}|{n}"


class Way(enum.Enum):
    UP = "up"
    DOWN = "down"


@program(("up", 3), ("down", 3), ("", 1))
def an_enumeration_of_strings(name: str, n: int) -> tuple[int, str]:
    if name == Way.UP.value:
        return n, Way.UP.value
    return -n, Way.DOWN.value + Way.DOWN.name


@program(
    ("ab", "q"), ("", "last"), ("x\n", "a\nb"), ("\n", "\x01"), ("\x02", "x\ne"), ("a", "é"), ("last", "A")
)
def many_keys(one: str, two: str) -> tuple[int, float, str, bool, int]:
    ints = {
        "a": -3,
        "b": -2,
        "ab": 1,
        "": 6,
        "c d": 13,
        "é": 22,
        "x\n": 33,
        "x": 46,
        "\n": 61,
        "e": 78,
        "f": 97,
        "g": 118,
        "h": 141,
        "i": 166,
        "j": 193,
        "k": 222,
        "l": 253,
        "m": 286,
        "n": 321,
        "last": 358,
    }
    floats = {
        "a": 0.0,
        "b": 0.25,
        "ab": 0.5,
        "": 0.75,
        "c d": 1.0,
        "é": 1.25,
        "x\n": 1.5,
        "x": 1.75,
        "\n": 2.0,
        "e": 2.25,
        "f": 2.5,
        "g": 2.75,
        "h": 3.0,
        "i": 3.25,
        "j": 3.5,
        "k": 3.75,
        "l": 4.0,
        "m": 4.25,
        "n": 4.5,
        "last": 4.75,
    }
    texts = {
        "a": "0",
        "b": "1",
        "ab": "2",
        "": "3",
        "c d": "4",
        "é": "5",
        "x\n": "6",
        "x": "7",
        "\n": "8",
        "e": "9",
        "f": "10",
        "g": "11",
        "h": "12",
        "i": "13",
        "j": "14",
        "k": "15",
        "l": "16",
        "m": "17",
        "n": "18",
        "last": "19",
    }
    total = 0
    for key in [one, two, one + two]:
        if key in ints:
            total += ints[key]
    return ints[one], floats.get(two, -1.0), texts.get(two, "none"), two in floats, total
