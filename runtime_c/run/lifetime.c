/* How long a program lives.
 *
 * `n_users` counts the users of its contents: the host from opening to svm_close, every thread between
 * svm_enter and svm_leave, and the calls that svm_close finds running. The last one frees the contents.
 * `n_references` counts the holders of the pointer: the contents, and every thread between svm_retain and
 * svm_release. The last one frees the structure and its contexts.
 *
 * Calls do not count themselves, which would cost each two atomic operations. svm_close first marks the
 * program as closed, then marks and counts the contexts that calls have taken. A call first takes a context,
 * then checks whether the program is closed; at its end it returns its context and leaves if that was marked.
 * All four are sequentially consistent: either svm_close sees the context taken, or the call sees the program
 * closed. */
#include "run/lifetime.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/status.h"
#include "program/weights.h"
#include "run/compile_queue.h"
#include "run/fork.h"
#include "run/plan.h"
#include "run/profile.h"

struct svm_use {
  struct svm_use *next;
  svm_program *program;
  pthread_t owner;
};

/* A source line that an error names: it stays when the contents go. */
typedef struct kept_source {
  struct kept_source *next;
  char text[];
} kept_source;

/* The structure -------------------------------------------------------------------------------- */

svm_program *svm_retain(svm_program *p) {
  if (p) atomic_fetch_add(&p->life.n_references, 1);
  return p;
}

void svm_release(svm_program *p) {
  if (!p || atomic_fetch_sub(&p->life.n_references, 1) > 1) return;
  program_delist(p);
  context_free_all(p);
  for (kept_source *s = p->life.sources, *next; s; s = next) {
    next = s->next;
    free(s);
  }
  pthread_cond_destroy(&p->changed);
  pthread_mutex_destroy(&p->lock);
  free(p);
}

const char *program_keep_source(svm_program *p, const char *text) {
  if (!text || !*text) return "";
  pthread_mutex_lock(&p->lock);
  kept_source *s = p->life.sources;
  while (s && strcmp(s->text, text)) s = s->next;
  if (!s && (s = malloc(sizeof *s + strlen(text) + 1))) {
    strcpy(s->text, text);
    s->next = p->life.sources;
    p->life.sources = s;
  }
  pthread_mutex_unlock(&p->lock);
  return s ? s->text : "";
}

/* The contents --------------------------------------------------------------------------------- */

static void free_constant(value *v) {
  if (!value_is_object(*v)) return;
  v->object->refs = 1;
  if (v->tag == SVM_TAG_TENSOR) v->tensor->memory->refs = 1;
  value_drop(NULL, v);
}

static void free_kernel(kernel *k) {
  site_free(k);
  if (k->installed_generic) installed_free(k->installed_generic);
  for (installed *x = k->installed_buckets, *next; x; x = next) {
    next = x->next;
    installed_free(x);
  }
}

static void free_contents(svm_program *p) {
  weights_end(p);
  plan_free_all(p);
  lru_free(&p->entries.exact_used);
  profile_free(p->observers.profile);
  timeline_free(p->observers.latest_timeline);
  reclaim(p, 1);
  for (int32_t i = 0; i < p->n_kernels; i++) free_kernel(&p->kernels[i]);
  contexts_empty(p);
  for (int32_t i = 0; i < p->n_constants; i++) free_constant(&p->constants[i]);
  code_map_free(&p->native.code_map);
  void *tables[] = {p->strings,           p->io.symbols,     p->io.inputs,      p->io.axes,
                    p->io.outputs,        p->io.output_axes, p->constants,      p->functions,
                    p->kernels,           p->native.buffers, p->native.objects, p->native.spans,
                    p->externs,           p->extern_of_key,  p->io.contracts,   p->io.memory,
                    p->io.input_functions};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) free(tables[i]);
  image_close(&p->image);
}

void program_leave(svm_program *p) {
  if (atomic_fetch_sub(&p->life.n_users, 1) > 1) return;
  free_contents(p);
  svm_release(p);
}

/* Users ---------------------------------------------------------------------------------------- */

int32_t program_fail_closed(svm_error *error) {
  return status_fail(error, SVM_ERROR_ARGUMENT, "the program is closed; load the artifact again");
}

svm_use *svm_enter(svm_program *p, svm_error *error) {
  if (status_need(p, "svm_enter: program", error)) return NULL;
  svm_use *use = malloc(sizeof *use);
  if (!use) {
    status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for a use of the program");
    return NULL;
  }
  pthread_mutex_lock(&p->lock);
  int is_open = !atomic_load(&p->life.is_closed);
  if (is_open) {
    *use = (svm_use){p->life.uses, p, pthread_self()};
    p->life.uses = use;
    atomic_fetch_add(&p->life.n_users, 1);
  }
  pthread_mutex_unlock(&p->lock);
  if (is_open) return use;
  free(use);
  program_fail_closed(error);
  return NULL;
}

