/* Random allocations in an arena: they do not overlap, keep their bytes, and take no new memory the second
 * time.
 *
 *   test_arena      (tests/runtime_c/test_arena.py)
 *
 * Exit 0: all is as it should be; otherwise the first line that is not is printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "random_bits.h"
#include "base/arena_memory.h"

#define EXPECT(condition)                                                                      \
  do {                                                                                         \
    if (!(condition)) fprintf(stderr, "test_arena.c:%d: %s\n", __LINE__, #condition), exit(1); \
  } while (0)

enum { MAX_HELD = 600, MIB = 1 << 20 };

typedef struct block {
  unsigned char *data, mark;
  size_t n_bytes;
} block;

static long faults(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

static void take(arena *a, block *b, size_t n_bytes, unsigned char mark) {
  *b = (block){arena_take(a, n_bytes), mark, n_bytes};
  EXPECT(b->data && (uintptr_t)b->data % 64 == 0);
  memset(b->data, mark, n_bytes);
}

static void give_back(arena *a, block *b) {
  for (size_t i = 0; i < b->n_bytes; i++) EXPECT(b->data[i] == b->mark);
  arena_give_back(a, b->data, b->n_bytes);
  b->data = NULL;
}

/* A call that holds up to `n_held` tensors of up to `n_most` times 64 bytes. */
static void run(arena *a, int n_rounds, uint64_t n_held, uint64_t n_most) {
  static block held[MAX_HELD];
  arena_open(a);
  for (int round = 0; round < n_rounds; round++) {
    block *b = &held[random_bits() % n_held];
    if (b->data) give_back(a, b);
    else take(a, b, 64 * (1 + random_bits() % n_most), (unsigned char)round);
  }
  for (uint64_t i = 0; i < n_held; i++)
    if (held[i].data) give_back(a, &held[i]);
  EXPECT(a->n_used == 0 && a->n_free == 1 && a->free[0].n_bytes == a->n_bytes);
  arena_close(a);
}

static void test_random(arena *a) {
  state = 7;
  for (int i = 0; i < 20; i++) run(a, 3000, 1 + random_bits() % 100, 1 << random_bits() % 12);
}

static void test_pages_stay(arena *a) {
  state = 1;
  run(a, 500, 40, 10000);
  long before = faults();
  size_t had = a->n_bytes;
  state = 1;
  run(a, 500, 40, 10000);
  EXPECT(a->n_bytes == had && faults() - before < 50);
}

/* More spans than are kept: the rest is lost for this call alone. */
static void test_many_spans(arena *a) {
  static block held[MAX_HELD];
  arena_open(a);
  for (int i = 0; i < MAX_HELD; i++) take(a, &held[i], 64, 1);
  for (int i = 0; i < MAX_HELD; i += 2) give_back(a, &held[i]);
  EXPECT(a->n_free == MAX_FREE_SPANS);
  for (int i = 1; i < MAX_HELD; i += 2) give_back(a, &held[i]);
  EXPECT(a->n_used == 0);
  arena_close(a);
  arena_open(a);
  EXPECT(a->n_free == 1 && a->free[0].n_bytes == a->n_bytes);
  arena_close(a);
}

/* What is held after a call is not given to another. */
static void test_held(arena *a) {
  block held, other;
  arena_open(a);
  take(a, &held, 2 * MIB, 3);
  arena_close(a);
  EXPECT(!a->data && !a->n_bytes);
  arena_open(a);
  take(a, &other, 2 * MIB, 4);
  for (size_t i = 0; i < held.n_bytes; i++) EXPECT(held.data[i] == 3);
  give_back(a, &other);
  arena_close(a);
}

/* Where addresses are limited, an arena grows between calls. */
static void test_limited(arena *a) {
  struct rlimit limit = {(rlim_t)1 << 46, RLIM_INFINITY};
  EXPECT(!setrlimit(RLIMIT_AS, &limit));
  block first, second;
  for (int i = 0; i < 2; i++) {
    arena_open(a);
    take(a, &first, 4 * MIB, 5);
    second.data = arena_take(a, 16 * MIB);
    EXPECT(!second.data == !i);
    if (i) arena_give_back(a, second.data, 16 * MIB);
    give_back(a, &first);
    arena_close(a);
  }
  limit.rlim_cur = RLIM_INFINITY;
  setrlimit(RLIMIT_AS, &limit);
}

static void test_planned(arena *a) {
  EXPECT(!arena_reserve(a, 0) && !arena_take(a, 64)); /* it is not open */
  EXPECT(!arena_reserve(a, 5 * MIB) && a->n_bytes >= 5 * MIB);
  char *data = a->data;
  memset(data, 1, 5 * MIB);
  EXPECT(!arena_reserve(a, 50 * MIB) && a->data == data && data[4 * MIB - 1] == 1);
  arena_trim(a, 100);
  EXPECT(a->n_bytes == 4096 && data[4095] == 1);
  EXPECT(!arena_reserve(a, 5 * MIB) && data[4096] == 0 && a->has_regrown);
  EXPECT(arena_reserve(a, SIZE_MAX / 2) == -1);
  EXPECT(!arena_reserve(a, MIB) && a->n_bytes >= MIB);
}

int main(void) {
  void (*tests[])(arena *) = {test_random, test_pages_stay, test_many_spans,
                              test_held,   test_limited,    test_planned};
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
    static arena a;
    arena_init(&a);
    tests[i](&a);
    arena_free(&a);
  }
  return 0;
}
