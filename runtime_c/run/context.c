/* Contexts, and the reclamation of what lock-free readers may still hold.
 *
 * Epoch-based (Fraser, "Practical lock-freedom", 2004, section 5.2.3): a call stores the program's epoch in
 * its context when it begins and 0 when it ends. What a writer has unlinked gets the epoch's old value, the
 * epoch moves on, and it is freed when every running call began later. Stores and loads of epochs and of the
 * pointers that are unlinked are sequentially consistent: a call either is seen by the writer or sees the
 * pointer gone. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/status.h"
#include "run/run.h"

typedef struct retired {
  struct retired *next;
  void *object;
  void (*free_object)(void *);
  uint64_t epoch;
} retired;

/* Contexts ------------------------------------------------------------------------------------- */

static void context_free(context *c) {
  if (c->mapping) munmap(c->mapping, c->mapping_bytes);
  rt_free(&c->rt);
  free(c->registers);
  free(c->frames);
  free(c->bases);
  free(c->symbols);
  free(c->key);
  storage_pool_free(&c->pool);
  free(c);
}

static context *context_make(const svm_program *p, svm_error *error) {
  context *c = aligned_alloc(CACHE_LINE, (sizeof *c + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
  if (c) {
    memset(c, 0, sizeof *c);
    atomic_init(&c->is_taken, 1);
    c->symbols = calloc((size_t)p->n_symbols + 1, sizeof *c->symbols);
    c->key = calloc((size_t)p->n_key + 1, sizeof *c->key);
    if (c->symbols && c->key) return c;
    context_free(c);
  }
  status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for a context for the call");
  return NULL;
}

context *context_enter(svm_program *p, svm_error *error) {
  context *c = atomic_load(&p->contexts);
  for (; c; c = c->next) {
    int32_t expected = 0;
    if (!atomic_load_explicit(&c->is_taken, memory_order_relaxed) &&
        atomic_compare_exchange_strong_explicit(&c->is_taken, &expected, 1, memory_order_acquire,
                                                memory_order_relaxed)) {
      break;
    }
  }
  if (!c) {
    if (!(c = context_make(p, error))) return NULL;
    c->next = atomic_load(&p->contexts);
    while (!atomic_compare_exchange_weak(&p->contexts, &c->next, c)) continue;
  }
  c->owner = pthread_self();
  atomic_store(&c->epoch, atomic_load(&p->epoch));
  return c;
}

void contexts_forget(svm_program *p) {
  for (context *c = atomic_load(&p->contexts); c; c = c->next) {
    int is_gone = atomic_load(&c->is_taken) && !pthread_equal(c->owner, pthread_self());
    if (is_gone) atomic_store(&c->epoch, 0); /* it stays taken: its call was in the middle of something */
  }
}

void context_leave(context *c) {
  atomic_store(&c->epoch, 0);
  atomic_store_explicit(&c->is_taken, 0, memory_order_release);
}

void context_free_all(svm_program *p) {
  for (context *c = atomic_load(&p->contexts), *next; c; c = next) {
    next = c->next;
    context_free(c);
  }
}

/* Arenas of a huge page and more lie on huge pages, where the system has them: fewer misses in the TLB. */
int32_t context_reserve_arena(context *c, int64_t n_bytes, svm_error *error) {
  if ((size_t)n_bytes <= c->arena_bytes) return SVM_OK;
  size_t size = c->arena_bytes + c->arena_bytes / 2; /* a growing series of shapes does not map each time */
  size = (size_t)n_bytes > size ? (size_t)n_bytes : size;
  size_t page = size >= HUGE_PAGE ? HUGE_PAGE : PAGE;
  size = (size + page - 1) / page * page;
  if (c->mapping) munmap(c->mapping, c->mapping_bytes);
  c->arena = NULL;
  c->arena_bytes = 0;
  c->mapping_bytes = size + page - PAGE;
  c->mapping = mmap(NULL, c->mapping_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (c->mapping == MAP_FAILED) {
    c->mapping = NULL;
    return status_fail(error, SVM_ERROR_MEMORY,
                       "memory: there is none for an arena of %" PRId64 " bytes; use smaller inputs",
                       n_bytes);
  }
  c->arena = (char *)(((uintptr_t)c->mapping + page - 1) / page * page);
  c->arena_bytes = size;
  memory_advise(c->arena, (int64_t)size);
  atomic_store_explicit(&c->arena_bytes_seen, (int64_t)size, memory_order_relaxed);
  return SVM_OK;
}

int32_t context_reserve_bases(context *c, int64_t n, svm_error *error) {
  if (n <= c->n_bases) return SVM_OK;
  void **bases = realloc(c->bases, (size_t)n * sizeof *bases);
  if (!bases)
    return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for the call's buffer table");
  c->bases = bases;
  c->n_bases = n;
  return SVM_OK;
}

/* Reclamation ---------------------------------------------------------------------------------- */

void retire(svm_program *p, void *object, void (*free_object)(void *)) {
  retired *r = malloc(sizeof *r);
  if (!r) return; /* rather lost than freed too early */
  *r = (retired){p->retired, object, free_object, atomic_fetch_add(&p->epoch, 1)};
  p->retired = r;
}

static uint64_t oldest_running(const svm_program *p) {
  uint64_t oldest = UINT64_MAX;
  for (context *c = atomic_load(&p->contexts); c; c = c->next) {
    uint64_t epoch = atomic_load(&c->epoch);
    if (epoch && epoch < oldest) oldest = epoch;
  }
  return oldest;
}

void reclaim(svm_program *p, int everything) {
  uint64_t oldest = everything ? UINT64_MAX : oldest_running(p);
  for (retired **at = &p->retired; *at;) {
    retired *r = *at;
    if (r->epoch < oldest) {
      *at = r->next;
      r->free_object(r->object);
      free(r);
    } else {
      at = &r->next;
    }
  }
}
