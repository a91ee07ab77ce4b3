/* A loaded program: immutable tables, and beside them the parts that calls change (call sites, plans,
 * contexts). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/latencies.h"
#include "base/lru.h"
#include "program/code_index.h"
#include "program/image.h"
#include "values/value.h"
#include "svm.h"

struct entry;
struct plan;
struct context;
struct retired;
struct timeline;

enum { N_MET = 64 };
enum { WRITTEN = 1, IN_ROWS = 2 }; /* `memory` of an input: bits */

/* The required inputs of an entry point, and its outputs; its function takes the inputs, then all symbols. */
typedef struct contract {
  int32_t function, n_inputs, n_outputs;
  int32_t n_key;         /* values of a plan's key: the function, symbols, then inputs (see is_in_key) */
  int32_t is_planned;    /* takes no str or list; and is static-flow, or writes to no input */
  int32_t is_static;     /* static-flow */
  int32_t plans_at_once; /* a plan pays at a key's first call: the values of inputs make no tensors */
  int32_t writes;        /* to some input */
  const svm_input_info *inputs;
  const svm_output_info *outputs;
  const uint8_t *memory;            /* per input */
  _Atomic int32_t is_never_planned; /* the trace was too long, or flow depended on a kernel's result */
  _Atomic uint64_t met[N_MET];      /* hashes of keys that came once, where that is not enough for a plan */
} contract;

/* Whether a plan's key holds the value of an input: of bools, ints and floats; and where flow is not static,
 * of tensors of one element that have no axes, whose items it may depend on. */
static inline int is_in_key(const contract *k, int32_t input) {
  const svm_input_info *row = &k->inputs[input];
  return row->kind != SVM_TAG_TENSOR || (!k->is_static && row->rank == 0);
}

typedef struct function {
  svm_function_info info;
  contract *contract; /* NULL: the host calls it without checks, if at all */
  const uint32_t *code;
  uint32_t n_words;
  const svm_file_line *lines;
  uint32_t n_lines;
  _Atomic int32_t own_strategy; /* of calls by the host: 1 + SVM_STRATEGY_..., 0: the program's */
} function;

/* A hash table of entries by dims: open addressing, never changed but by filling empty slots. */
typedef struct entry_table {
  uint64_t mask;
  _Atomic(struct entry *) slots[];
} entry_table;

enum { MAX_POLYMORPHIC = 4 };

/* The sizes that each dim has had among a site's entries: a set of (dim, size), open addressing. */
typedef struct size_set {
  uint64_t mask, n; /* slots: mask + 1, none while `slots` is NULL */
  struct dim_size {
    int64_t size;
    int64_t dim; /* from 1; 0: a free slot */
  } *slots;
} size_set;

/* Inline cache of one kernel. Readers take no lock; writers hold the program's. */
typedef struct call_site {
  _Atomic int32_t n_entries;
  _Atomic(struct entry *) few[MAX_POLYMORPHIC];
  _Atomic(entry_table *) many; /* once there are more than MAX_POLYMORPHIC */
  _Atomic int64_t hits; /* launches that found their entry; plans' are credited now and then (plans_credit) */
  /* Under the program's lock: */
  int64_t misses;               /* launches that made an entry */
  int64_t outside;              /* those that no exact code and no bucket of the kernel's is for */
  int64_t by_dim[SVM_MAX_DIMS]; /* those for which a dim had a new size, by dim; one may count for several */
  int64_t by_combination;       /* those for which no dim had */
  size_set seen;
} call_site;

typedef struct kernel {
  svm_kernel_info info;
  code_signature signature;
  buffer_type *buffers;
  code_object *objects; /* those of the artifact that this CPU runs */
  int32_t n_objects;
  code_index exact, buckets; /* of `objects` */
  _Atomic(const code_object *) generic;
  struct installed *installed_generic; /* its owner, when it came later than the artifact */
  struct installed *installed_buckets; /* those that came later, in the order of coming */
  int32_t has_buckets;
  svm_price price; /* under the program's lock */
  call_site site;
} kernel;

/* A host function that the program calls. */
typedef struct extern_slot {
  const char *name;
  struct {
    int32_t function;
    int64_t pc;
  } first_call;
  int32_t kind;        /* SVM_EXTERN_... */
  svm_extern function; /* of a packed one, NULL until it is registered */
  svm_dps writer;      /* of one that writes into given tensors */
  void *context;
} extern_slot;

static inline int extern_is_registered(const extern_slot *slot) { return slot->function || slot->writer; }

/* Place of a host function's calls of one kind, by its name's string. */
static inline int64_t extern_key(uint32_t name, int32_t kind) { return 2 * (int64_t)name + kind; }

/* The check of WEIGHTS: see weights.c. */
typedef struct weights_check {
  _Atomic int32_t state;
  _Atomic int32_t is_stopped;
  _Atomic uint64_t next, n_done; /* chunks taken by some thread, and finished */
  pthread_t thread;
  int32_t has_thread;
  svm_error damage; /* set before `state` says so */
} weights_check;

