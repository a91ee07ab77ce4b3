/* A loaded program: immutable tables, and beside them the parts that calls change (call sites, plans,
 * contexts). */
#ifndef SVM_PROGRAM_H
#define SVM_PROGRAM_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/latencies.h"
#include "base/lru.h"
#include "program/code_index.h"
#include "program/image.h"
#include "program/weights.h"
#include "values/value.h"
#include "svm.h"

struct entry;
struct plan;
struct context;
struct retired;
struct timeline;

enum { N_MET = 64 };

/* What the inputs of an entry point must be, and what it gives; its function takes the inputs, then all
 * symbols. */
typedef struct contract {
  int32_t function, n_inputs, n_outputs;
  int32_t n_key;      /* values of a plan's key: the function, symbols, then inputs (see is_in_key) */
  int32_t is_planned; /* takes no str or list; and is static-flow, or writes to no input */
  int32_t is_static;  /* static-flow */
  int32_t writes;     /* to some input */
  const svm_input_info *inputs;
  const svm_output_info *outputs;
  const uint8_t *is_written;        /* per input */
  _Atomic int32_t is_never_planned; /* the trace was too long, or flow depended on what a kernel computed */
  _Atomic uint64_t met[N_MET];      /* hashes of keys that came once, where flow is not static */
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

/* Whether a program calls `name` there: "a::b" stands for "a::b.default" too, as torch writes it. */
int extern_is_named(const extern_slot *slot, const char *name);

/* Place of a host function's calls of one kind, by its name's string. */
static inline int64_t extern_key(uint32_t name, int32_t kind) { return 2 * (int64_t)name + kind; }

enum { PLAN_BUCKETS = 1024 };

enum { COUNT_SIZES = 1, COUNT_TIMES = 2 }; /* svm_record, svm_time_calls */

struct svm_program {
  /* Set by the loader, then constant. */
  image image;
  svm_options options;
  const char **strings;
  int32_t n_strings, n_symbols, n_inputs, n_outputs, n_contracts, n_constants, n_functions, n_kernels,
      n_externs;
  svm_symbol_info *symbols;
  svm_input_info *inputs; /* of all entry points, one after the other */
  int32_t *input_functions;
  uint8_t *is_written;
  svm_axis_info *axes, *output_axes;
  svm_output_info *outputs;
  contract *contracts; /* main's first */
  value *constants;
  function *functions;
  kernel *kernels;
  buffer_type *buffers;
  code_object *objects;
  code_span *spans; /* of the kernels' indices */
  code_map code_map;
  extern_slot *externs; /* filled by svm_register_extern before the first call */
  int32_t *extern_of_key;
  int32_t n_key; /* of the contract that has most */

  /* Changed by calls. `lock` guards writers of sites and plans, the queue, the retired list. */
  _Atomic int32_t strategy;
  _Atomic int32_t max_calls, max_nesting; /* see svm_limit_depth */
  _Atomic int32_t bands;                  /* see svm_use_bands */
  _Atomic int32_t n_externs_missing;
  _Atomic int32_t is_attached; /* somebody answers requests */
  _Atomic int64_t
      generation; /* moves when plans must look at their entries again: eviction, strategy, compiler */
  _Atomic uint64_t epoch;
  _Atomic(struct context *) contexts;
  _Atomic(struct plan *) plans[PLAN_BUCKETS];
  lru plans_used; /* all plans that can be found */
  lru exact_used; /* entries whose exact code can be evicted */
  _Atomic int64_t n_calls, n_replays, n_traces, n_interpreted, n_settles, n_extern_calls, n_band_runs;
  pthread_mutex_t lock;
  pthread_cond_t changed; /* the queue, or an entry's state */
  struct entry *queue_head, *queue_tail;
  int32_t is_nudged; /* under the lock: a compiler that waits is to look up */
  struct retired *retired;
  int64_t n_entries; /* of all call sites; under the lock */
  weights_check weights;
  struct profile *profile; /* NULL until something is recorded */
  _Atomic int32_t counted; /* COUNT_...: what calls of main are counted for */
  latencies latencies;
  _Atomic(struct timeline *) timeline; /* what calls write to, NULL: nothing */
  struct timeline *latest_timeline;    /* its owner; it outlives `timeline` until the next one */
  svm_stats stats;                     /* the counters that only writers change */
  struct svm_program *next_open;       /* in fork.c's list */
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

#endif
