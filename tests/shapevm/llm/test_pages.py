"""The pool, by random operations against sets."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shapevm.llm.pages import PAGE, ROOT, Pool, page_key

#: Operations: take n pages for a sequence that begins with so many full pages of a letter; end the i-th one.
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2), st.integers(0, 5)),
        st.tuples(st.just("end"), st.integers(0, 9), st.just(0)),
    ),
    max_size=60,
)


def _check(pool: Pool, held: list[list[int]]) -> None:
    counts = [sum(page in each for each in held) for page in range(pool.n_pages)]
    assert pool._holders == counts
    unused = {page for page, n in enumerate(counts) if not n}
    assert set(pool._free) | set(pool._kept) == unused and pool.n_available == len(unused)
    assert {key: page for page, key in pool._keys.items()} == pool._pages
    assert set(pool._kept) <= set(pool._keys)


@settings(max_examples=150, deadline=None)
@given(OPERATIONS)
def test_pages_are_held_kept_or_free_and_shared_by_content(operations: list[tuple[str, int, int]]) -> None:
    pool = Pool(9)
    held: list[list[int]] = []
    contents: dict[int, tuple[int, int]] = {}
    for name, a, b in operations:
        if name == "end":
            if held:
                pool.give_back(held.pop(a % len(held)))
        else:
            tokens = [a] * (b * PAGE)
            pages, keys = pool.find(tokens)
            assert [contents[page] for page in pages] == [(a, i) for i in range(len(pages))]
            own = pool.take(b - len(pages))
            if own is None:
                pool.give_back(pages)
            else:
                for index, page in enumerate(own, len(pages)):
                    keys.append(page_key(keys[-1] if keys else ROOT, [a] * PAGE))
                    contents[page] = (a, index)
                    pool.keep(page, keys[-1])
                held.append([*pages, *own])
        _check(pool, held)


def test_the_least_recently_used_page_goes_first_and_the_end_of_a_sequence_before_its_beginning() -> None:
    pool = Pool(4)
    pages = {}
    for letter in (1, 2):
        taken = pool.take(2) or []
        keys = [page_key(ROOT, [letter] * PAGE)]
        keys.append(page_key(keys[0], [letter] * PAGE))
        for page, key in zip(taken, keys, strict=True):
            pool.keep(page, key)
        pages[letter] = taken
    pool.give_back(pages[2])
    pool.give_back(pages[1])
    assert pool.take(1) == [pages[2][1]]
    assert pool.find([2] * 2 * PAGE)[0] == [pages[2][0]]
    assert pool.take(3) is None
    assert pool.take(2) == [pages[1][1], pages[1][0]]


def test_forgotten_pages_are_not_found() -> None:
    pool = Pool(2)
    (page,) = pool.take(1) or []
    pool.keep(page, page_key(ROOT, [7] * PAGE))
    pool.give_back([page])
    pool.forget()
    assert pool.find([7] * PAGE) == ([], []) and pool.n_available == 2
