"""Programs in the manner of other people: searches, stacks, sieves, words, options."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .programs import program, x


@program((x(6, 4), 2, 3), (x(3, 4), 1, 2), (x(8, 4), 2, 2))
def strange_beam_search(logits: Tensor, beams: int, steps: int) -> tuple[list[float], list[list[int]]]:
    scores: list[float] = [0.0]
    paths: list[list[int]] = [[0]]
    for t in range(2):
        new_scores: list[float] = []
        new_paths: list[list[int]] = []
        for s, p in zip(scores, paths):  # noqa: B905 (TorchScript knows no strict)
            for v in range(2):
                new_scores.append(s + float(logits[t, v]))
                new_paths.append(p + [v])
        scores = new_scores
        paths = new_paths
    return scores, paths


@program((x(5, 4), x(5), 0.5), (x(9, 4), x(9), 0.3), (x(1, 4), x(1), 0.5))
def strange_greedy_nms(boxes: Tensor, scores: Tensor, thr: float) -> Tensor:
    b = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:].abs() + 0.1], 1)
    order = scores.argsort(descending=True)
    keep: list[int] = []
    gone = torch.zeros(b.size(0), dtype=torch.bool)
    areas = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    for k in range(order.size(0)):
        i = int(order[k])
        if bool(gone[i]):
            continue
        keep.append(i)
        lt = torch.max(b[i, :2], b[:, :2])
        rb = torch.min(b[i, 2:], b[:, 2:])
        wh = (rb - lt).clamp(min=0.0)
        inter = wh[:, 0] * wh[:, 1]
        iou = inter / (areas[i] + areas - inter)
        gone = gone | (iou > thr)
    return torch.tensor(keep)


@program((["2", "3", "+", "4", "*"],), (["7", "1", "-"],), (["5"],), (["1", "2", "3", "+", "+"],))
def strange_rpn(tokens: list[str]) -> int:
    st: list[int] = []
    for tok in tokens:
        if tok == "+":
            b = st.pop()
            a = st.pop()
            st.append(a + b)
        elif tok == "-":
            b = st.pop()
            a = st.pop()
            st.append(a - b)
        elif tok == "*":
            b = st.pop()
            a = st.pop()
            st.append(a * b)
        elif tok == "1":
            st.append(1)
        elif tok == "2":
            st.append(2)
        else:
            st.append(5)
    return st[-1]


@program((7, 2), (-7, 2), (7, -2), (-7, -3), (0, 5))
def strange_int_div(a: int, b: int) -> tuple[int, int, float, int]:
    return a // b, a % b, a / b, abs(a) - b


@program((2.5,), (-2.5,), (3.49,), (-0.5,), (1e9,))
def strange_casts(f: float) -> tuple[int, float, int, int, str]:
    return int(f), round(f), torch.jit.annotate(int, int(f * 2)), (1 if f > 0 else -1), f"{int(f)}"


@program(10, 1, 27, 97)
def strange_collatz(n: int) -> tuple[int, list[int]]:
    seen: list[int] = []
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        seen.append(n)
        if len(seen) > 200:
            break
    return len(seen), seen


@program(([3, 1, 2],), ([],), ([5, 5, 1, 9],))
def strange_histogram(ks: list[int]) -> tuple[list[int], list[int]]:
    d: dict[int, int] = {}
    for k in ks:
        if k in d:
            d[k] += 1
        else:
            d[k] = 1
    return list(d.keys()), list(d.values())


@program((["b", "a", "c"],), ([],), (["z", "z", "a"],))
def strange_sort_words(w: list[str]) -> tuple[list[str], str]:
    s = sorted(w)
    return s, "-".join(s)


@program((x(4, 4),), (x(2, 2),), (x(3, 5),))
def strange_views_of_views(a: Tensor) -> Tensor:
    b = a.clone()
    c = b.t()[1:]
    c[0].mul_(2)
    c.t()[0] += 1
    b.view(-1)[0] = 9.0
    return b


@program((x(3, 2),), (x(5, 1),), (x(1, 4),))
def strange_forked(a: Tensor) -> Tensor:
    f = torch.jit.fork(torch.sigmoid, a)
    g = [torch.jit.fork(torch.add, a, i) for i in range(3)]
    t = torch.jit.wait(f)
    for h in g:
        t = t + torch.jit.wait(h)
    return t


@program((x(3), 2), (x(3), -1), (x(3), 0), (x(2), 7))
def strange_raises(a: Tensor, k: int) -> Tensor:
    if k < 0:
        raise ValueError(f"k is {k}, must not be negative")
    assert k < 5, "too large"
    return a * k


@program((x(4, 3),), (x(1, 3),), (x(7, 2),))
def strange_comprehension(a: Tensor) -> Tensor:
    parts = [a[i] * i for i in range(a.size(0))]
    return torch.stack([p.cumsum(0) for p in parts])


@program(3, 0, 6, 1)
def strange_fib(n: int) -> list[int]:
    a, b = 0, 1
    out: list[int] = torch.jit.annotate(list[int], [])
    for _ in range(n):
        out.append(a)
        a, b = b, a + b
    return out


@program((x(3, 3), None, None), (x(3, 3), 2, None), (x(2, 3), None, 1.5), (x(4, 3), 3, 0.5))
def strange_none_chain(a: Tensor, k: int | None, f: float | None) -> Tensor:
    if k is None and f is None:
        return a
    if k is not None and f is not None:
        return a * k * f
    scale = float(k) if k is not None else (f if f is not None else 1.0)
    return a * scale


@program((x(5),), (x(2),), (x(8),))
def strange_dict_ops(a: Tensor) -> tuple[float, int, list[str]]:
    d: dict[str, float] = {"a": 1.0, "b": 2.0}
    d.update({"c": 3.0})
    v = d.pop("a") + d.setdefault("z", 4.0) + d.get("q", 0.5)
    for _key, val in d.items():
        v += val * a.size(0)
    return v, len(d), list(d.keys())


@program((4,), (11,), (0,))
def strange_primes(n: int) -> list[int]:
    out: list[int] = []
    for c in range(2, n + 1):
        ok = True
        for p in out:
            if p * p > c:
                break
            if c % p == 0:
                ok = False
                break
        if ok:
            out.append(c)
    return out


@program((x(2, 3),), (x(1, 1),), (x(4, 2),))
def strange_any_refine(a: Tensor) -> Tensor:
    items: list[Any] = [1, 2.5, a]
    out = torch.zeros_like(a)
    for it in items:
        if isinstance(it, int):
            out = out + it
        elif isinstance(it, float):
            out = out * it
        elif isinstance(it, Tensor):
            out = out + it
    return out


@program((x(6), 3), (x(6), 0), (x(1), 5), (x(9), 4))
def strange_top_k_loop(a: Tensor, k: int) -> tuple[list[int], Tensor]:
    b = a.clone()
    found: list[int] = []
    for _ in range(min(k, a.size(0))):
        i = int(b.argmax())
        found.append(i)
        b[i] = -1e9
    return found, b


@program(([1, 5, 3], [2, 4]), ([], [1]), ([7], []), ([1, 2, 3], [1, 2, 3]))
def strange_merge_sorted(a: list[int], b: list[int]) -> list[int]:
    i = 0
    j = 0
    out: list[int] = []
    while i < len(a) and j < len(b):
        if a[i] <= b[j]:
            out.append(a[i])
            i += 1
        else:
            out.append(b[j])
            j += 1
    out.extend(a[i:])
    out += b[j:]
    return out


@program((12, 18), (7, 3), (0, 4), (100, 75))
def strange_gcd_while(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


@program(([0.5, -1.0, 2.0],), ([],), ([3.0],))
def strange_running(fs: list[float]) -> tuple[float, float | None]:
    best: float | None = None
    total = 0.0
    for f in fs:
        total += f
        if best is None or f > best:
            best = f
    return total, best


@program(([3, 1, 2], [0.5]), ([], []), ([7], [1.5, 2.5, -1.0]))
def strange_tensors(ks: list[int], fs: list[float]) -> tuple[Tensor, Tensor, int]:
    return torch.tensor(ks), torch.tensor(fs), len(ks) + len(fs)
