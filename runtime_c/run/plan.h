/* Plans: straight lines of launches for one key, and their cache. */
#pragma once

#include "run/context.h"
#include "run/entry.h"

/* The address of a buffer of a step: bases[base] + offset. `storage`: during tracing, the number of its new
 * storage, in which it is at `offset`. */
typedef struct buffer_ref {
  int64_t offset;
  int32_t base;
  int32_t storage;
} buffer_ref;

enum { BASE_ARENA = 0, BASE_ABSOLUTE = 1, BASE_INPUTS = 2 }; /* then one per input, then one per new output */

typedef struct step {
  entry *entry;
  const buffer_ref *refs;
  int32_t n_buffers;
  int32_t function;
  uint32_t pc;
} step;

/* New memory that the function returns, once per storage: the first tensor over it, and its number among all
 * tensors that are returned. */
typedef struct plan_output {
  const tensor *tensor;
  int32_t leaf;
} plan_output;

/* New memory that is read, or returned, before anything was written into it: its first bytes, then zeros. */
typedef struct fill {
  buffer_ref at;
  int64_t n_bytes, first_bytes;
} fill;

/* Steps of a plan that may run in bands. Whether they do is tried at first, and again when `tried_as`, their
 * code and the threads, is another, or `n_doubts` times at most where trials leave it open: the nanoseconds
 * of `n_tried` runs, of all steps whole and in bands in turns; INT64_MAX: it runs still. */
enum { BAND_TRIALS = 8 };
typedef struct band_chain {
  int32_t first, last;
  _Atomic int32_t n_tried, n_doubts;
  _Atomic uint64_t tried_as;
  _Atomic int64_t tried[BAND_TRIALS];
} band_chain;

/* What runs of a plan count. */
typedef struct plan_counts {
  _Atomic int64_t executions, last_used;
  int64_t credited;        /* executions that its entries' hits have; under the lock */
  int64_t counted;         /* executions that its entries have counted; under the lock */
  _Atomic int64_t settled; /* the program's generation when no entry was left to be counted, -1: some are */
  _Atomic int64_t look_at, looked; /* executions at which to count again, in that generation */
} plan_counts;

/* One straight line of launches for one key. Immutable but for its counts. */
typedef struct plan {
  _Atomic(struct plan *) next; /* in its bucket */
  uint64_t hash;
  plan_counts counts;
  int32_t is_pinned; /* its entries know of it; else it is used once */
  int32_t n_steps, n_outputs, n_fills, n_bands;
  int64_t arena_bytes, plan_bytes;
  step *steps;
  band_chain *bands; /* in order */
  buffer_ref *refs;
  plan_output *outputs;
  fill *fills;
  value *results; /* as traced; new storage has origin_index = its number in `outputs`, no data */
  int32_t n_results;
  int64_t n_key;
  int64_t key[];
} plan;

/* The cache. plan_publish returns the valid plan: another thread's if that was earlier. */
plan *plan_find(const svm_program *p, const int64_t *key, int64_t n_key);
plan *plan_publish(svm_program *p, plan *made);
void plan_free(void *plan);
void plan_free_all(svm_program *p);

/* Tell the entries of a new plan that it uses them, if none was dropped meanwhile. */
void plan_pin(svm_program *p, plan *made);

/* Count the execution of a plan that still has entries to count; waits for code if the strategy wants it. */
int32_t plan_settle(const call *c, plan *made, int is_new);

/* Count the executions of all plans towards exact code. Called with the lock. */
void plans_count(svm_program *p);

/* Mark entries with the latest call of a plan that uses them; credit them with the plans' launches. Called
 * with the lock held. */
void plans_stamp_entries(svm_program *p);
void plans_credit(svm_program *p);