void svm_leave(svm_use *use) {
  if (!use) return;
  svm_program *p = use->program;
  pthread_mutex_lock(&p->lock);
  svm_use **link = &p->life.uses;
  while (*link != use) link = &(*link)->next;
  *link = use->next;
  pthread_mutex_unlock(&p->lock);
  free(use);
  program_leave(p);
}

/* Calls ---------------------------------------------------------------------------------------- */

enum {
  IDLE_WINDOWS = 16, /* without a call in a context, after which its arena goes */
  LONGEST_WINDOW = 1 << 20
};

/* Whether the context was free, and is taken now. */
static int take(context *c) {
  int32_t expected = CONTEXT_FREE;
  return !atomic_load_explicit(&c->state, memory_order_relaxed) &&
         atomic_compare_exchange_strong(&c->state, &expected, CONTEXT_TAKEN);
}

static void give_back(svm_program *p, context *c) {
  if (atomic_exchange(&c->state, CONTEXT_FREE) == CONTEXT_MARKED) program_leave(p);
}

context *context_enter(svm_program *p, svm_error *error) {
  context *c = atomic_load(&p->epochs.contexts);
  for (; c; c = c->next) {
    if (take(c)) break;
  }
  if (!c) {
    if (!(c = context_make(p, error))) return NULL;
    c->next = atomic_load(&p->epochs.contexts);
    while (!atomic_compare_exchange_weak(&p->epochs.contexts, &c->next, c)) continue;
  }
  c->owner = pthread_self();
  atomic_store(&c->epoch, atomic_load(&p->epochs.now));
  if (!atomic_load(&p->life.is_closed)) return c;
  context_leave(p, c);
  program_fail_closed(error);
  return NULL;
}

void context_leave(svm_program *p, context *c) {
  atomic_store_explicit(&c->epoch, 0, memory_order_release);
  give_back(p, c);
}

/* Count the calls that run as users of the program that is closed. */
static void mark_calls(svm_program *p) {
  for (context *c = atomic_load(&p->epochs.contexts); c; c = c->next) {
    int32_t expected = CONTEXT_TAKEN;
    atomic_fetch_add(&p->life.n_users, 1); /* before the call may leave */
    if (!atomic_compare_exchange_strong(&c->state, &expected, CONTEXT_MARKED))
      atomic_fetch_sub(&p->life.n_users, 1);
  }
}

void contexts_trim(svm_program *p, context *own) {
  if (own->arena.has_regrown && own->window < LONGEST_WINDOW) {
    own->arena.has_regrown = 0;
    own->window *= 2;
    return;
  }
  arena_trim(&own->arena, own->arena.most);
  own->n_counted = 0;
  for (context *c = atomic_load(&p->epochs.contexts); c; c = c->next) {
    if (c == own || !arena_is_large(&c->arena) || !take(c)) continue;
    if (own->last_call - c->last_call > IDLE_WINDOWS * c->window) {
      arena_trim(&c->arena, 0);
      free(c->rt.scratch);
      c->rt.scratch = NULL;
      c->rt.scratch_bytes = 0;
    }
    give_back(p, c);
  }
}

/* Opening, closing, forking ---------------------------------------------------------------------- */

/* Calls of threads that are gone: their memory is lost, not used again. */
static void forget_calls(svm_program *p) {
  for (context *c = atomic_load(&p->epochs.contexts); c; c = c->next) {
    int32_t state = atomic_load(&c->state);
    if (!state || pthread_equal(c->owner, pthread_self())) continue;
    if (state == CONTEXT_MARKED) atomic_fetch_sub(&p->life.n_users, 1);
    atomic_store(&c->state, CONTEXT_LOST); /* not used again: its call was in the middle of something */
    atomic_store(&c->epoch, 0);
  }
}

static void forget_uses(svm_program *p) {
  for (svm_use **link = &p->life.uses; *link;) {
    svm_use *use = *link;
    if (pthread_equal(use->owner, pthread_self())) {
      link = &use->next;
      continue;
    }
    *link = use->next;
    free(use);
    atomic_fetch_sub(&p->life.n_users, 1);
  }
}

static void init_lock(svm_program *p) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&p->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  pthread_mutex_init(&p->lock, NULL);
}

/* After a fork: threads that are gone use nothing, and compile nothing. */
static void restart_in_child(svm_program *p) {
  init_lock(p);
  forget_calls(p);
  forget_uses(p);
  if (!atomic_load(&p->life.n_users)) return;
  queue_restore(p);
  weights_restart(p);
}

svm_program *program_new(svm_error *error) {
  svm_program *p = calloc(1, sizeof *p);
  if (!p) {
    status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for a program");
    return NULL;
  }
  atomic_init(&p->life.n_users, 1);
  atomic_init(&p->life.n_references, 1);
  init_lock(p);
  program_enlist(p, restart_in_child);
  return p;
}

void svm_close(svm_program *p) {
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  int was_closed = atomic_exchange(&p->life.is_closed, 1);
  pthread_mutex_unlock(&p->lock);
  if (was_closed) return;
  svm_attach_compiler(p, 0);
  mark_calls(p);
  program_leave(p);
}
