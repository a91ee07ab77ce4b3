/* Entries of call sites: a kernel at given dims, and its code of each tier. */
#pragma once

#include "program/program.h"

/* Code of one tier, ready to be launched for one entry's dims. Immutable once published. */
typedef struct instance {
  svm_kernel_code *run;
  int64_t n_tiles;
  size_t scratch;    /* bytes per thread */
  int64_t stretch;   /* tiles that may run between two looks at the call's watch */
  int32_t is_shared; /* worth sharing its tiles among threads */
  int32_t tier;
  const code_object *object;
} instance;

/* Code that was installed: its instance (of exact code), and the mapping of the code and its record. */
typedef struct installed {
  struct installed *next; /* of a kernel's buckets */
  instance instance;
  code_object object;
  code_map map;
} installed;

/* An entry's request to the compiler. Under the program's lock. */
typedef struct request {
  int64_t executions, counted_at;
  int64_t again_after; /* executions before it asks again, see svm_decline_request */
  int32_t n_refusals;  /* evictions */
  int32_t n_waiting;   /* calls that wait for exact code */
  char *failure;
  struct entry *next; /* in the queue */
} request;

/* A kernel at given dims. `code` is what a launch loads: one store swaps the tier. NULL: no code yet.
 */
typedef struct entry {
  _Atomic(const instance *) code;    /* the best: exact, else of a bucket, else generic */
  _Atomic(const instance *) slowest; /* generic; NULL while there is none */
  _Atomic int64_t hits;              /* launches that found it, as the site's */
  _Atomic int64_t last_used;         /* number of the latest call known to have found it */
  _Atomic int32_t state;
  int32_t kernel, n_dims;
  uint32_t new_dims;
  instance generic, bucket; /* run NULL: there is none */
  int64_t work;             /* flops or bytes of a launch, 0 while there is no generic code */
  /* Under the program's lock: */
  request request;
  int32_t n_plans, is_dropped;
  int32_t is_ranked; /* in exact_used */
  installed *exact;
  int64_t *n_elements; /* of each buffer, after dims; set when made, then constant */
  int64_t dims[];
} entry;

/* Fill an instance; fails when the object's numbers overflow or its bounds are broken by these dims. */
int32_t instance_make(const kernel *k, const code_object *object, const int64_t *dims, instance *out,
                      svm_error *error);

void entry_free(void *entry);
void installed_free(void *object);

/* An entry of these dims with the existing code for them; NULL and an error if its sizes overflow.
 * Called with the lock held. */
entry *entry_make(const kernel *k, int32_t index, const int64_t *dims, svm_error *error);

/* Set its state, and count those that wait for the compiler. Called with the lock held. */
void entry_set_state(svm_program *p, entry *e, int32_t state);

/* Decline the entry where its kernel's price says so. Called with the lock held. */
void entry_price(const kernel *k, entry *e);

static inline int entry_is_exact(const entry *e) {
  const instance *code = atomic_load(&e->code);
  return code && code->tier == SVM_TIER_EXACT;
}

/* The code that a launch under this strategy runs. */
static inline const instance *entry_code(const entry *e, int32_t strategy) {
  const instance *generic = strategy == SVM_STRATEGY_GENERIC ? atomic_load(&e->slowest) : NULL;
  return generic ? generic : atomic_load(&e->code);
}

/* The best code that stays: of a bucket, else generic, else NULL. Called with the lock held. */
static inline const instance *entry_fallback(const entry *e) {
  return e->bucket.run ? &e->bucket : e->generic.run ? &e->generic : NULL;
}

/* Set generic or bucket code of an entry that it serves and that has no such code yet. Called with the lock
 * held. */
int32_t entry_give(entry *e, const kernel *k, const code_object *object, svm_error *error);
