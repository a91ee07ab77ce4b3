#include "base/timeline.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAX_ROWS = 1 << 18, MAX_DIMS = SVM_LIMIT_DIMS * MAX_ROWS };

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static size_t rows_bytes(void) { return sizeof(timeline) + MAX_ROWS * sizeof(timeline_row); }

static size_t mapped_bytes(void) { return rows_bytes() + MAX_DIMS * sizeof(int64_t); }

timeline *timeline_make(void) {
  timeline *t =
      mmap(NULL, mapped_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (t == MAP_FAILED) return NULL;
  t->capacity = MAX_ROWS;
  t->dims = (int64_t *)((char *)t + rows_bytes());
  t->begin_ns = now_ns();
  return t;
}

void timeline_free(void *t) {
  if (t) munmap(t, mapped_bytes());
}

static _Thread_local int32_t own_number; /* the system's id of this thread, 0 until it is requested */

void timeline_forget_thread(void) { own_number = 0; }

static int32_t thread_number(void) {
  if (!own_number) own_number = (int32_t)syscall(SYS_gettid);
  return own_number;
}

timeline_row *timeline_begin(timeline *t, int32_t kind, int32_t index) {
  int64_t n = atomic_fetch_add_explicit(&t->n, 1, memory_order_relaxed);
  if (n >= t->capacity) return NULL;
  timeline_row *row = &t->rows[n];
  row->kind = kind;
  row->index = index;
  row->thread = thread_number();
  row->begin_ns = now_ns();
  return row;
}

void timeline_set_dims(timeline *t, timeline_row *row, const int64_t *dims, int32_t n_dims) {
  int32_t n = n_dims < SVM_LIMIT_DIMS ? n_dims : SVM_LIMIT_DIMS;
  int64_t begin = atomic_fetch_add_explicit(&t->n_dims, n, memory_order_relaxed);
  memcpy(t->dims + begin, dims, (size_t)n * sizeof *dims);
  row->dims = t->dims + begin;
  row->n_dims = n;
}

void timeline_end(timeline_row *row) {
  if (!row) return;
  row->end_ns = now_ns();
  atomic_store_explicit(&row->is_complete, 1, memory_order_release);
}
