/* svm.h: the whole public API of the shapevm runtime.
 *
 * A program is loaded once, verified before its first instruction, and then immutable: any number of threads
 * may call it at once. Every function that can fail returns an error code (SVM_OK is 0) and writes one
 * sentence into *error. svm_codes.h has the codes of errors, dtypes and tags, the limits and the defaults.
 *
 * cffi reads the part between the two marks below: plain C declarations, no preprocessor lines.
 */
#ifndef SVM_H
#define SVM_H

#include <stddef.h>
#include <stdint.h>

#include "svm_codes.h"

/* The version of this API. Within a major version functions and codes may be added; nothing else changes,
 * including structures: a program built with an older minor version works with the library. */
#define SVM_API_MAJOR 1
#define SVM_API_MINOR 7

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* --- cffi begin --- */

/* Limits of the format; the loader refuses a program that exceeds one of them. */
enum {
  SVM_MAX_RANK = SVM_LIMIT_RANK,
  SVM_MAX_DIMS = SVM_LIMIT_DIMS,
  SVM_MAX_BUFFERS = SVM_LIMIT_BUFFERS,
  SVM_MESSAGE_BYTES = 1024
};

/* Version -------------------------------------------------------------------------------------- */

/* 1000 * SVM_API_MAJOR + SVM_API_MINOR of the running library, which may be newer than this header. */
int32_t svm_api_version(void);

/* Errors --------------------------------------------------------------------------------------- */

/* `function`, `pc`: where the program stopped, -1 if outside of it. `source`: the model's line, "" if
 * unknown; valid until svm_close (svm_release if the program is retained). `message`: one sentence, UTF-8,
 * zero-terminated. */
typedef struct svm_error {
  int32_t code;
  int32_t function;
  int64_t pc;
  const char *source;
  char message[1024];
} svm_error;

/* Name of an error code as in vm/errors.py, "unknown" for any other number. */
const char *svm_error_name(int32_t code);

/* Values --------------------------------------------------------------------------------------- */

/* A refcounted object that keeps a value's memory alive. */
typedef struct svm_object svm_object;

/* `strides` in elements, NULL: contiguous, row-major. Tensors that the runtime returns are contiguous. */
typedef struct svm_tensor {
  void *data;
  int32_t dtype;
  int32_t rank;
  int64_t sizes[16];
  const int64_t *strides;
} svm_tensor;

/* The owner of the memory of a tensor that a call returned. */
enum {
  SVM_ORIGIN_NEW = 0,     /* made by the call: from the allocator, or freed by svm_value_release */
  SVM_ORIGIN_INPUT = 1,   /* input `origin_index` itself: copy it before the input changes */
  SVM_ORIGIN_CONSTANT = 2 /* a constant of the program: read only, lives as long as the program */
};

/* A tagged value. The valid fields depend on `tag` (SVM_TAG_...):
 *   bool, int, function: integer     float: number     str: text, length (bytes; zero-terminated as well)
 *   tensor: tensor, origin, origin_index                list, tuple, dict: length; elements through
 * svm_value_item. `owner`: NULL (borrowed memory: the caller's, or the allocator's), else released by
 * svm_value_release. */
typedef struct svm_value {
  int32_t tag;
  int32_t origin;
  int32_t origin_index;
  int32_t reserved;
  int64_t integer;
  double number;
  const char *text;
  int64_t length;
  svm_tensor tensor;
  svm_object *owner;
} svm_value;

/* Element `index` of a list or tuple, or value `index` of a dict; `key` (may be NULL) gets the dict's key.
 * Both are borrowed from `container`. Returns SVM_OK or SVM_ERROR_ARGUMENT. */
int32_t svm_value_item(const svm_value *container, int64_t index, svm_value *key, svm_value *item);

/* Make a list or tuple (`tag`) of n values, or a dict of n / 2 pairs key, value, key, value...; the values'
 * own objects are shared, borrowed strings and tensors are copied. The caller owns *result. */
