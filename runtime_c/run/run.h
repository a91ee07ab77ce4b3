/* What a running call works with: contexts, entries of call sites, plans. */
#ifndef SVM_RUN_H
#define SVM_RUN_H

#include "base/pointer_map.h"
#include "base/watch.h"
#include "program/program.h"

/* Entries of call sites ------------------------------------------------------------------------ */

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

/* A kernel at given dims. `code` is what a launch loads: one store swaps the tier. NULL: nothing to run yet.
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
  /* Under the program's lock: */
  int64_t executions, counted_at;
  int64_t work;                            /* flops or bytes of a launch, 0 while there is no generic code */
  int64_t again_after;                     /* executions before it asks again, see svm_decline_request */
  int32_t n_plans, n_refusals, is_dropped; /* refusals: evictions */
  int32_t is_ranked;                       /* in exact_used */
  int32_t n_waiting;                       /* calls that wait for exact code */
  installed *exact;
  char *failure;
  struct entry *next_queued;
  int64_t *n_elements; /* of each buffer, behind dims; set when made, then constant */
  int64_t dims[];
} entry;

/* Find the entry of these dims, or make it after checking the launch's sizes. Lock-free when it is there. */
int32_t site_find(svm_program *p, int32_t kernel, const int64_t *dims, entry **out, svm_error *error);

/* Called with the lock held (site_lookup also during a call: between context_enter and context_leave). */
int32_t site_find_locked(svm_program *p, int32_t kernel, const int64_t *dims, entry **out, svm_error *error);
entry *site_lookup(const kernel *k, const int64_t *dims);
void site_free(kernel *k);
void entry_free(entry *e);
void installed_free(void *object);

/* Fill an instance; fails when the object's numbers overflow or its bounds are broken by these dims. */
int32_t instance_make(const kernel *k, const code_object *object, const int64_t *dims, instance *out,
                      svm_error *error);

/* What a launch under this strategy runs. */
static inline const instance *entry_code(const entry *e, int32_t strategy) {
  const instance *generic = strategy == SVM_STRATEGY_GENERIC ? atomic_load(&e->slowest) : NULL;
  return generic ? generic : atomic_load(&e->code);
}

/* The best code that stays: of a bucket, else generic, else NULL. Called with the lock held. */
static inline const instance *entry_fallback(const entry *e) {
  return e->bucket.run ? &e->bucket : e->generic.run ? &e->generic : NULL;
}

/* Give generic code, or a bucket's, to an entry that it is for and that has none of that kind yet. Called
 * with the lock held. */
int32_t entry_give(entry *e, const kernel *k, const code_object *object, svm_error *error);

/* Count `n` executions of the entry, once per `now`, under the strategy; queue it when it is worth exact
 * code. Called with the lock. Returns after how many more to count again, NOTHING_LEFT: never. */
static const int64_t NOTHING_LEFT = INT64_MAX;
int64_t entry_count(svm_program *p, entry *e, int32_t strategy, int64_t now, int64_t n);

/* Make sure that the entry has the code that the strategy wants before it runs: waits for the compiler if
 * need be, until the watch stops the call. Called without the lock. */
int32_t entry_wait(svm_program *p, entry *e, int wants_exact, watch *w, svm_error *error);

/* Decline the entry where its kernel's price says so. Called with the lock. */
void entry_price(svm_program *p, entry *e);

/* Count the executions of all plans towards exact code. Called with the lock. */
void plans_count(svm_program *p);

/* Both for one launch of `c` outside of a plan. Called without the lock. */
struct call;
int32_t entry_prepare(const struct call *c, entry *e);

/* Drop all waiting requests. Called with the lock held. */
void queue_clear(svm_program *p);

/* Queue again what a compiler that is gone was at. Called with the lock held, or by nobody else's thread. */
void queue_restore(svm_program *p);

/* Make the program's lock and condition; keep it in fork.c's list from opening to closing. */
void program_init_lock(svm_program *p);
void program_enlist(svm_program *p);
void program_delist(svm_program *p);

/* Mark entries with the latest call of a plan that uses them; credit them with the plans' launches. Called
 * with the lock held. */
void plans_stamp_entries(svm_program *p);
void plans_credit(svm_program *p);

/* Contexts and reclamation --------------------------------------------------------------------- */

enum { CACHE_LINE = 64 };

typedef struct frame {
  const function *function;
  const uint32_t *pc; /* where to go on; at a call: of the call instruction */
  int64_t base;       /* first register */
} frame;

