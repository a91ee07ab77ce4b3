/* Contexts: what one call at a time works with. Reclamation of what calls may still read. */
#pragma once

#include "base/watch.h"
#include "program/program.h"

enum { CACHE_LINE = 64 };

typedef struct frame {
  const function *function;
  const uint32_t *pc; /* where to go on; at a call: of the call instruction */
  int64_t base;       /* first register */
} frame;

/* Of a context: MARKED is taken by a call that svm_close found running, LOST by one of a thread that does not
 * exist in this forked child. */
enum { CONTEXT_FREE, CONTEXT_TAKEN, CONTEXT_MARKED, CONTEXT_LOST };

/* What one call at a time uses. Contexts are never freed before the program's structure is. */
typedef struct context {
  _Alignas(CACHE_LINE) _Atomic uint64_t epoch; /* the program's when its call began, 0: no call */
  _Atomic int32_t state;
  pthread_t owner; /* the thread of the call */
  svm_rt rt;
  arena arena;
  int64_t n_counted, window; /* calls: see contexts_trim */
  int64_t last_call;         /* its number */
  value *registers;
  int64_t n_registers;
  frame *frames; /* of the calls within the call */
  int64_t n_frames;
  void **bases;
  int64_t n_bases;
  int64_t *symbols; /* of the contract */
  int64_t *key;
  storage_pool pool;
  struct context *next;
} context;

/* A context that is taken, NULL and an error without memory. */
context *context_make(const svm_program *p, svm_error *error);

/* Free the contents of contexts and then, when nothing refers to the program any more, the contexts. */
void contexts_empty(svm_program *p);
void context_free_all(svm_program *p);

/* At least that much arena (64-byte aligned; contents lost), that many bases. */
int32_t context_reserve_arena(context *c, int64_t n_bytes, svm_error *error);
int32_t context_reserve_bases(context *c, int64_t n, svm_error *error);

/* Free `object` with `free_object` once no call that began before now is running. Called with the lock held,
 * after the last pointer to it was overwritten. */
void retire(svm_program *p, void *object, void (*free_object)(void *));
void reclaim(svm_program *p, int everything);

typedef struct call {
  svm_program *program;
  contract *contract; /* of the function that the host calls, NULL: it has none */
  context *context;
  watch *watch; /* NULL: nothing can stop it */
  memory_budget budget;
  int32_t max_calls; /* within each other */
  int64_t fuel;
  int64_t number;            /* of the call: what counts entries once */
  int32_t strategy;          /* the program's, or its own */
  struct recorder *recorder; /* not NULL: trace, do not launch */
  svm_error *error;
} call;

/* Take `n` from the call's fuel; SVM_OK, or the error when there is less. */
int32_t call_spend(call *c, int64_t n);
