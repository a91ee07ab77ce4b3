#include "base/timeline.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAX_ROWS = 1 << 18 };

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static size_t mapped_bytes(void) { return sizeof(timeline) + MAX_ROWS * sizeof(timeline_row); }

timeline *timeline_make(void) {
  timeline *t =
      mmap(NULL, mapped_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (t == MAP_FAILED) return NULL;
  t->capacity = MAX_ROWS;
  t->begin_ns = now_ns();
  return t;
}

void timeline_free(void *t) {
  if (t) munmap(t, mapped_bytes());
}

timeline_row *timeline_begin(timeline *t, int32_t kind, int32_t index) {
  int64_t n = atomic_fetch_add_explicit(&t->n, 1, memory_order_relaxed);
  if (n >= t->capacity) return NULL;
  timeline_row *row = &t->rows[n];
  row->kind = kind;
  row->index = index;
  row->thread = (int32_t)syscall(SYS_gettid);
  row->begin_ns = now_ns();
  return row;
}

void timeline_end(timeline_row *row) {
  if (!row) return;
  row->end_ns = now_ns();
  atomic_store_explicit(&row->is_complete, 1, memory_order_release);
}
