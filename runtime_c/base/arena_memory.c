/* Mapping, growing and trimming an arena; allocation in it: the best fit among spans that are kept in order
 * and joined (Knuth, "The art of computer programming", volume 1, section 2.5). */
#include "base/arena_memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(data, n_bytes) ((void)(data), (void)(n_bytes))
#define ASAN_UNPOISON_MEMORY_REGION(data, n_bytes) ((void)(data), (void)(n_bytes))
#endif

enum { RESERVED = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };
enum { KEPT_BYTES = 1 << 20 /* arenas of so much are not worth trimming */ };
static const size_t LEAST_CAPACITY = (size_t)1 << 30;

/* Mapping -------------------------------------------------------------------------------------- */

void memory_advise(void *data, int64_t n_bytes) {
  if (n_bytes < LARGE_BYTES) return;
  uintptr_t begin = ((uintptr_t)data + PAGE - 1) / PAGE * PAGE;
  uintptr_t end = ((uintptr_t)data + (uintptr_t)n_bytes) / PAGE * PAGE;
  madvise((void *)begin, end - begin, MADV_HUGEPAGE); /* it may refuse: then small pages it is */
}

static size_t round_up(size_t n_bytes) {
  size_t page = n_bytes >= HUGE_PAGE ? HUGE_PAGE : PAGE;
  return (n_bytes + page - 1) / page * page;
}

/* How much of an arena is on huge pages: the last one only if half of it is asked for, for it is whole in
 * memory once a byte of it is written. */
static size_t huge_part(size_t n_bytes) { return (n_bytes + HUGE_PAGE / 2) / HUGE_PAGE * HUGE_PAGE; }

static void set_size(arena *a, size_t n_bytes) {
  a->n_bytes = n_bytes;
  atomic_store_explicit(&a->n_bytes_seen, (int64_t)n_bytes, memory_order_relaxed);
}

static void unmap(arena *a) {
  ASAN_UNPOISON_MEMORY_REGION(a->data, a->n_bytes);
  if (a->mapping) munmap(a->mapping, a->mapping_bytes);
  a->mapping = NULL;
  a->data = NULL;
  a->capacity = 0;
  set_size(a, 0);
}

/* Addresses, which cost nothing, for an arena that grows in place; fewer where they are limited. */
static size_t choose_capacity(size_t n_bytes) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur != RLIM_INFINITY) return round_up(n_bytes + n_bytes / 2);
  return n_bytes > LEAST_CAPACITY / 8 ? round_up(8 * n_bytes) : LEAST_CAPACITY;
}

static int32_t map_addresses(arena *a, size_t capacity) {
  size_t n_bytes = capacity + HUGE_PAGE + PAGE; /* a page before and one after it at least */
  void *mapping = mmap(NULL, n_bytes, PROT_NONE, RESERVED, -1, 0);
  if (mapping == MAP_FAILED) return -1;
  a->mapping = mapping;
  a->mapping_bytes = n_bytes;
  a->data = (char *)(((uintptr_t)mapping + HUGE_PAGE) / HUGE_PAGE * HUGE_PAGE);
  a->capacity = capacity;
  return 0;
}

/* Make `n_bytes` of the capacity accessible. */
static int32_t grow(arena *a, size_t n_bytes) {
  size_t huge = huge_part(n_bytes);
  size_t spare = n_bytes + n_bytes / 8; /* a growing series of shapes does not grow it each time */
  n_bytes = round_up(spare) <= a->capacity ? round_up(spare) : a->capacity;
  if (mprotect(a->data + a->n_bytes, n_bytes - a->n_bytes, PROT_READ | PROT_WRITE)) return -1;
  a->has_regrown |= a->is_trimmed;
  a->is_trimmed = 0;
  if (n_bytes >= LARGE_BYTES) {
    size_t last = a->n_bytes > HUGE_PAGE ? a->n_bytes - HUGE_PAGE : 0;
    memory_advise(a->data, (int64_t)huge);
    if (!a->n_used) madvise(a->data + last, a->n_bytes - last, MADV_DONTNEED); /* small pages become huge */
  }
  set_size(a, n_bytes);
  return 0;
}

int32_t arena_reserve(arena *a, size_t n_bytes) {
  if (n_bytes > a->most) a->most = n_bytes;
  if (n_bytes <= a->n_bytes) return 0;
  if (n_bytes > SIZE_MAX / 16) return -1;
  if (n_bytes > a->capacity) {
    unmap(a);
    if (map_addresses(a, choose_capacity(n_bytes)) && map_addresses(a, round_up(n_bytes))) return -1;
  }
  return grow(a, n_bytes);
}

void arena_init(arena *a) {
  memset(a, 0, sizeof *a);
  a->is_apart = getenv("SVM_TENSORS_APART") != NULL;
}

void arena_free(arena *a) { unmap(a); }

int arena_is_large(const arena *a) {
  return atomic_load_explicit(&a->n_bytes_seen, memory_order_relaxed) > KEPT_BYTES;
}