int32_t svm_value_make(int32_t tag, const svm_value *items, int64_t n, svm_value *result, svm_error *error);

/* Make a new contiguous tensor, contents undefined, owned by the caller (for host functions). */
int32_t svm_value_tensor(int32_t dtype, int32_t rank, const int64_t *sizes, svm_value *result,
                         svm_error *error);

/* Make a tensor over memory of the host (contiguous, element-aligned), which must not change from now on:
 * `release(context)` (NULL: nothing) is called once, when nothing uses it any more, or at once on an error.
 */
int32_t svm_value_over(const svm_tensor *tensor, void (*release)(void *context), void *context,
                       svm_value *result, svm_error *error);

/* Release what `value` owns and set it to none. NULL and borrowed values are allowed. */
void svm_value_release(svm_value *value);

/* Loading -------------------------------------------------------------------------------------- */

typedef struct svm_program svm_program;

/* Set all fields with svm_options_init, then change some. 0 in a limit means no limit. svm_codes.h defines
 * the codes and the defaults SVM_DEFAULT_... */
typedef struct svm_options {
  int32_t strategy;       /* SVM_STRATEGY_... (default auto) */
  int32_t hot_calls;      /* auto: executions before an entry is queued for compilation (default HOT_CALLS) */
  int32_t native_code;    /* 0: ignore the artifact's machine code (needs has_compiler) (default 1) */
  int32_t has_compiler;   /* 1: one will be attached, so a kernel without code is not an error (default 0) */
  int32_t perf_map;       /* 1: append the code's names to /tmp/perf-PID.map (default 0) */
  int64_t code_bytes_max; /* exact code kept mapped, beyond that evicted (default CODE_BYTES) */
  int64_t plans_max;      /* plans kept (default PLANS) */
  int64_t plan_bytes_max; /* bytes of plans kept, without arenas (default PLAN_BYTES) */
  /* Instructions that one call may run; values that an instruction or the return of results copies or
   * compares, beyond a few, also count (default 0). */
  int64_t fuel;
  /* Bytes that one call may hold at once: arena, values, copies of inputs, results (default 0). Kernels run
   * in bands only if there is room for these; a kernel's scratch memory on each thread is not counted. */
  int64_t memory_max;
  int64_t timeout_ms;    /* how long one call may take (default 0) */
  int32_t verify;        /* SVM_VERIFY_... (default auto) */
  int32_t copy;          /* SVM_COPY_... (default auto) */
  const uint8_t *sha256; /* 32 bytes: refuse a file with another SHA-256; only read while opening */
  /* Under lazy: called once, on a thread of the runtime, if weights are damaged (default NULL). */
  void (*damaged)(void *context, const char *message);
  void *damaged_context;
  int32_t huge_pages; /* SVM_HUGE_PAGES_... (default auto) */
} svm_options;

void svm_options_init(svm_options *options);

/* Load and verify an artifact; options NULL: the defaults. From memory: `data` (8-byte aligned) must stay
 * unchanged until svm_close. From an open file: `path` names it in messages; the descriptor stays the
 * caller's. */
int32_t svm_open_path(const char *path, const svm_options *options, svm_program **program, svm_error *error);
int32_t svm_open_file(int32_t file, const char *path, const svm_options *options, svm_program **program,
                      svm_error *error);
int32_t svm_open_memory(const void *data, size_t size, const svm_options *options, svm_program **program,
                        svm_error *error);

/* Set the maximum depth of calls among the program's functions in one call (default CALL_DEPTH), and of
 * nested lists, tuples and dicts (default NESTING); a call beyond that ends with SVM_ERROR_LIMIT. 0: the
 * runtime's maximum, SVM_LIMIT_CALL_DEPTH and SVM_LIMIT_NESTING. Running calls keep their limits. Since
 * version 1.4.
 */
int32_t svm_limit_depth(svm_program *program, int32_t calls, int32_t nesting, svm_error *error);