enum { PLAN_BUCKETS = 1024 };

enum { COUNT_SIZES = 1, COUNT_TIMES = 2 }; /* svm_record, svm_time_calls */

/* The host's view: the symbols, inputs and outputs of all entry points, in order. */
typedef struct interface {
  int32_t n_symbols, n_inputs, n_outputs, n_contracts;
  int32_t n_key; /* of the contract that has most */
  svm_symbol_info *symbols;
  svm_input_info *inputs;
  int32_t *input_functions;
  uint8_t *memory;
  svm_axis_info *axes, *output_axes;
  svm_output_info *outputs;
  contract *contracts; /* main's first */
} interface;

/* The artifact's code for this CPU; kernels point into it. */
typedef struct native_code {
  buffer_type *buffers;
  code_object *objects;
  code_span *spans; /* of the kernels' indices */
  code_map code_map;
} native_code;

/* Settings of the host between calls. */
typedef struct switches {
  _Atomic int32_t strategy;
  _Atomic int32_t max_calls, max_nesting; /* see svm_limit_depth */
  _Atomic int32_t bands;                  /* see svm_use_bands */
} switches;

/* Counted by calls without the lock. */
typedef struct counters {
  _Atomic int64_t n_calls, n_replays, n_traces, n_interpreted, n_settles, n_extern_calls, n_band_runs;
} counters;

/* Requests for exact code. */
typedef struct compile_queue {
  _Atomic int32_t is_attached; /* a compiler answers requests */
  int32_t is_nudged;           /* under the lock: a compiler that waits is to look up */
  int32_t n_listening;         /* under the lock: threads in svm_request_wait */
  int32_t is_paused;           /* under the lock: they stay there */
  pthread_t compiler;          /* the last of them, after is_known */
  int32_t is_known;
  struct entry *head, *tail;
} compile_queue;

typedef struct plan_cache {
  _Atomic(struct plan *) buckets[PLAN_BUCKETS];
  lru used; /* all plans that can be found */
  _Atomic int64_t
      generation; /* moves when plans must look at their entries again: eviction, strategy, compiler */
} plan_cache;

/* What calls may still read: see context.c. */
typedef struct epochs {
  _Atomic uint64_t now;
  _Atomic(struct context *) contexts;
  struct retired *retired;
} epochs;

/* Who looks at calls. */
typedef struct observers {
  struct profile *profile; /* NULL until something is recorded */
  _Atomic int32_t counted; /* COUNT_...: what calls of main are counted for */
  latencies latencies;
  _Atomic(struct timeline *) timeline; /* what calls write to, NULL: nothing */
  struct timeline *latest_timeline;    /* its owner; it outlives `timeline` until the next one */
} observers;

/* How long the program lives: see lifetime.c. */
typedef struct life {
  _Atomic int32_t is_closed;
  _Atomic int64_t n_users, n_references;
  struct svm_use *uses;          /* between svm_enter and svm_leave; under the lock */
  struct kept_source *sources;   /* under the lock */
  struct svm_program *next_open; /* in fork.c's list */
} life;

struct svm_program {
  /* Set by the loader, then constant. */
  image image;
  svm_options options;
  const char **strings;
  int32_t n_strings, n_constants, n_functions, n_kernels, n_externs;
  int32_t makes_scalars; /* some function makes tensors of bools, ints or floats */
  interface io;
  value *constants;
  function *functions;
  kernel *kernels;
  native_code native;
  extern_slot *externs; /* filled by svm_register_extern before the first call */
  int32_t *extern_of_key;

  /* Changed by calls. `lock` guards writers of sites and plans, the queue, the retired list. */
  pthread_mutex_t lock;
  pthread_cond_t changed; /* the queue, or an entry's state */
  switches switches;
  counters counters;
  _Atomic int32_t n_externs_missing;
  compile_queue queue;
  plan_cache plans;
  struct {
    int64_t n;      /* of all call sites; under the lock */
    lru exact_used; /* those whose exact code can be evicted */
  } entries;
  epochs epochs;
  weights_check weights;
  observers observers;
  svm_stats stats; /* the counters that only writers change */
  life life;
};

/* --- load.c, kernels.c, verify.c: parts of the loader, called by program_load in this order --- */
int32_t load_tables(svm_program *p, svm_error *error);
int32_t load_kernels(svm_program *p, svm_error *error);
int32_t verify_program(svm_program *p, svm_error *error);

/* Fails for a number that is no strategy. */
int32_t check_strategy(int32_t strategy, svm_error *error);

/* The string of that index, NULL and an error if there is none. */
const char *load_string(const svm_program *p, uint64_t index, const char *where, svm_error *error);

/* Source line of an instruction, "" if unknown. */
const char *function_source(const svm_program *p, int32_t function, int64_t pc);
