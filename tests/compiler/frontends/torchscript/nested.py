"""Programs whose lists and dicts hold lists."""

from __future__ import annotations

import torch
from torch import Tensor

from .programs import program, x


@program((x(3),), (x(1),), (x(5),))
def lists_of_lists(a: Tensor) -> list[int]:
    rows: list[list[int]] = []
    for i in range(a.size(0)):
        row: list[int] = []
        for j in range(i + 1):
            row.append(i * j)
        rows.append(row)
    out: list[int] = []
    for row in rows:
        out.append(len(row) * 100 + sum(row))
    return out


@program(
    (torch.tensor([0, 1, 2, 1]), torch.tensor([1, 2, 0, 0])),
    (torch.tensor([0]), torch.tensor([0])),
    (torch.tensor([3, 3]), torch.tensor([1, 2])),
)
def adjacency(src: Tensor, dst: Tensor) -> tuple[list[list[int]], int]:
    graph: list[list[int]] = []
    for _ in range(4):
        empty: list[int] = []
        graph.append(empty)
    for i in range(src.size(0)):
        graph[int(src[i])].append(int(dst[i]))
    n = 0
    for row in graph:
        for k in row:
            n += k * len(row)
    return graph, n


@program((x(5, 7), 3, 4), (x(5, 7), 1, 2), (x(3, 7), 2, 3), (x(6, 4), 4, 1))
def beam_search(trans: Tensor, width: int, steps: int) -> tuple[list[list[int]], list[float]]:
    logp = torch.log_softmax(trans, 1)
    n = min(trans.size(0), trans.size(1))
    beams: list[tuple[list[int], float]] = [([0], 0.0)]
    for _ in range(steps):
        cand: list[tuple[list[int], float]] = []
        for seq, score in beams:
            last = seq[-1]
            for nxt in range(n):
                cand.append((seq + [nxt], score + float(logp[last, nxt])))
        scores = [c[1] for c in cand]
        order = torch.argsort(torch.tensor(scores), descending=True)
        beams = []
        for k in range(min(width, len(cand))):
            beams.append(cand[int(order[k])])
    return [b[0] for b in beams], [b[1] for b in beams]


@program((torch.tensor([3, 1, 4, 1, 5]),), (torch.tensor([2]),), (torch.tensor([9, 9, 8]),))
def splits_runs(a: Tensor) -> tuple[list[list[int]], int]:
    out: list[list[int]] = []
    cur: list[int] = []
    for i in range(a.size(0)):
        v = int(a[i])
        if len(cur) > 0 and v < cur[-1]:
            out.append(cur)
            cur = []
        cur.append(v)
    out.append(cur)
    return out, len(out)


@program(
    (torch.tensor([[1, 2], [3, 4]]),),
    (torch.tensor([[5]]),),
    (torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]]),),
)
def tables(a: Tensor) -> tuple[list[list[int]], int, list[int]]:
    rows: list[list[int]] = a.tolist()
    rows[0][0] = 100
    rows[-1].append(7)
    total = 0
    for row in rows:
        for v in row:
            total += v
    return rows, total, [len(r) for r in rows]


@program(
    (4, torch.tensor([0, 1, 2, 0]), torch.tensor([1, 2, 3, 3])),
    (3, torch.tensor([0]), torch.tensor([1])),
    (5, torch.tensor([3, 3, 4]), torch.tensor([4, 0, 1])),
)
def bfs(n: int, src: Tensor, dst: Tensor) -> list[int]:
    graph: list[list[int]] = []
    for _ in range(n):
        graph.append(torch.jit.annotate(list[int], []))
    for i in range(src.size(0)):
        s, d = int(src[i]), int(dst[i])
        graph[s].append(d)
        graph[d].append(s)
    dist = [-1] * n
    dist[0] = 0
    queue = [0]
    while len(queue) > 0:
        u = queue.pop(0)
        for v in graph[u]:
            if dist[v] < 0:
                dist[v] = dist[u] + 1
                queue.append(v)
    return dist


@program(
    (4, torch.tensor([0, 1, 2, 0]), torch.tensor([1, 2, 3, 3])),
    (3, torch.tensor([0]), torch.tensor([1])),
    (5, torch.tensor([3, 3, 4]), torch.tensor([4, 0, 1])),
)
def paths_bfs(n: int, src: Tensor, dst: Tensor) -> list[list[int]]:
    found: list[list[int]] = []
    queue: list[list[int]] = [[0]]
    while len(queue) > 0:
        path = queue.pop(0)
        last = path[-1]
        more = False
        for i in range(src.size(0)):
            if int(src[i]) == last and int(dst[i]) not in path:
                queue.append(path + [int(dst[i])])
                more = True
        if not more:
            found.append(path)
    return found