/* Set whether consecutive kernels run in bands, SVM_BANDS_... (initially auto). Results have the
 * same bits. Since version 1.4. */
int32_t svm_use_bands(svm_program *program, int32_t bands, svm_error *error);

/* Fail if weights are known to be damaged, or a mapped file was changed since it was opened; if only its time
 * has changed, the file is read once and accepted if its bytes are the same. Calls do this themselves; for
 * results with origin SVM_ORIGIN_CONSTANT, call it after reading them. */
int32_t svm_check_file(svm_program *program, svm_error *error);

/* The same after waiting until all weights are checked, which this thread helps with. Under full it costs
 * nothing. */
int32_t svm_check_weights(svm_program *program, svm_error *error);

/* XXH3-128 (low half, high half) of at least 241 bytes: the hash of a chunk in CHUNKS. */
void svm_hash_chunk(const void *data, size_t size, uint64_t *hash);

/* Close the program: later calls fail, compiler threads are told to end, running calls finish normally. The
 * last of them, or else this function, frees the program. After that neither the pointer nor data that
 * belongs to the program may be used, except by running calls and by functions that svm_retain and svm_enter
 * allow. */
void svm_close(svm_program *program);

/* For programs that one thread may close while others use them. Until svm_release the pointer is valid for
 * svm_call, svm_call_with, svm_enter and svm_close, which report that the program is closed; NULL is allowed.
 * Between svm_enter and svm_leave nothing of the program is freed: all other functions may be used there.
 * svm_enter returns NULL and an error once the program is closed. Since version 1.5. */
typedef struct svm_use svm_use;
svm_program *svm_retain(svm_program *program);
void svm_release(svm_program *program);
svm_use *svm_enter(svm_program *program, svm_error *error);
void svm_leave(svm_use *use);

/* The contract --------------------------------------------------------------------------------- */
/* All results of these functions belong to the program. An index out of range gives NULL. */

/* `min` -INT64_MAX, `max` INT64_MAX: unbounded; a size is >= 0. `why`: the model's line that requires the
 * bounds, "" if unknown. */
typedef struct svm_symbol_info {
  const char *name;
  int64_t min, max, multiple_of;
  const char *why;
} svm_symbol_info;

/* symbol >= 0: size == scale * value(symbol) + offset. symbol -1: size == offset. symbol -2, of an output:
 * the size is described by `expression`, such as "floordiv(n,2)"; "" otherwise. */
typedef struct svm_axis_info {
  int32_t symbol;
  int32_t reserved;
  int64_t scale, offset;
  const char *expression;
} svm_axis_info;

/* `kind`: tag of a tensor, int, float, bool or str. `symbol`: the symbol that an int binds, else -1. */
typedef struct svm_input_info {
  const char *name;
  int32_t kind, dtype, rank, symbol;
  const svm_axis_info *axes;
} svm_input_info;

/* The compiler's declaration of an output; the result itself has the actual values. `kind`: a tag, -1 if
 * undeclared. `dtype`, `rank`, `axes`: of a tensor, else 0, 0, NULL. */
typedef struct svm_output_info {
  const char *name;
  int32_t kind, dtype, rank, reserved;
  const svm_axis_info *axes;
} svm_output_info;

typedef struct svm_function_info {
  const char *name;
  int32_t n_params, n_results, n_registers;
  /* 1: calls are planned once per shape and replayed; 0: interpreted, or planned by values of inputs without
   * axes, if the flow depends only on these */
  int32_t is_static_flow;
} svm_function_info;

typedef struct svm_kernel_info {
  const char *label, *source, *spec;              /* a readable name; the model's line; the spec as JSON */
  int32_t n_dims, n_buffers, n_objects, reserved; /* objects: usable on this CPU, exact ones and generic */
  int64_t code_bytes;
  const char *target; /* of the objects, "" if there are none; exact code for others may give other bits */
} svm_kernel_info;

