/* The offset planner. */
#include "base/arena.h"

#include <stdlib.h>

static int by_size(const void *a, const void *b) {
  const arena_buffer *x = *(arena_buffer *const *)a, *y = *(arena_buffer *const *)b;
  if (x->n_bytes != y->n_bytes) return x->n_bytes > y->n_bytes ? -1 : 1;
  return x < y ? -1 : x > y; /* the order, and so the plan, is the same every time */
}

static int alive_together(const arena_buffer *a, const arena_buffer *b) {
  return a->first <= b->last && b->first <= a->last;
}

/* Place `buffer` among placed[0..n), which are in order of their offsets. Returns the place in that order. */
static int32_t place(arena_buffer *buffer, arena_buffer *const *placed, int32_t n) {
  int64_t end = 0, best_gap = INT64_MAX, best = -1;
  for (int32_t i = 0; i < n; i++) {
    if (!alive_together(placed[i], buffer)) continue;
    int64_t gap = placed[i]->offset - end;
    if (gap >= buffer->n_bytes && gap < best_gap) best_gap = gap, best = end;
    int64_t after = placed[i]->offset + placed[i]->n_bytes;
    end = after > end ? after : end;
  }
  buffer->offset = best >= 0 ? best : end;
  int32_t at = n;
  while (at > 0 && placed[at - 1]->offset > buffer->offset) at--;
  return at;
}

int64_t arena_plan(arena_buffer *buffers, int32_t n) {
  arena_buffer **order = calloc((size_t)n * 2 + 1, sizeof *order), **placed = order + n;
  int32_t n_used = 0, n_placed = 0;
  int64_t total = 0;
  if (!order) return -1;
  for (int32_t i = 0; i < n; i++) {
    arena_buffer *b = &buffers[i];
    b->offset = 0;
    if (b->first > b->last || b->n_bytes == 0) continue;
    b->n_bytes = (b->n_bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    if (__builtin_add_overflow(total, b->n_bytes, &total) || total > INT64_C(1) << 62) return free(order), -1;
    order[n_used++] = b;
  }
  qsort(order, (size_t)n_used, sizeof *order, by_size);
  total = 0;
  for (int32_t i = 0; i < n_used; i++) {
    int32_t at = place(order[i], placed, n_placed);
    for (int32_t j = n_placed; j > at; j--) placed[j] = placed[j - 1];
    placed[at] = order[i];
    n_placed++;
    int64_t end = order[i]->offset + order[i]->n_bytes;
    total = end > total ? end : total;
  }
  free(order);
  return total;
}
