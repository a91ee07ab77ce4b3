/* Contexts, and the reclamation of memory that lock-free readers may still hold.
 *
 * Epoch-based (Fraser, "Practical lock-freedom", 2004, section 5.2.3): a call stores the program's epoch in
 * its context when it begins and 0 when it ends. Unlinked memory gets the epoch's old value, the epoch
 * advances, and the memory is freed when every running call began later. Stores and loads of epochs and of
 * the pointers that are unlinked are sequentially consistent: a call either is seen by the writer or sees the
 * pointer gone. */
#include "run/context.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

typedef struct retired {
  struct retired *next;
  void *object;
  void (*free_object)(void *);
  uint64_t epoch;
} retired;

/* Contexts ------------------------------------------------------------------------------------- */

enum { FIRST_WINDOW = 64 /* calls after which an arena may shrink */ };

/* Free all that it has beside itself, its state and its place in the list. */
static void context_empty(context *c) {
  arena_free(&c->arena);
  rt_free(&c->rt);
  free(c->registers);
  free(c->frames);
  free(c->bases);
  free(c->symbols);
  free(c->key);
  c->registers = NULL, c->frames = NULL, c->bases = NULL, c->symbols = NULL, c->key = NULL;
  storage_pool_free(&c->pool);
}

static void context_free(context *c) {
  context_empty(c);
  free(c);
}

context *context_make(const svm_program *p, svm_error *error) {
  context *c = aligned_alloc(CACHE_LINE, (sizeof *c + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
  if (c) {
    memset(c, 0, sizeof *c);
    atomic_init(&c->state, CONTEXT_TAKEN);
    c->window = FIRST_WINDOW;
    arena_init(&c->arena);
    c->pool.arena = &c->arena;
    c->symbols = calloc((size_t)p->io.n_symbols + 1, sizeof *c->symbols);
    c->key = calloc((size_t)p->io.n_key + 1, sizeof *c->key);
    if (c->symbols && c->key) return c;
    context_free(c);
  }
  status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for a context for the call");
  return NULL;
}

void contexts_empty(svm_program *p) {
  for (context *c = atomic_load(&p->epochs.contexts); c; c = c->next) context_empty(c);
}

void context_free_all(svm_program *p) {
  for (context *c = atomic_load(&p->epochs.contexts), *next; c; c = next) {
    next = c->next;
    context_free(c);
  }
}

int32_t context_reserve_arena(context *c, int64_t n_bytes, svm_error *error) {
  if (!arena_reserve(&c->arena, (size_t)n_bytes)) return SVM_OK;
  return status_fail(error, SVM_ERROR_MEMORY,
                     "memory: there is none for an arena of %" PRId64 " bytes; use smaller inputs", n_bytes);
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

int32_t call_spend(call *c, int64_t n) {
  if (n <= c->fuel) return c->fuel -= n, SVM_OK;
  c->fuel = 0;
  return status_fail(c->error, SVM_ERROR_LIMIT,
                     "fuel: the call did the work of over %" PRId64
                     " instructions; raise the limit, or the program does not end",
                     c->program->options.fuel);
}

/* Reclamation ---------------------------------------------------------------------------------- */

void retire(svm_program *p, void *object, void (*free_object)(void *)) {
  retired *r = malloc(sizeof *r);
  if (!r) return; /* rather lost than freed too early */
  *r = (retired){p->epochs.retired, object, free_object, atomic_fetch_add(&p->epochs.now, 1)};
  p->epochs.retired = r;
}

static uint64_t oldest_running(const svm_program *p) {
  uint64_t oldest = UINT64_MAX;
  for (context *c = atomic_load(&p->epochs.contexts); c; c = c->next) {
    uint64_t epoch = atomic_load(&c->epoch);
    if (epoch && epoch < oldest) oldest = epoch;
  }
  return oldest;
}

void reclaim(svm_program *p, int everything) {
  uint64_t oldest = everything ? UINT64_MAX : oldest_running(p);
  for (retired **at = &p->epochs.retired; *at;) {
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