int32_t svm_n_inputs(const svm_program *program);
int32_t svm_n_outputs(const svm_program *program);
int32_t svm_n_symbols(const svm_program *program);
int32_t svm_n_functions(const svm_program *program);
int32_t svm_n_kernels(const svm_program *program);
int32_t svm_n_externs(const svm_program *program);
const svm_input_info *svm_input(const svm_program *program, int32_t index);
const svm_output_info *svm_output(const svm_program *program, int32_t index);
const svm_symbol_info *svm_symbol(const svm_program *program, int32_t index);
const svm_function_info *svm_function(const svm_program *program, int32_t index);
const svm_kernel_info *svm_kernel(const svm_program *program, int32_t index);
const char *svm_extern_name(const svm_program *program, int32_t index);
/* The model's line that calls it first, "" if unknown. */
const char *svm_extern_source(const svm_program *program, int32_t index);

/* Index of the function of the contract, and of the function of that name (-1: none). */
int32_t svm_main_function(const svm_program *program);
int32_t svm_find_function(const svm_program *program, const char *name);

/* Entry points: functions that the host calls by name, such as "prefill" and "decode". Each has its own
 * contract for its inputs; they share symbols, kernels and weights. Main is one, and the functions above
 * describe it. A function that is not an entry point (svm_is_entry_point 0) has no inputs and outputs here;
 * svm_function returns its number of parameters. Since version 1.2. */
int32_t svm_is_entry_point(const svm_program *program, int32_t function);
/* Whether a call that failed because memory for its results was refused may be repeated: it calls no host
 * function and writes to no input. Since version 1.3. */
int32_t svm_is_repeatable(const svm_program *program, int32_t function);
int32_t svm_function_n_inputs(const svm_program *program, int32_t function);
int32_t svm_function_n_outputs(const svm_program *program, int32_t function);
const svm_input_info *svm_function_input(const svm_program *program, int32_t function, int32_t index);
const svm_output_info *svm_function_output(const svm_program *program, int32_t function, int32_t index);

/* 1 if calls write to the input in the caller's memory, that is, state is updated in place. Such a tensor
 * must be contiguous and aligned, and is not a result. Since version 1.2. */
int32_t svm_function_writes(const svm_program *program, int32_t function, int32_t index);

/* 1 where the program reads the input as it lies in memory: calls must give it row-major, without gaps. Since
 * version 1.6. */
int32_t svm_function_in_rows(const svm_program *program, int32_t function, int32_t index);

/* The META section, JSON for hosts (not zero-terminated). */
int32_t svm_meta(const svm_program *program, const char **text, size_t *size, svm_error *error);

/* Name of the best target that this CPU runs, "" if it runs none. */
const char *svm_host_target(void);

/* Host functions ------------------------------------------------------------------------------- */

/* Functions of the host run in the floating-point mode of svm_call. `args` are borrowed for the call.
 * `results` are initially none; the runtime takes them over (owned) or copies them (borrowed). Returns
 * SVM_OK, or a code after filling *error. May be called from several threads at once. */
typedef int32_t (*svm_extern)(void *context, const svm_value *args, int32_t n_args, svm_value *results,
                              int32_t n_results, svm_error *error);

/* The same, with results that the program has allocated: `outputs` are contiguous, zeros, and share no memory
 * with `args`; the function fills them and changes nothing else. */
typedef int32_t (*svm_dps)(void *context, const svm_value *args, int32_t n_args, const svm_tensor *outputs,
                           int32_t n_outputs, svm_error *error);

/* How a program calls a function: each function supports one of these. */
enum { SVM_EXTERN_PACKED = 0, SVM_EXTERN_DPS = 1 };
int32_t svm_extern_kind(const svm_program *program, int32_t index);
int32_t svm_extern_is_missing(const svm_program *program, int32_t index);

/* Register before the first call; a call of a program that still lacks one fails and names it. A name without
 * an overload, "mylib::scale", also covers "mylib::scale.default". */
int32_t svm_register_extern(svm_program *program, const char *name, svm_extern function, void *context,
                            svm_error *error);
