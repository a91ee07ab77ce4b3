"""Programs with run-time strings."""

from __future__ import annotations

import torch
from torch import Tensor

from .programs import matrices, program, x


@program((x(2), 1), (x(3), -5), (x(1), 2**40))
def message_as_result(a: Tensor, n: int) -> tuple[Tensor, str]:
    return a * n, "n is " + str(n) + f" for {a.size(0)}"


@program(("a", 3), ("", -1), ("\u00e9\u4e16\U0001f600", 0), ("x" * 100, 7))
def names_an_argument(name: str, n: int) -> str:
    return f"{name}_{n}"


@program((0.1,), (1.0,), (-2.5,), (1e10,), (1e18,), (1e19,), (1e-7,), (1e300,), (123456789.125,), (-0.0,))
def floats_as_text(a: float) -> tuple[str, str]:
    return str(a), f"a={a}"


@program((float("nan"),), (float("inf"),), (float("-inf"),), (0.30000000000000004,), (5e-324,), (-(2.0**63),))
def unusual_floats_as_text(a: float) -> str:
    return str(a)


@program((True, 2), (False, -2), (True, 0))
def percent(flag: bool, n: int) -> str:
    return "%s: %d of %s, 100%%" % (flag, n, "all")  # noqa: UP031 (TorchScript)


@program((2.75,), (-2.75,), (0.5,))
def percent_of_a_float(a: float) -> str:
    return "%d %s" % (a, a)  # noqa: UP031 (TorchScript)


@program((4, 3), (0, 3), (1, -2))
def list_of_strings(n: int, k: int) -> list[str]:
    found: list[str] = []
    for i in range(n):
        found.append(str(i * k))
    return found


@program((4,), (0,), (1,), (12,))
def joins(n: int) -> tuple[str, str]:
    found: list[str] = []
    for i in range(n):
        found.append(str(i * i))
    return ", ".join(found), "-".join(["a", str(n), "b"])


@program((3, 1.5), (0, 2.0), (1, -0.25))
def lists_as_text(n: int, a: float) -> tuple[str, str, str]:
    found = [i * 2 for i in range(n)]
    return str(found), f"{[n, 1]} and {(n, a)}", str([a, 1.0])


@program((x(3), 2), (x(1), 0), (x(5), -1))
def dict_of_strings(a: Tensor, n: int) -> dict[str, str]:
    return {"name": f"size {a.size(0)}", "way": "up" if n > 0 else "down"}


@program((5,), (0,), (1,), (10,))
def grows_in_a_loop(n: int) -> str:
    text = ""
    for i in range(n):
        text = text + str(i % 10) if i % 2 == 0 else "(" + text + ")"
    return text


@program((3,), (-1,), (0,))
def chosen_by_a_branch(n: int) -> tuple[str, int]:
    name = "none"
    if n > 0:
        name = f"{n} of them"
    return name, n


@matrices
def constant_texts(a: Tensor) -> tuple[Tensor, str, str, str, int]:
    text = "%s %d %i %%" % (1.0, 2, 3.5)  # noqa: UP031 (TorchScript)
    return a, text, str(0.1), "-".join(["a", "b"]) + f"{1.5}{True}", len("abc")


@program((torch.tensor([1.5, -2.0]),), (torch.tensor([0.0, 3.0]),), (torch.tensor([7.25]),))
def elements_as_text(a: Tensor) -> list[str]:
    return [f"{float(a[0])}", str(a.sum().item() > 0)]