void arena_trim(arena *a, size_t n_bytes) {
  size_t kept = round_up(n_bytes);
  a->most = 0;
  if (a->n_bytes <= KEPT_BYTES || kept > a->n_bytes / 2) return;
  a->is_trimmed = 1;
  if (!kept) {
    unmap(a);
    return;
  }
  void *gone = mmap(a->data + kept, a->n_bytes - kept, PROT_NONE, RESERVED | MAP_FIXED, -1, 0);
  if (gone != MAP_FAILED) set_size(a, kept); /* else there are too many mappings: it stays */
}

/* Allocation ----------------------------------------------------------------------------------- */

static void insert(arena *a, int32_t at, free_span s) {
  memmove(&a->free[at + 1], &a->free[at], (size_t)(a->n_free - at) * sizeof s);
  a->free[at] = s;
  a->n_free++;
}

static void erase(arena *a, int32_t at) {
  a->n_free--;
  memmove(&a->free[at], &a->free[at + 1], (size_t)(a->n_free - at) * sizeof *a->free);
}

/* Free memory again, joined with what is free before and after it. Beyond MAX_FREE_SPANS it is lost until the
 * call ends. */
static void put(arena *a, free_span s) {
  int32_t at = a->n_free;
  while (at > 0 && a->free[at - 1].data > s.data) at--;
  free_span *before = at > 0 ? &a->free[at - 1] : NULL, *after = at < a->n_free ? &a->free[at] : NULL;
  int joins_before = before && before->data + before->n_bytes == s.data;
  int joins_after = after && s.data + s.n_bytes == after->data;
  if (joins_before && joins_after) {
    before->n_bytes += s.n_bytes + after->n_bytes;
    erase(a, at);
  } else if (joins_before) {
    before->n_bytes += s.n_bytes;
  } else if (joins_after) {
    *after = (free_span){s.data, s.n_bytes + after->n_bytes};
  } else if (a->n_free < MAX_FREE_SPANS) {
    insert(a, at, s);
  }
}

static int32_t find(const arena *a, size_t n_bytes) {
  int32_t best = -1;
  for (int32_t i = 0; i < a->n_free; i++) {
    int is_fit = a->free[i].n_bytes >= n_bytes;
    if (is_fit && (best < 0 || a->free[i].n_bytes < a->free[best].n_bytes)) best = i;
  }
  return best;
}

/* Grow in place, so that `n_bytes` are free at the end. */
static int32_t extend(arena *a, size_t n_bytes) {
  const free_span *last = a->n_free ? &a->free[a->n_free - 1] : NULL;
  int is_at_end = last && last->data + last->n_bytes == a->data + a->n_bytes;
  size_t had = a->n_bytes, needed = had - (is_at_end ? last->n_bytes : 0) + n_bytes;
  if (needed > a->most) a->most = needed;
  if (needed > a->capacity) { /* it moves: at once, or before the next call */
    if (a->n_used) return -1;
    a->n_free = 0, had = 0;
  }
  if (arena_reserve(a, needed)) return -1;
  ASAN_POISON_MEMORY_REGION(a->data + had, a->n_bytes - had);
  put(a, (free_span){a->data + had, a->n_bytes - had});
  return find(a, n_bytes);
}

void arena_open(arena *a) {
  a->is_open = !a->is_apart;
  a->n_free = 0;
  a->n_used = 0;
  if (!a->is_open) return;
  if (a->most > a->n_bytes) arena_reserve(a, a->most); /* what a call did not get; else it goes on without */
  if (!a->n_bytes) return;
  a->free[a->n_free++] = (free_span){a->data, a->n_bytes};
  ASAN_POISON_MEMORY_REGION(a->data, a->n_bytes);
}

/* What something still refers to is rather lost than used twice. */
void arena_close(arena *a) {
  a->is_open = 0;
  ASAN_UNPOISON_MEMORY_REGION(a->data, a->n_bytes);
  if (!a->n_used) return;
  a->mapping = NULL;
  unmap(a);
}

void *arena_take(arena *a, size_t n_bytes) {
  if (!a->is_open || n_bytes > SIZE_MAX / 16) return NULL;
  int32_t best = find(a, n_bytes);
  if (best < 0) best = extend(a, n_bytes);
  if (best < 0) return NULL;
  free_span *from = &a->free[best];
  char *data = from->data;
  from->data += n_bytes;
  from->n_bytes -= n_bytes;
  if (!from->n_bytes) erase(a, best);
  a->n_used += n_bytes;
  size_t end = (size_t)(data - a->data) + n_bytes;
  if (end > a->most) a->most = end;
  ASAN_UNPOISON_MEMORY_REGION(data, n_bytes);
  return data;
}

void arena_give_back(arena *a, void *data, size_t n_bytes) {
  a->n_used -= n_bytes;
  ASAN_POISON_MEMORY_REGION(data, n_bytes);
  put(a, (free_span){data, n_bytes});
}