int32_t svm_register_dps(svm_program *program, const char *name, svm_dps function, void *context,
                         svm_error *error);

/* Load a plug-in (svm_plugin.h), a shared library, and register its functions that the program calls. A path
 * without a slash is a file of the working directory. This runs the library's code: load only trusted
 * libraries. It stays loaded until the process ends. */
int32_t svm_load_plugin(svm_program *program, const char *path, svm_error *error);

/* Calls ---------------------------------------------------------------------------------------- */

/* Allocates memory for the new tensors that a call returns (at least element-aligned; 64 bytes is faster).
 * `allocate`: `leaf` counts the tensors of the outputs from 0, containers' elements depth first; `like` gives
 * dtype, rank and sizes; returning NULL refuses. `release` (may be NULL) frees the memory if the call fails
 * afterwards. */
typedef struct svm_allocator {
  void *context;
  void *(*allocate)(void *context, int32_t leaf, const svm_tensor *like, size_t n_bytes);
  void (*release)(void *context, int32_t leaf, void *data);
} svm_allocator;

/* Call a function. Regardless of the thread's floating-point mode, the call rounds to nearest, keeps
 * subnormal numbers and has no traps; the thread's mode is restored. An entry point's inputs are checked
 * against its contract; any other function takes its parameters unchecked. Inputs are borrowed for the
 * call; non-contiguous ones are copied. `outputs`: room for n_outputs == n_results of the function; set to
 * none on an error. allocator NULL: malloc, see svm_value_release. */
int32_t svm_call(svm_program *program, int32_t function, const svm_value *inputs, int32_t n_inputs,
                 const svm_allocator *allocator, svm_value *outputs, int32_t n_outputs, svm_error *error);

/* Options of one call. Set all fields with svm_call_options_init, then change some. A stopped call soon ends
 * with SVM_ERROR_CANCELLED or SVM_ERROR_TIMEOUT, between kernels or between two tiles of a long one; it
 * leaves nothing half done except the state of host functions that it has called. */
typedef struct svm_call_options {
  int32_t strategy; /* SVM_STRATEGY_...; -1: the function's, else the program's (default -1). Under jit a call
                     * waits for missing exact code. */
  int64_t timeout_ms;             /* 0: the program's (default 0) */
  const volatile int32_t *cancel; /* not 0, set by another thread or a signal handler: stop (default NULL) */
  /* Called by the calling thread about twenty times a second during the call; not 0: stop (default NULL) */
  int32_t (*poll)(void *context);
  void *context; /* of poll and observe */
  /* Called by the calling thread before and after (is_end 1) each launch (default NULL) */
  void (*observe)(void *context, int32_t kernel, int32_t is_end);
} svm_call_options;

void svm_call_options_init(svm_call_options *options);

/* svm_call with options for this call; NULL: the defaults. */
int32_t svm_call_with(svm_program *program, const svm_call_options *options, int32_t function,
                      const svm_value *inputs, int32_t n_inputs, const svm_allocator *allocator,
                      svm_value *outputs, int32_t n_outputs, svm_error *error);

/* Check main's inputs against the contract and bind its symbols (n_symbols values), without running anything.
 */
int32_t svm_bind(const svm_program *program, const svm_value *inputs, int32_t n_inputs, int64_t *symbols,
                 svm_error *error);

/* The same for another entry point; a symbol that its inputs do not bind becomes 0. Since version 1.2. */
int32_t svm_bind_function(const svm_program *program, int32_t function, const svm_value *inputs,
                          int32_t n_inputs, int64_t *symbols, svm_error *error);
int64_t svm_function_output_size(const svm_program *program, int32_t function, int32_t output, int32_t axis,
                                 const int64_t *symbols);

/* The size of an output's axis for these values of the symbols (svm_bind), so that memory for an output can
 * be allocated before the call; -1: the size is known only at run time, or there is no such axis. */
int64_t svm_output_size(const svm_program *program, int32_t output, int32_t axis, const int64_t *symbols);