/* What one call at a time uses. Contexts are never freed before the program is. */
typedef struct context {
  _Alignas(CACHE_LINE) _Atomic uint64_t epoch; /* the program's when its call began, 0: no call */
  _Atomic int32_t is_taken;
  pthread_t owner; /* the thread of the call */
  svm_rt rt;
  char *arena; /* in `mapping`; at a huge page if it is that large */
  size_t arena_bytes, mapping_bytes;
  void *mapping;
  _Atomic int64_t arena_bytes_seen; /* for statistics */
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

/* A free context, whose epoch begins: what readers load from now on is not freed before context_leave. */
context *context_enter(svm_program *p, svm_error *error);
void context_leave(context *c);

/* After a fork: give up what calls of threads that are gone had; their memory is lost, not used again. */
void contexts_forget(svm_program *p);

void context_free_all(svm_program *p);

/* At least that much arena (64-byte aligned; contents lost), that many bases. */
int32_t context_reserve_arena(context *c, int64_t n_bytes, svm_error *error);
int32_t context_reserve_bases(context *c, int64_t n, svm_error *error);

/* Free `object` with `free_object` once no call that began before now is running. Called with the lock held,
 * after the last pointer to it was overwritten. */
void retire(svm_program *p, void *object, void (*free_object)(void *));
void reclaim(svm_program *p, int everything);

/* Calls ---------------------------------------------------------------------------------------- */

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

/* Run a function; `args` are its n_params values (borrowed). results: n_results owned values, none on an
 * error. */
int32_t interpret(call *c, int32_t function, const value *args, value *results);

/* Check a launch: dtypes, directions, element counts; and find its entry. */
int32_t launch_check(svm_program *p, int32_t kernel, const int64_t *dims, const value *registers,
                     const uint32_t *buffers, entry **out, svm_error *error);

/* Run all tiles of `code`, which is one of the entry's. */
int32_t launch_run(const entry *e, const instance *code, void *const *buffers, svm_rt *rt);

/* The error of a kernel, of the call's watch or of missing scratch memory, after launch_run returned not 0.
 */
int32_t launch_fail(const svm_program *p, const entry *e, svm_rt *rt, svm_error *error);

/* Traces and plans ----------------------------------------------------------------------------- */

/* Where a buffer of a step is: bases[base] + offset. `storage`: while it is traced, the number of new
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

/* One straight line of launches for one key. Immutable but for its counters. */
typedef struct plan {
  _Atomic(struct plan *) next; /* in its bucket */
  uint64_t hash;
  _Atomic int64_t executions, last_used;
  int64_t credited;        /* executions that its entries' hits have; under the lock */
  int64_t counted;         /* executions that its entries have counted; under the lock */
  _Atomic int64_t settled; /* the program's generation when no entry was left to be counted, -1: some are */
  _Atomic int64_t look_at, looked; /* executions at which to count again, in that generation */
  int32_t is_pinned;               /* its entries know of it; else it is used once */
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

/* Record one launch; `registers` and `buffers` as in launch_check. */
int32_t record_launch(call *c, entry *e, const value *registers, const uint32_t *buffers, int32_t n_buffers,
                      int32_t function, uint32_t pc);

/* *out: the number of a new traced storage. */
int32_t record_storage(call *c, int64_t n_bytes, int32_t *out);

/* New storage that holds one element, the first of `bytes`. */
storage *record_scalar(call *c, int64_t n_bytes, int64_t bytes);

/* An instruction looks at an element: an error where the trace does not know it, or another call of the same
 * key may find another one. */
int32_t record_look(call *c, const storage *s);

/* End the trace: calls of the function are to be interpreted. */
int32_t record_give_up(call *c);

/* Trace the call's function for the key: *out is NULL without an error when the trace was given up. */
int32_t plan_make(call *c, const value *args, const int64_t *key, plan **out);

/* The cache. plan_publish gives back the plan that counts: another thread's if that was earlier. */
plan *plan_find(const svm_program *p, const int64_t *key, int64_t n_key);
plan *plan_publish(svm_program *p, plan *made);
void plan_free(void *plan);
void plan_free_all(svm_program *p);

/* Tell the entries of a new plan that it uses them, if none was dropped meanwhile. */
void plan_pin(svm_program *p, plan *made);

/* Count the execution of a plan that still has entries to count; waits for code if the strategy wants it. */
int32_t plan_settle(const call *c, plan *made, int is_new);

/* Launch all steps; `bases` as in buffer_ref. */
int32_t plan_replay(call *c, const plan *made, void *const *bases);

/* Contract and results ------------------------------------------------------------------------- */

/* The contract of a function, NULL where the host's calls of it are not checked or there is none. */
static inline contract *contract_of(const svm_program *p, int32_t function) {
  return function >= 0 && function < p->n_functions ? p->functions[function].contract : NULL;
}

/* Whether calls of an entry point have plans, or may get them. */
static inline int contract_is_planned(const contract *k) {
  return k->is_planned && !atomic_load_explicit(&k->is_never_planned, memory_order_relaxed);
}

/* Check the inputs of an entry point, bind the symbols; those that it does not bind become 0. */
int32_t contract_bind(const svm_program *p, const contract *k, const svm_value *inputs, int32_t n_inputs,
                      int64_t *symbols, svm_error *error);

/* Whether kernels take the tensor as it is: row-major, elements aligned. One that no kernel can take counts.
 */
int tensor_is_usable(const svm_tensor *t);

/* How the tensors that a call returns get their memory. */
typedef struct output_binding {
  const svm_allocator *allocator; /* NULL: malloc */
  const svm_value *inputs;
  const int32_t *is_copied; /* per input: the call worked on a copy; NULL: on none */
  void *const *input_data;
  const plan *plan;   /* NULL: values of the interpreter */
  void **made;        /* per output of the plan: its memory */
  storage **owners;   /* the same without an allocator */
  int32_t n_leaves;   /* so far */
  pointer_map copies; /* containers that were bound: what became of them */
  call *call;
  svm_error *error;
} output_binding;

/* Get the memory of the plan's outputs: b->made, b->owners. */
int32_t output_binding_prepare(output_binding *b);

/* Describe the results to the caller; takes over nothing. On an error all outputs are none. */
int32_t output_binding_finish(output_binding *b, const value *results, int32_t n, svm_value *outputs);

/* Give back what output_binding_prepare got, after an error. */
void output_binding_undo(output_binding *b);

void output_binding_free(output_binding *b);

#endif
