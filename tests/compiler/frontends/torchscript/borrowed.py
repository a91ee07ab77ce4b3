"""Programs in other people's style: algorithms, text, objects and bookkeeping."""

# ruff: noqa: B905, C416, F841, PIE808, SIM, UP006, UP031, UP032, UP035, UP045
import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .programs import program, x

T = torch.tensor


@program((x(6, 4).abs(), 0.3), (x(2, 4).abs(), 0.9), (x(9, 4).abs(), 0.05), (x(1, 4).abs(), 0.5))
def nms_pure(raw: Tensor, thr: float) -> Tensor:
    boxes = torch.cat([raw[:, :2], raw[:, :2] + raw[:, 2:] + 0.1], dim=1)
    scores = raw.sum(1)
    keep: list[int] = []
    order = torch.argsort(scores, descending=True)
    while order.numel() > 0:
        i = int(order[0])
        keep.append(i)
        if order.numel() == 1:
            break
        rest = order[1:]
        xx1 = torch.max(boxes[i, 0], boxes[rest, 0])
        yy1 = torch.max(boxes[i, 1], boxes[rest, 1])
        xx2 = torch.min(boxes[i, 2], boxes[rest, 2])
        yy2 = torch.min(boxes[i, 3], boxes[rest, 3])
        inter = (xx2 - xx1).clamp(min=0) * (yy2 - yy1).clamp(min=0)
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        iou = inter / (area[i] + area[rest] - inter)
        order = rest[iou <= thr]
    return T(keep)


class Instr(NamedTuple):
    op: int
    arg: float