/* Threads of the process that run kernels, the caller included; n == 0: one per CPU that it may run on, but
 * at most the number of whole CPUs that its control groups grant. */
int32_t svm_set_threads(int32_t n, svm_error *error);
int32_t svm_get_threads(void);

/* Thousandths of CPUs that the control groups of the process grant; 0: no limit. Since version 1.3. */
int64_t svm_cpu_quota(void);

/* Change the strategy for entries and plans made from now on. */
int32_t svm_set_strategy(svm_program *program, int32_t strategy, svm_error *error);

/* Set the strategy of the host's calls of one function, including all that it calls; -1: the program's again.
 * svm_call_with overrides this, and this overrides svm_set_strategy. */
int32_t svm_set_function_strategy(svm_program *program, int32_t function, int32_t strategy, svm_error *error);

/* Compilation ---------------------------------------------------------------------------------- */

/* A request for exact code: kernel-table index, its dims, runs so far, whether a call waits for it.
 */
typedef struct svm_request {
  int32_t kernel, n_dims;
  int64_t dims[SVM_MAX_DIMS];
  int64_t runs;
  int32_t is_awaited;
} svm_request;

/* State that a compiler answers requests (1) or no longer does (0: waiters are woken, requests are dropped).
 * Without one nothing is queued, and calls under strategy jit fail if they need missing code. */
void svm_attach_compiler(svm_program *program, int32_t attached);

/* Wait for a request: 1 and *request, 0 after timeout_ms without one, -1 if no compiler is attached any more.
 * Every request must be answered by svm_install_code, svm_compile_failed or svm_decline_request. */
int32_t svm_request_wait(svm_program *program, int32_t timeout_ms, svm_request *request);

/* 1 while a compiler is attached and does not wait in svm_request_wait, or is about to wake. */
int32_t svm_compiler_is_busy(svm_program *program);

/* From now on a fork waits until every compiler is in svm_request_wait, where it stays until the fork is
 * over: a child must not inherit locks of the host that a compiler held. Meanwhile the forking thread calls
 * `rest`, up to 4000 times, without locks of this library. It sleeps a moment, or returns 0 to fork at once.
 * NULL: no waiting. */
void svm_rest_before_forks(int32_t (*rest)(void));

/* When a kernel's entries request exact code under auto. The work of a launch is its flops or bytes, as its
 * generic code counts them. */
typedef struct svm_price {
  int64_t work;          /* that an entry must have run before it requests */
  int64_t per_launch;    /* added to a launch's own work */
  int64_t declined_from; /* launches of at least this work never do: generic code is as fast; 0: none */
} svm_price;

/* Set a kernel's price; initially it is zero, and no launch is declined. */
int32_t svm_set_price(svm_program *program, int32_t kernel, const svm_price *price, svm_error *error);

/* While in a hurry (1), hot entries request code regardless of price, including those that ran before. Calls
 * nest: each 1 needs a 0. A compiler that waits for a request is woken. */
void svm_hurry(svm_program *program, int32_t is_hurried);

/* Copy a kernel's generic code object (record, then code: what svm_install_code takes). `record` NULL, or too
 * small: nothing is copied. Returns its size in bytes, 0 if there is none. */
size_t svm_generic_code(svm_program *program, int32_t kernel, void *record, size_t size);

/* Install one code object: `record` is a serialised code object followed by its code, in the layout of
 * docs/artifact.md (its hash is checked, the code is copied). Exact code takes effect at once. */
int32_t svm_install_code(svm_program *program, int32_t kernel, const void *record, size_t size,
                         svm_error *error);

/* Answer a request with a failure: waiting callers get `message`; under auto the generic code stays. */
int32_t svm_compile_failed(svm_program *program, int32_t kernel, const int64_t *dims, int32_t n_dims,
                           const char *message, svm_error *error);

/* Decline a request: the existing code stays. Only calls that wait for exact code request it again, or the
 * entry once it has run `again_after` times in all (0: never). */
