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
#include <sys/mman.h>

#include "base/status.h"

typedef struct retired {
  struct retired *next;
  void *object;
  void (*free_object)(void *);
  uint64_t epoch;
} retired;

/* Contexts ------------------------------------------------------------------------------------- */

enum {
  FIRST_WINDOW = 64, /* calls after which an arena may shrink */
  LONGEST_WINDOW = 1 << 20,
  KEPT_BYTES = 1 << 20 /* arenas of so much are not worth it */
};

static void drop_arena(context *c) {
  if (c->mapping) munmap(c->mapping, c->mapping_bytes);
  c->mapping = NULL;
  c->arena = NULL;
  c->arena_bytes = 0;
  atomic_store_explicit(&c->arena_bytes_seen, 0, memory_order_relaxed);
}

/* Free all that it has beside itself, its state and its place in the list. */
static void context_empty(context *c) {
  drop_arena(c);
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

static size_t page_of(size_t n_bytes) { return n_bytes >= HUGE_PAGE ? HUGE_PAGE : PAGE; }

/* Arenas of at least a huge page are on huge pages, if the system has them, for fewer TLB misses. */
int32_t context_reserve_arena(context *c, int64_t n_bytes, svm_error *error) {
  if ((size_t)n_bytes > c->arena_most) c->arena_most = (size_t)n_bytes;
  if ((size_t)n_bytes <= c->arena_bytes) return SVM_OK;
  if (c->is_trimmed && c->window < LONGEST_WINDOW) c->window *= 2;
  c->is_trimmed = 0;
  size_t size = c->arena_bytes + c->arena_bytes / 2; /* a growing series of shapes does not map each time */
  size = (size_t)n_bytes > size ? (size_t)n_bytes : size;
  size_t page = page_of(size);
  size = (size + page - 1) / page * page;
  drop_arena(c);
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

int context_is_large(const context *c) {
  return atomic_load_explicit(&c->arena_bytes_seen, memory_order_relaxed) > KEPT_BYTES;
}

void context_trim(context *c, size_t n_bytes) {
  size_t page = page_of(n_bytes), kept = (n_bytes + page - 1) / page * page;
  if (c->arena_bytes <= KEPT_BYTES || kept > c->arena_bytes / 2) return;
  c->is_trimmed = 1;
  if (!kept) {
    drop_arena(c);
    return;
  }
  char *end = (char *)c->mapping + c->mapping_bytes;
  if (munmap(c->arena + kept, (size_t)(end - (c->arena + kept)))) return; /* too many mappings: it stays */
  c->mapping_bytes = (size_t)(c->arena + kept - (char *)c->mapping);
  c->arena_bytes = kept;
  atomic_store_explicit(&c->arena_bytes_seen, (int64_t)kept, memory_order_relaxed);
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
