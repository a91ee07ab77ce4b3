/* The arena of a context: planned calls lay out their tensors in it, other calls allocate their large ones
 * there and give them back. Its pages stay for the next call, so that neither pays for new ones. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { PAGE = 4096, HUGE_PAGE = 2 << 20, LARGE_BYTES = 2 * HUGE_PAGE };

/* Ask for huge pages under new memory of LARGE_BYTES and more: fewer page faults and misses in the TLB. */
void memory_advise(void *data, int64_t n_bytes);

typedef struct free_span {
  char *data;
  size_t n_bytes;
} free_span;

enum { MAX_FREE_SPANS = 256 };

/* `n_bytes` of the mapping may be used from `data` on, a huge page's begin; `capacity` bytes are reserved,
 * and no memory before and after them is accessible. */
typedef struct arena {
  char *data;
  size_t n_bytes, capacity;
  void *mapping;
  size_t mapping_bytes;
  _Atomic int64_t n_bytes_seen; /* for statistics */
  size_t most;                  /* that calls have needed since the last arena_trim */
  int32_t is_trimmed;           /* since it last grew */
  int32_t has_regrown;          /* it grew after it was trimmed */
  int32_t is_apart;             /* calls without a plan do not allocate here */
  /* While a call allocates: */
  int32_t is_open;
  int32_t n_free;
  free_span free[MAX_FREE_SPANS]; /* in order of addresses */
  size_t n_used;                  /* bytes */
} arena;

/* Nothing is mapped yet. With the environment variable SVM_TENSORS_APART each tensor of a call without a plan
 * is an allocation of its own, for tests that put fences between them. */
void arena_init(arena *a);
void arena_free(arena *a);

/* At least that many bytes, 64-byte aligned, contents lost; 0, or -1 without memory. */
int32_t arena_reserve(arena *a, size_t n_bytes);

/* Keep `n_bytes` of it, where that is worth it. */
void arena_trim(arena *a, size_t n_bytes);

/* Whether it is worth trimming; read from any thread. */
int arena_is_large(const arena *a);

/* A call begins that allocates here, and ends. */
void arena_open(arena *a);
void arena_close(arena *a);

/* `n_bytes`, a multiple of 64, in an open arena; NULL: there is no room. */
void *arena_take(arena *a, size_t n_bytes);
void arena_give_back(arena *a, void *data, size_t n_bytes);