int32_t svm_decline_request(svm_program *program, int32_t kernel, const int64_t *dims, int32_t n_dims,
                            int64_t again_after, svm_error *error);

/* Whether calls wait for exact code of these dims. */
int32_t svm_is_awaited(svm_program *program, int32_t kernel, const int64_t *dims, int32_t n_dims);

/* Statistics ----------------------------------------------------------------------------------- */

typedef struct svm_site_stats {
  int32_t state; /* SVM_SITE_... */
  int32_t n_entries;
  int64_t hits;                 /* launches that found their entry, replayed ones included */
  int64_t misses;               /* launches that made an entry */
  int64_t outside;              /* misses without exact code or a bucket, of a kernel that has buckets */
  int64_t by_dim[SVM_MAX_DIMS]; /* misses with a size of dims[i] new to the site; some count twice */
  int64_t by_combination;       /* the others: every size was known, but not the combination */
} svm_site_stats;

/* `new_dims`: bit i is set if the miss that made the entry was the first to see this value of dims[i]. */
typedef struct svm_entry_stats {
  int32_t n_dims;
  int32_t tier;  /* SVM_TIER_... */
  int32_t state; /* SVM_ENTRY_... */
  uint32_t new_dims;
  int64_t dims[SVM_MAX_DIMS];
  int64_t hits;
  int64_t n_tiles;
  int64_t code_bytes;
  char schedule[64];
  char failure[256]; /* why the compilation failed, "" otherwise */
} svm_entry_stats;

typedef struct svm_stats {
  int64_t calls, replays, traces, interpreted;
  int64_t extern_calls; /* calls of host functions */
  int64_t n_plans, plan_bytes, plans_evicted;
  int64_t n_contexts, arena_bytes;
  int64_t code_bytes, code_installed, code_evicted;
  int64_t n_queued, n_failed;
  int64_t n_pending; /* requests that wait or are being answered */
  int64_t n_waiting; /* calls that wait for exact code */
  int64_t n_hurries; /* see svm_hurry */
} svm_stats;

void svm_get_stats(svm_program *program, svm_stats *stats);
int32_t svm_get_site(svm_program *program, int32_t kernel, svm_site_stats *stats);
int32_t svm_get_entry(svm_program *program, int32_t kernel, int32_t entry, svm_entry_stats *stats);

/* *text: all counters as OpenMetrics text, zero-terminated, for svm_text_free. `model`: the value of the
 * label `model` of each sample; NULL: none. */
int32_t svm_metrics(svm_program *program, const char *model, char **text, svm_error *error);

/* Start (1) or stop (0) to measure the duration of calls of main: the histogram call_seconds in the metrics.
 * */
void svm_time_calls(svm_program *program, int32_t is_on);

/* Start (1) or stop (0) to record the sizes that main is called with; the record is kept. */
int32_t svm_record(svm_program *program, int32_t is_recording, svm_error *error);

/* **text: the record, as JSON (docs/profile.md), for svm_text_free. */
int32_t svm_profile(svm_program *program, char **text, svm_error *error);

/* Start a new timeline of the begin and end of calls, kernels and threads (1), or stop it (0); the latest
 * timeline is kept. */
int32_t svm_timeline(svm_program *program, int32_t is_on, svm_error *error);

/* *text: the latest timeline in Chrome's trace event format, JSON, which Perfetto also opens; for
 * svm_text_free. Events of the categories call, kernel, tiles (a thread's share of a kernel) and host. */
int32_t svm_timeline_text(svm_program *program, char **text, svm_error *error);

void svm_text_free(char *text);

/* Copy code object `index` of those that were installed for a kernel and still exist (generic first, then
 * buckets, then exact ones; record, then code, as svm_install_code takes it). `record` NULL, or too small:
 * nothing is copied. Returns its size in bytes, 0 if there is no such object. */
size_t svm_installed_code(svm_program *program, int32_t kernel, int32_t index, void *record, size_t size);

/* --- cffi end --- */

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