@program(
    ([(0, 2.0), (0, 3.0), (1, 0.0)],), ([(0, 2.0), (0, 3.0), (2, 0.0)],), ([(0, 7.0), (0, 3.0), (3, 0.0)],)
)
def stack_machine(code: list[tuple[int, float]]) -> float:
    stack: list[float] = []
    for op, arg in code:
        ins = Instr(op, arg)
        if ins.op == 0:
            stack.append(ins.arg)
        else:
            b = stack.pop()
            a = stack.pop()
            if ins.op == 1:
                stack.append(a + b)
            elif ins.op == 2:
                stack.append(a * b)
            else:
                stack.append(a // b)
    return stack[-1]


@program(
    (T([0, 0, 1, 3]), T([2.0, 3.0, 0.0, 1.5])),
    (T([0, 2]), T([1.0, 0.0])),
    (T([0, 0, 0, 2, 1]), T([1.0, 2.0, 3.0, 0.0, 0.0])),
)
def stack_machine_tensor(ops: Tensor, args: Tensor) -> list[float]:
    stack: list[float] = []
    for k in range(len(ops)):
        ins = Instr(int(ops[k]), float(args[k]))
        if ins.op == 0:
            stack.append(ins.arg)
        elif ins.op == 1:
            stack.append(stack.pop() + stack.pop())
        elif ins.op == 2:
            if len(stack) < 2:
                raise RuntimeError(f"stack underflow at {k}: {len(stack)}")
            stack.append(stack.pop() * stack.pop())
        else:
            stack.append(-stack.pop())
    return stack


@program((x(4), 3), (x(4), -1), (x(2), 0), (x(3), 7))
def nested_returns(a: Tensor, k: int) -> Tensor:
    i = 0
    while True:
        if k > 0:
            if k > 5:
                return a * 100
            if i > k:
                return a + i
        elif k == 0:
            return -a
        else:
            if i == 2:
                return a * i
        i += 1
    return a


@program((x(3, 3), "a"), (x(3, 3), "b"), (x(2, 2), "zz"))
def any_refined(a: Tensor, s: str) -> Tensor:
    things: list[Any] = [a, 3, "x", 2.5, [1, 2]]
    out = a
    if s == "a":
        v: Any = a * 2
    elif s == "b":
        v = 4
    else:
        v = "no"
    for t in things:
        if isinstance(t, int):
            out = out + t
        elif isinstance(t, float):
            out = out * t
        elif isinstance(t, Tensor):
            out = out + t
    return out


@program((x(4, 3),), (x(1, 3),), (x(6, 2),))
def annotate_and_comprehend(a: Tensor) -> tuple[list[int], list[Tensor], Tensor]:
    e = torch.jit.annotate(list[Tensor], [])
    sizes = [int(d) * 2 for d in a.shape]
    for i in range(3):
        e.append(a * i)
    halves = [t / 2 for t in e]
    return sizes, halves, torch.stack(halves)


@program((x(7), 2), (x(5), 1), (x(6), 3))
def negative_slices(a: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor, list[int], list[int]]:
    r = list(range(10))
    return a[-k:], a[:-k], a[-3:-1], r[-k:], r[::2][:-k]


@program((x(4, 2), ["p", "q"]), (x(3, 2), ["p", "q"]), (x(5, 2), ["z", "p"]))
def zips(a: Tensor, names: list[str]) -> tuple[dict[str, Tensor], list[str]]:
    d: dict[str, Tensor] = {}
    log: list[str] = []
    for i, (n, c) in enumerate(zip(["u", "v"], [a[:, 0], a[:, 1]])):
        d[n] = c * i
        log.append(f"{i}:{n}:{names[i]}")
    return d, log


@program(("hello world",), ("a b",), ("single two",))
def str_methods(s: str) -> tuple[str, str]:
    t = "  Mixed Case,Text,x  ".strip()
    parts = t.split(",")
    up = [p.upper() for p in parts]
    j = "-".join(up)
    k = j.replace("X", "yy").find("yy")
    return s + "|" + j + "|" + str(k), f"{s}:{len(parts)}"


@program((x(4, 4),), (x(3, 3),), (x(5, 5),))
def views_of_views(a: Tensor) -> tuple[Tensor, Tensor]:
    b = a.clone()
    v = b.view(-1)
    w = v[1::2]
    w[0] = 10.0
    u = b.t()[1:]
    u[0].mul_(3)
    u.transpose(0, 1)[0] -= 1
    b[b > 5] = 0
    return b, v


def scaled(a: Tensor, k: float) -> Tensor:
    return a * k + 1


@program((x(3),), (x(5),), (x(1),))
def forks(a: Tensor) -> Tensor:
    futs: list[torch.jit.Future[Tensor]] = []
    for i in range(3):
        futs.append(torch.jit.fork(scaled, a, float(i)))
    return torch.stack([torch.jit.wait(f) for f in futs]).sum(0)


@program((x(3), 1), (x(3), -4), (x(3), 100))
def raises_value(a: Tensor, k: int) -> Tensor:
    if k < 0:
        raise ValueError("k must be >= 0 but is %d" % k)  # noqa: UP031
    assert k < 50, f"too big: {k}"
    return a * k


@torch.jit.script
class Version:
    def __init__(self, major: int, minor: int):
        self.major = major
        self.minor = minor

    def __eq__(self, other: "Version") -> bool:
        return self.major == other.major and self.minor == other.minor

    def __lt__(self, other: "Version") -> bool:
        if self.major != other.major:
            return self.major < other.major
        return self.minor < other.minor

    def __add__(self, other: "Version") -> "Version":
        return Version(self.major + other.major, self.minor + other.minor)

    def __len__(self) -> int:
        return self.major

    def __contains__(self, k: int) -> bool:
        return k == self.minor

    def __getitem__(self, k: int) -> int:
        return self.minor * k


@program((1, 2), (2, 1), (1, 3), (0, 0))
def class_operators(a: int, b: int) -> tuple[bool, bool, int, int, bool, int]:
    v, w = Version(a, b), Version(1, 2)
    s = v + w
    return v == w, v < w, s.major, len(s), 2 in v, w[b]


@program((x(3), 2), (x(3), 5), (x(2), 0))
def dict_order(a: Tensor, k: int) -> tuple[list[str], list[int], int, dict[str, int]]:
    d: dict[str, int] = {}
    d["z"] = 1
    d["a"] = k
    d["m"] = 3
    d["z"] = 9
    p = d.pop("a")
    q = d.setdefault("new", k * 2)
    d.update({"m": 7, "q": q})
    tot = 0
    for key in d:
        tot = tot * 10 + d[key]
    return list(d.keys()), list(d.values()), p + tot, d


@program((7, 2), (-7, 2), (7, -2), (-7, -2), (0, 5), (5, 0))
def int_division(a: int, b: int) -> tuple[int, int, float, int]:
    return a // b, a % b, a / b, (a // b) * b + a % b


@program((7.5, 2.0), (-7.5, 2.0), (7.5, -2.0), (-7.25, -2.5))
def float_division(a: float, b: float) -> tuple[float, float, float, int, int, int]:
    return a // b, a % b, a / b, int(a), math.floor(a), math.ceil(a)


@program((0.5,), (1.5,), (2.5,), (-0.5,), (-1.5,), (1e3,))
def rounds(a: float) -> tuple[float, int, int, bool, float]:
    return round(a), int(a), int(round(a)), bool(a), float(int(a))


@program((None, x(3)), (None, x(3) * 2), (None, x(1)))
def is_none_chain(a: Tensor | None, b: Tensor) -> Tensor:
    c = a if a is not None else b
    d: Tensor | None = None
    if b.sum() > 0:
        d = b
    e = d if d is not None else c
    if d is None or bool(d.sum() > 1e9):
        return e * 2
    return e + d


@program((T([3, 1, 2]),), (T([5]),), (T([1, 1, 1, 9]),))
def opt_list(a: Tensor) -> tuple[int, int | None]:
    best: int | None = None
    items: list[int] | None = None
    for i in range(a.size(0)):
        v = int(a[i])
        if best is None or v > best:
            best = v
        if items is None:
            items = [v]
        else:
            items.append(v)
    assert items is not None
    return len(items), best


@program((2**62, 2), (3, 5), (-(2**62), 2))
def int_arith(a: int, b: int) -> tuple[int, int, int, int]:
    return a ^ b, a & b, a | b, (a >> 1) + (b << 2)


@program(("the cat sat on the mat the end",), ("a b a",), ("x y",))
def word_count_known(s: str) -> dict[str, int]:
    text = "the cat sat on the mat"
    counts: dict[str, int] = {}
    for w in text.split(" "):
        if w in counts:
            counts[w] += 1
        else:
            counts[w] = 1
    return counts


@program((x(5),), (x(2),), (x(8),))
def bubble(a: Tensor) -> Tensor:
    b = a.clone()
    n = b.size(0)
    for i in range(n):
        for j in range(0, n - i - 1):
            if b[j] > b[j + 1]:
                tmp = b[j].clone()
                b[j] = b[j + 1]
                b[j + 1] = tmp
    return b


@program((T([5, 3, 8, 1]),), (T([2]),), (T([9, 9, 1, 4, 3]),))
def quicksort_stack(a: Tensor) -> list[int]:
    v: list[int] = a.tolist()
    stack: list[tuple[int, int]] = [(0, len(v) - 1)]
    while len(stack) > 0:
        lo, hi = stack.pop()
        if lo >= hi:
            continue
        p = v[hi]
        i = lo
        for j in range(lo, hi):
            if v[j] < p:
                v[i], v[j] = v[j], v[i]
                i += 1
        v[i], v[hi] = v[hi], v[i]
        stack.append((lo, i - 1))
        stack.append((i + 1, hi))
    return v


@program((x(3, 4), 2), (x(2, 5), 1), (x(4, 4), 3))
def matrix_power(a: Tensor, k: int) -> Tensor:
    m = a @ a.t()
    r = torch.eye(m.size(0))
    e = k
    while e > 0:
        if e % 2 == 1:
            r = r @ m
        m = m @ m
        e = e // 2
    return r


@program((T([1, 2, 2, 3, 3, 3]),), (T([4, 4]),), (T([7]),))
def run_length(a: Tensor) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    prev = int(a[0])
    n = 1
    for i in range(1, a.numel()):
        c = int(a[i])
        if c == prev:
            n += 1
        else:
            out.append((prev, n))
            prev = c
            n = 1
    out.append((prev, n))
    return out


@program((x(2, 6, 4), T([3, 6])), (x(1, 4, 4), T([2])), (x(3, 5, 2), T([5, 1, 2])))
def masked_mean(h: Tensor, lengths: Tensor) -> Tensor:
    mask = torch.arange(h.size(1))[None, :] < lengths[:, None]
    h = h.masked_fill(~mask.unsqueeze(-1), 0.0)
    return h.sum(1) / lengths.unsqueeze(1).to(h.dtype)


@program((x(2, 6, 4), T([3, 6])), (x(1, 4, 4), T([2])), (x(3, 5, 2), T([5, 1, 2])))
def trims(h: Tensor, lengths: Tensor) -> list[Tensor]:
    out: list[Tensor] = []
    for i in range(h.size(0)):
        out.append(h[i, : int(lengths[i])].mean(0))
    return out


@program((x(3, 4),), (x(1, 2),), (x(5, 3),))
def multi_assign(a: Tensor) -> tuple[Tensor, Tensor]:
    b, c = a.max(dim=1)
    (d, e), f = (b, c), a.min()
    d, e = e.float(), d
    return d + e, f


@program((x(4), True, False), (x(4), False, False), (x(4), True, True))
def bool_logic(a: Tensor, p: bool, q: bool) -> tuple[bool, bool, Tensor, int]:
    r = p and not q or (q and a.numel() > 3)
    s = (p != q) == r
    return r, s, a if r else -a, int(p) + int(q) * 2


@program((3,), (0,), (10,))
def f_strings(n: int) -> list[str]:
    out: list[str] = []
    for i in range(n):
        out.append(f"item_{i}={i * i} {i / 2} {i % 2 == 0}")
    return out


@program((x(4), {"a": 1, "b": 2}), (x(4), {"a": 5, "b": 0}), (x(2), {"a": -1, "b": 3}))
def dict_arg(a: Tensor, d: dict[str, int]) -> Tensor:
    t = 0
    for k, v in d.items():
        if k == "a":
            t += v
        else:
            t *= v
    return a * t + d.get("c", 3) + (1 if "b" in d else 0)


@program((x(4, 4), 1), (x(4, 4), 2), (x(4, 4), 3))
def ternary_chain(a: Tensor, k: int) -> Tensor:
    return a.relu() if k == 1 else a.sigmoid() if k == 2 else a.tanh()


@program((T([1, 5, 3]), T([2, 5])), (T([1]), T([1])), (T([9, 8]), T([7, 6, 8])))
def set_ops(a: Tensor, b: Tensor) -> tuple[list[int], list[int]]:
    xs: list[int] = a.tolist()
    ys: list[int] = b.tolist()
    both = torch.jit.annotate(list[int], [])
    for v in xs:
        if v in ys and v not in both:
            both.append(v)
    union = xs + [y for y in ys]
    union.sort(reverse=True)
    return both, union


@program((x(4, 5), 2), (x(4, 5), 0), (x(2, 3), 1))
def index_mix(a: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    idx = T([0, 1])
    return a[idx, k], a[..., k], a[None, k], a[:, [0, 2]] if k == 1 else a[:, [1, 2]]


@program((T([[1, 0], [0, 1]]), 3), (T([[1, 1], [1, 1]]), 2), (T([[0, 1], [0, 0]]), 5))
def game_of_life(g: Tensor, n: int) -> Tensor:
    b = F.pad(g, [2, 2, 2, 2]).float()
    for _ in range(n):
        k = torch.ones(1, 1, 3, 3)
        k[0, 0, 1, 1] = 0
        nb = F.conv2d(b[None, None], k, padding=1)[0, 0]
        b = ((nb == 3) | ((b == 1) & (nb == 2))).float()
    return b.to(torch.int32)


@program((T([3, 4, 5]), 12), (T([2]), 7), (T([5, 7]), 1))
def coin_change(coins: Tensor, amount: int) -> int:
    dp: list[int] = torch.jit.annotate(list[int], [0])
    for _ in range(amount):
        dp.append(1000000000)
    for i in range(coins.size(0)):
        c2 = int(coins[i])
        for v in range(c2, amount + 1):
            dp[v] = min(dp[v], dp[v - c2] + 1)
    return dp[amount] if dp[amount] < 1000000000 else -1


@program((T([1, 3, 2, 4]), T([3, 4, 1])), (T([1]), T([2])), (T([1, 2, 3]), T([1, 2, 3])))
def lcs(a: Tensor, b: Tensor) -> int:
    n, m = a.size(0), b.size(0)
    dp = torch.zeros([n + 1, m + 1], dtype=torch.long)
    for i in range(n):
        for j in range(m):
            if a[i] == b[j]:
                dp[i + 1, j + 1] = dp[i, j] + 1
            else:
                dp[i + 1, j + 1] = torch.max(dp[i, j + 1], dp[i + 1, j])
    return int(dp[n, m])


@program((T([1, 3, 2, 4]), T([3, 4, 1])), (T([1]), T([2])), (T([1, 2, 3]), T([1, 2, 3])))
def edit_distance(a: Tensor, b: Tensor) -> int:
    xs: list[int] = a.tolist()
    ys: list[int] = b.tolist()
    prev = [j for j in range(len(ys) + 1)]
    for i in range(1, len(xs) + 1):
        cur = [i]
        for j in range(1, len(ys) + 1):
            cost = 0 if xs[i - 1] == ys[j - 1] else 1
            cur.append(min(min(prev[j] + 1, cur[j - 1] + 1), prev[j - 1] + cost))
        prev = cur
    return prev[-1]


@program((T([3, 1, 2]), 2), (T([5, 0]), 0), (T([9]), 7))
def opt_out(a: Tensor, k: int) -> int | None:
    for i in range(a.size(0)):
        if int(a[i]) == k:
            return i
    return None


@program((x(3, 2), 2), (x(3, 2), 0), (x(1, 4), 7))
def opt_tensor_out(a: Tensor, k: int) -> tuple[Tensor | None, int]:
    best: Tensor | None = None
    for i in range(min(k, a.size(0))):
        if best is None:
            best = a[i]
        else:
            best = torch.maximum(best, a[i])
    return best, k


@program((T([3, 1, 2]),), (T([5, 0]),), (T([9]),))
def sort_by_key(a: Tensor) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for i in range(a.size(0)):
        pairs.append((int(a[i]), i))
    pairs.sort()
    return pairs


@program((T([3, 1, 2]),), (T([5, 0, 5]),), (T([9]),))
def sorted_desc(a: Tensor) -> list[int]:
    v: list[int] = a.tolist()
    return sorted(v)


@program(("a-b_c", 3), ("xx", 0), ("", 1))
def str_args(s: str, n: int) -> list[str]:
    out: list[str] = []
    for i in range(n):
        out.append(s + str(i))
    return out


@program((x(4, 3), 0.5), (x(2, 3), -0.5), (x(6, 3), 2.0))
def filter_rows(a: Tensor, t: float) -> tuple[list[int], Tensor]:
    idx = [i for i in range(a.size(0))]
    keep: list[int] = []
    for i in idx:
        if float(a[i].max()) > t:
            keep.append(i)
    if len(keep) == 0:
        return keep, torch.zeros(0, 3)
    return keep, a[torch.tensor(keep)]


@program((x(4, 3),), (x(2, 3),), (x(6, 3),))
def dictcomp(a: Tensor) -> dict[str, float]:
    d = {k: float(v) for k, v in [("mean", a.mean()), ("max", a.max())]}
    d["sum"] = d["mean"] * a.numel()
    return d


@program((x(5, 3), T([0, 2, 4])), (x(5, 3), T([1])), (x(2, 3), T([0, 0, 1])))
def scatter_mean(a: Tensor, idx: Tensor) -> Tensor:
    out = torch.zeros(5, a.size(1))
    cnt = torch.zeros(5, dtype=torch.long)
    for j, i in enumerate(idx.unbind(0)):
        out[i] += a[j % a.size(0)]
        cnt[i] += 1
    return out / cnt.clamp(min=1).unsqueeze(1)


@program((x(2, 8, 8), 3), (x(1, 9, 5), 2), (x(3, 4, 4), 4))
def patches(img: Tensor, p: int) -> Tensor:
    c, h, w = img.shape
    img = img[:, : h // p * p, : w // p * p]
    img = img.reshape(c, h // p, p, w // p, p).permute(1, 3, 0, 2, 4)
    return img.reshape(h // p * (w // p), c * p * p)


@program((x(6),), (x(1),), (x(9),))
def running_stats(a: Tensor) -> tuple[list[float], float]:
    mean, m2, n = 0.0, 0.0, 0
    means: list[float] = []
    for i in range(len(a)):
        n += 1
        d = a[i].item() - mean
        mean += d / n
        m2 += d * (a[i].item() - mean)
        means.append(mean)
    return means, math.sqrt(m2 / n) if n > 1 else -1.0


@program((10,), (1,), (97,), (100,), (2,))
def primes(n: int) -> list[int]:
    sieve = [True] * (n + 1)
    out: list[int] = []
    for p in range(2, n + 1):
        if sieve[p]:
            out.append(p)
            q = p * p
            while q <= n:
                sieve[q] = False
                q += p
    return out


@program((10, 4), (27, 6), (7, 0))
def gcd_loop(a: int, b: int) -> tuple[int, int]:
    steps = 0
    while b:
        a, b = b, a % b
        steps += 1
    return a, steps


@program((255, 2), (255, 16), (8, 8), (0, 2))
def to_base(n: int, base: int) -> str:
    digits = "0123456789abcdef"
    out = ""
    if n == 0:
        return "0"
    while n > 0:
        d = n % base
        out = ("a" if d >= 10 else "") + str(d) + out
        n = n // base
    return out


@program((T([1, 2, 3]),), (T([0]),), (T([5, 5, 5, 5]),))
def while_else(a: Tensor) -> int:
    i = 0
    found = -1
    while i < a.size(0):
        v = int(a[i])
        i += 1
        if v % 2 == 1:
            continue
        if v > 3:
            break
        found = i
    return found * 100 + i


@program((x(3, 4), x(4, 2)), (x(1, 4), x(4, 2)), (x(5, 4), x(4, 2)))
def named_results(a: Tensor, b: Tensor) -> Tensor:
    r = torch.max(a, dim=1)
    u, s = torch.sort(a @ b, dim=0)
    return r[0].unsqueeze(1) + u + s.float() + r.values.sum() + r.indices.float().unsqueeze(1)


@program((x(3, 4), None, 2.0), (x(2, 4), None, 0.5), (x(3, 4), None, -1.0))
def opt_default(a: Tensor, m: Tensor | None = None, scale: float = 2.0) -> Tensor:
    if m is None:
        m = torch.ones_like(a)
    return a * m * scale


@program((x(3, 4), [1, 2]), (x(2, 4), [0, 3]), (x(3, 4), [-1, 0]))
def reduce_dims(a: Tensor, d: list[int]) -> Tensor:
    return a[:, d[0]] + a[:, d[1]]


@program((T([2, 7, 11, 15]), 9), (T([3, 3]), 6), (T([1, 2]), 9))
def two_sum(a: Tensor, target: int) -> tuple[int, int]:
    seen: dict[int, int] = {}
    for i in range(a.size(0)):
        v = int(a[i])
        if target - v in seen:
            return seen[target - v], i
        seen[v] = i
    return -1, -1


@program((T([1, 2, 3, 4, 5, 6]), 2), (T([1]), 3), (T([1, 2, 3]), 1))
def sliding(a: Tensor, w: int) -> list[int]:
    v: list[int] = a.tolist()
    out: list[int] = []
    for i in range(len(v) - w + 1):
        out.append(sum(v[i : i + w]))
    return out


@program(([x(2, 3), x(2, 3)],), ([x(1, 3), x(1, 3)],), ([x(4, 3), x(4, 3)],))
def list_of_tensors(ts: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    acc = torch.zeros_like(ts[0])
    for t in ts:
        acc = acc + t
    return acc, [t * 2 for t in ts]


@program((x(4, 4), 2), (x(4, 4), 0), (x(3, 3), 5))
def power_iter(a: Tensor, n: int) -> tuple[Tensor, float]:
    v = torch.ones(a.size(0)) / math.sqrt(a.size(0))
    m = a @ a.t()
    lam = 0.0
    for _ in range(n):
        w = torch.mv(m, v)
        lam = float(torch.dot(v, w))
        v = w / w.norm()
    return v, lam


@program((x(4, 4), "sum"), (x(4, 4), "mean"), (x(3, 3), "max"), (x(2, 2), "bad"))
def dispatch(a: Tensor, how: str) -> Tensor:
    if how == "sum":
        r = a.sum()
    elif how == "mean":
        r = a.mean()
    elif how in ["max", "amax"]:
        r = a.max()
    else:
        raise NotImplementedError(f"unknown: {how}")
    return r


@program((T([[1, 1, 0], [0, 1, 0], [0, 0, 1]]),), (T([[1]]),), (T([[0, 0], [1, 1]]),))
def flood(g: Tensor) -> tuple[int, Tensor]:
    h, w = g.size(0), g.size(1)
    lab = torch.zeros_like(g)
    n = 0
    for i in range(h):
        for j in range(w):
            if g[i, j] == 1 and lab[i, j] == 0:
                n += 1
                st: list[tuple[int, int]] = [(i, j)]
                while len(st) > 0:
                    y, xx = st.pop()
                    if y < 0 or y >= h or xx < 0 or xx >= w:
                        continue
                    if g[y, xx] == 0 or lab[y, xx] != 0:
                        continue
                    lab[y, xx] = n
                    st.append((y + 1, xx))
                    st.append((y - 1, xx))
                    st.append((y, xx + 1))
                    st.append((y, xx - 1))
    return n, lab


@program((T([4, 2, 7]),), (T([1]),), (T([3, 3]),))
def heap_push(a: Tensor) -> list[int]:
    h: list[int] = []
    for i in range(a.size(0)):
        h.append(int(a[i]))
        k = len(h) - 1
        while k > 0 and h[(k - 1) // 2] > h[k]:
            p = (k - 1) // 2
            t = h[p]
            h[p] = h[k]
            h[k] = t
            k = p
    return h


@program((x(2, 3), 1e-3, True), (x(2, 3), 0.5, False), (x(1, 2), 0.1, True))
def kw_only(a: Tensor, eps: float = 1e-5, affine: bool = True) -> Tensor:
    y = (a - a.mean(-1, keepdim=True)) / (a.var(-1, unbiased=False, keepdim=True) + eps).sqrt()
    return y * 2 + 1 if affine else y


@program((x(3), 4), (x(3), 0), (x(2), 1))
def list_mul(a: Tensor, n: int) -> tuple[list[float], list[Tensor]]:
    z = [0.5] * n
    ts = [a] * 2
    for i in range(n):
        z[i] += i
    return z, ts


@program((2.7, -3), (-2.7, 5), (0.0, 0))
def casts(f: float, i: int) -> tuple[int, float, bool, bool, int, str, str]:
    return int(f), float(i), bool(f), bool(i), int(True), str(f), str(i)


@program((7, 3), (-7, 3), (7, -3), (0, 3))
def pow_shift(a: int, b: int) -> tuple[float, int, int]:
    return float(a) ** 2, abs(a) << 2, a >> 1


@program((x(3, 5), 2), (x(2, 4), 1), (x(4, 4), 0))
def chained_inplace(a: Tensor, k: int) -> Tensor:
    b = a.clone()
    b[k:].add_(1).mul_(2)[..., 0].zero_()
    b[:, 1:3][b[:, 1:3] > 1] = -1
    return b


def helper_b(a: Tensor, n: int) -> Tensor:
    for _ in range(n):
        a = a * 1.5
    return a


def helper_a(a: Tensor, ks: list[int]) -> Tensor:
    for k in ks:
        a = a + k
    return a


@program((x(3, 5),), (x(2, 4),), (x(4, 4),))
def nested_function_calls(a: Tensor) -> Tensor:
    return helper_a(helper_b(a, 2), [1, 2])


class Point(NamedTuple):
    x: Tensor
    y: Tensor
    tag: str = "p"


@program((x(3), x(3)), (x(2), x(2)), (x(5), x(5)))
def namedtuples(a: Tensor, b: Tensor) -> tuple[Tensor, str, list[Tensor]]:
    p = Point(a, b)
    q = Point(p.y, p.x, "q")
    ps = [p, q]
    out: list[Tensor] = []
    for r in ps:
        out.append(r.x - r.y)
    return p.x + q.x, p.tag + q.tag, out


@program((T([5, 2, 8, 1]), 8), (T([5]), 4), (T([3, 1, 2]), 2))
def bst(a: Tensor, q: int) -> tuple[bool, int]:
    vals: list[int] = []
    left: list[int] = []
    right: list[int] = []
    for i in range(a.size(0)):
        v = int(a[i])
        vals.append(v)
        left.append(-1)
        right.append(-1)
        if i > 0:
            k = 0
            while True:
                if v < vals[k]:
                    if left[k] < 0:
                        left[k] = i
                        break
                    k = left[k]
                else:
                    if right[k] < 0:
                        right[k] = i
                        break
                    k = right[k]
    k, depth = 0, 0
    while k >= 0:
        if vals[k] == q:
            return True, depth
        k = left[k] if q < vals[k] else right[k]
        depth += 1
    return False, depth


@torch.jit.script
class Node2:
    def __init__(self, v: int, left: int, right: int):
        self.v = v
        self.left = left
        self.right = right


@program((T([5, 2, 8, 1]),), (T([5]),), (T([3, 1, 2]),))
def objects_in_list(a: Tensor) -> int:
    nodes: list[Node2] = []
    for i in range(3):
        nodes.append(Node2(i, i - 1, i + 1))
    t = 0
    for n in nodes:
        t += n.v * n.right - n.left
    return t * int(a[0])