@program((torch.tensor([3, 1, 3, 2, 1]),), (torch.tensor([5]),), (torch.tensor([1, 1, 1, 4]),))
def groups_by_key(a: Tensor) -> tuple[list[int], list[list[int]], int]:
    groups: dict[int, list[int]] = {}
    for i in range(a.size(0)):
        k = int(a[i])
        if k not in groups:
            groups[k] = torch.jit.annotate(list[int], [])
        groups[k].append(i)
    n = 0
    for k, rows in groups.items():
        n += k * len(rows)
    return list(groups.keys()), list(groups.values()), n


@program((3,), (0,), (5,))
def pascal(n: int) -> list[list[int]]:
    rows: list[list[int]] = []
    for i in range(n):
        row = [1] * (i + 1)
        for j in range(1, i):
            row[j] = rows[i - 1][j - 1] + rows[i - 1][j]
        rows.append(row)
    return rows


@program((3, 4), (2, 2), (1, 5))
def grid_dp(n: int, m: int) -> list[list[float]]:
    g: list[list[float]] = []
    for _ in range(n):
        g.append([0.0] * m)
    for i in range(n):
        for j in range(m):
            if i == 0 or j == 0:
                g[i][j] = 1.0
            else:
                g[i][j] = g[i - 1][j] + g[i][j - 1]
    return g


@program((3,), (2,), (1,))
def cubes(n: int) -> int:
    c: list[list[list[int]]] = []
    for _ in range(n):
        plane: list[list[int]] = []
        for _ in range(n):
            plane.append([k + 0 for k in range(n)])
        c.append(plane)
    for i in range(n):
        c[i][i][0] += 10
        c[i][0].append(i)
    t = 0
    for p in c:
        for r in p:
            for v in r:
                t = t * 3 + v
    return t


@program((torch.tensor([3, 1, 2]), x(3, 2)), (torch.tensor([5]), x(1, 2)), (torch.tensor([1, 1]), x(2, 2)))
def tensors_in_lists(a: Tensor, h: Tensor) -> list[list[Tensor]]:
    out: list[list[Tensor]] = []
    for i in range(a.size(0)):
        row = [h[i]]
        for j in range(int(a[i])):
            row.append(h[i] * j)
        out.append(row)
    return out


@program((torch.tensor([3, 1, 2]),), (torch.tensor([5]),), (torch.tensor([1, 1]),))
def list_of_named(a: Tensor) -> list[tuple[int, list[int]]]:
    out: list[tuple[int, list[int]]] = []
    for i in range(a.size(0)):
        out.append((i, [int(a[i])]))
    for i in range(len(out)):
        k, items = out[i]
        items.append(k * 10)
    return out


@program((torch.tensor([3, 1, 2]),), (torch.tensor([5]),), (torch.tensor([1, 1]),))
def words(a: Tensor) -> list[list[str]]:
    out: list[list[str]] = []
    for i in range(a.size(0)):
        out.append([f"w{k}" for k in range(int(a[i]))])
    return out


@program((torch.tensor([3, 1, 2]), 1), (torch.tensor([5]), 0), (torch.tensor([1, 1]), 0))
def clears(a: Tensor, k: int) -> tuple[list[list[int]], list[list[int]]]:
    rows: list[list[int]] = []
    for i in range(a.size(0)):
        rows.append([i, i + 1])
    rows[k].clear()
    rows[k].extend([7, 8, 9])
    rows[k].insert(0, 5)
    rows[k].reverse()
    last = rows.pop()
    rows.insert(0, last)
    copy = [r.copy() for r in rows]
    return rows, copy


# aliasing that must be right or refused


@program((torch.tensor([3, 1, 2]),), (torch.tensor([5]),), (torch.tensor([1, 1]),))
def aliases_read(a: Tensor) -> tuple[int, int]:
    rows: list[list[int]] = []
    for i in range(a.size(0)):
        rows.append([i])
    first = rows[0]
    for i in range(a.size(0)):
        rows[0].append(int(a[i]))
    return len(first), sum(rows[0])


@program((torch.tensor([3, 1, 2]),), (torch.tensor([5]),), (torch.tensor([1, 1]),))
def aliases_write(a: Tensor) -> list[list[int]]:
    rows: list[list[int]] = []
    for i in range(a.size(0)):
        rows.append([i])
    first = rows[0]
    first.append(4)
    for i in range(a.size(0)):
        first.append(int(a[i]))
    return rows


@torch.jit.script
class Box:
    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.cur: list[int] = []


