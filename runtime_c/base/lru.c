/* A heap whose keys may lag behind: they only grow, so the least key is true once it is up to date. */
#include "base/lru.h"

#include <stdlib.h>

enum { FIRST_ROOM = 64 };

static void sift_up(lru *l, int64_t i) {
  lru_row moved = l->rows[i];
  for (int64_t parent; i && l->rows[parent = (i - 1) / 2].used > moved.used; i = parent)
    l->rows[i] = l->rows[parent];
  l->rows[i] = moved;
}

static void sift_down(lru *l) {
  lru_row moved = l->rows[0];
  int64_t i = 0;
  for (int64_t child; (child = 2 * i + 1) < l->n; i = child) {
    child += child + 1 < l->n && l->rows[child + 1].used < l->rows[child].used;
    if (l->rows[child].used >= moved.used) break;
    l->rows[i] = l->rows[child];
  }
  l->rows[i] = moved;
}

static int grow(lru *l) {
  int64_t room = l->room ? 2 * l->room : FIRST_ROOM;
  lru_row *rows = realloc(l->rows, (size_t)room * sizeof *rows);
  if (!rows) return 0;
  l->rows = rows;
  l->room = room;
  return 1;
}

int lru_put(lru *l, void *object, const _Atomic int64_t *last_used) {
  if (l->n == l->room && !grow(l)) return 0;
  l->rows[l->n] = (lru_row){atomic_load(last_used), last_used, object};
  sift_up(l, l->n++);
  return 1;
}

static lru_row take_first(lru *l) {
  for (int64_t now; (now = atomic_load(l->rows[0].last_used)) != l->rows[0].used;) {
    l->rows[0].used = now;
    sift_down(l);
  }
  lru_row first = l->rows[0];
  l->rows[0] = l->rows[--l->n];
  if (l->n) sift_down(l);
  return first;
}

void *lru_take(lru *l, const void *kept) {
  if (!l->n) return NULL;
  lru_row first = take_first(l);
  if (first.object != kept) return first.object;
  void *next = l->n ? take_first(l).object : NULL;
  l->rows[l->n] = first; /* there is room: it was in */
  sift_up(l, l->n++);
  return next;
}

void lru_free(lru *l) {
  free(l->rows);
  *l = (lru){0};
}