@program(
    (torch.tensor([3, 1, 2, 0]),),
    (torch.tensor([1]),),
    (torch.tensor([0, 5, 5, 1, 1]),),
    (torch.tensor([2, 0, 2]),),
)
def gives_lists_away(a: Tensor) -> list[list[int]]:
    b = Box()
    for i in range(a.size(0)):
        b.cur.append(i)
        if int(a[i]) > 1:
            b.rows.append(b.cur)
            b.cur = torch.jit.annotate(list[int], [])
    return b.rows


@program(
    (torch.tensor([3, 1, 2, 0]),),
    (torch.tensor([1]),),
    (torch.tensor([0, 5, 5, 1, 1]),),
    (torch.tensor([2, 0, 2]),),
)
def sets_defaults(a: Tensor) -> tuple[list[int], list[list[int]]]:
    d: dict[int, list[int]] = {}
    for i in range(a.size(0)):
        d.setdefault(int(a[i]), torch.jit.annotate(list[int], [])).append(i)
    return list(d.keys()), list(d.values())


@program(
    (torch.tensor([3, 1, 2, 0]),),
    (torch.tensor([1]),),
    (torch.tensor([0, 5, 5, 1, 1]),),
    (torch.tensor([2, 0, 2]),),
)
def lists_of_a_dict(a: Tensor) -> tuple[int, list[int]]:
    d: dict[int, list[int]] = {}
    for i in range(a.size(0)):
        row = [i]
        d[int(a[i])] = row
        d[int(a[i])].append(7)
    got = d.get(int(a[0]), [1])
    return len(got), got


@program(
    (torch.tensor([3, 1, 2, 0]),),
    (torch.tensor([1]),),
    (torch.tensor([0, 5, 5, 1, 1]),),
    (torch.tensor([2, 0, 2]),),
)
def pops_a_list_and_goes_on(a: Tensor) -> tuple[list[int], list[int]]:
    d: dict[int, list[int]] = {}
    for i in range(a.size(0)):
        d[int(a[i])] = [i]
    x = d.pop(int(a[0]))
    x.append(5)
    return x, list(d.keys())


@program(
    (torch.tensor([3, 1, 2, 0]),),
    (torch.tensor([1]),),
    (torch.tensor([0, 5, 5, 1, 1]),),
    (torch.tensor([2, 0, 2]),),
)
def lists_in_tuples_in_lists(a: Tensor) -> list[tuple[int, list[int]]]:
    q: list[tuple[int, list[int]]] = []
    for i in range(a.size(0)):
        q.append((i, [i]))
    for j in range(len(q)):
        q[j][1].append(3)
    best = q[0]
    for t in q:
        if len(t[1]) >= len(best[1]):
            best = t
    q.append(best)
    return q


@program(
    (torch.tensor([3, 1, 2, 0]),),
    (torch.tensor([1]),),
    (torch.tensor([0, 5, 5, 1, 1]),),
    (torch.tensor([2, 0, 2]),),
)
def changes_while_it_reads(a: Tensor) -> list[list[int]]:
    rows: list[list[int]] = []
    for i in range(a.size(0)):
        rows.append([i])
    for row in rows:
        row.append(5)
        rows[0].append(1)
    return rows


@program((torch.tensor([3, 1, 2]),), (torch.tensor([5]),), (torch.tensor([0, 7]),))
def a_list_that_one_way_changes(a: Tensor) -> tuple[list[int], list[int]]:
    items = [0]
    kept: list[int] = []
    for i in range(a.size(0)):
        if int(a[i]) > 2:
            items = [i]
        else:
            items.append(i)
        kept.append(len(items))
    return items, kept


@program((torch.tensor([3, 1]),), (torch.tensor([1]),), (torch.tensor([2, 9, 9]),))
def a_name_that_is_no_longer_read(a: Tensor) -> tuple[list[int], int]:
    x = [1, 2]
    n = len(x)
    y = x if int(a[0]) > 2 else [7]
    y.append(5)
    x = y.copy()
    x.append(6)
    return x, n + len(y)


@program((torch.tensor([3, 1]),), (torch.tensor([1]),), (torch.tensor([2, 9, 9]),))
def one_list_either_way(a: Tensor) -> tuple[list[int], list[int]]:
    x = [1, 2]
    if int(a[0]) > 2:
        y = x
        x.append(3)
    else:
        y = x
    y.append(5)
    return x, y


@program((x(3),), (x(1),), (x(5),))
def changed_by_way_of_a_copy(a: Tensor) -> list[list[int]]:
    rows: list[list[int]] = []
    for i in range(a.size(0)):
        rows.append([i])
    again = rows.copy()
    again[0].append(9)
    return rows
