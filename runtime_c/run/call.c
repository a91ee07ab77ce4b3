/* svm_call: from the caller's values through contract, plan or interpreter to the caller's results. */
#include <stdlib.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/hash.h"
#include "base/status.h"
#include "program/weights.h"
#include "run/contract.h"
#include "run/extern.h"
#include "run/interpreter.h"
#include "run/lifetime.h"
#include "run/plan_build.h"
#include "run/profile.h"
#include "run/replay.h"
#include "run/results.h"
#include "values/strided.h"

/* Inputs --------------------------------------------------------------------------------------- */

/* A call's inputs: contiguous data, copied if the caller's was not. */
typedef struct inputs {
  void **data;
  int32_t *is_copied; /* NULL: none is */
} inputs;

static void inputs_free(inputs *in, int32_t n) {
  for (int32_t i = 0; in->is_copied && i < n; i++) {
    if (in->is_copied[i]) free(in->data[i]);
  }
  free(in->is_copied);
}

static int32_t copy_input(call *c, inputs *in, int32_t index, int32_t n, const svm_tensor *t) {
  int64_t n_bytes = checked_bytes(t->dtype, checked_elements(t->rank, t->sizes));
  if (budget_take(&c->budget, n_bytes, c->error)) return c->error->code;
  if (!in->is_copied) in->is_copied = calloc((size_t)n, sizeof *in->is_copied);
  void *copy = in->is_copied ? malloc((size_t)n_bytes + 1) : NULL;
  if (!copy)
    return status_fail(c->error, SVM_ERROR_MEMORY, "memory: there is none for a copy of input %d", index);
  strided_copy(copy, t);
  in->data[index] = copy;
  in->is_copied[index] = 1;
  return SVM_OK;
}

static int32_t inputs_set(call *c, inputs *in, const svm_value *values, int32_t n) {
  for (int32_t i = 0; i < n; i++) {
    const svm_tensor *t = &values[i].tensor;
    int is_tensor = values[i].tag == SVM_TAG_TENSOR;
    in->data[i] = is_tensor ? t->data : NULL;
    if (!is_tensor || strided_is_usable(t)) continue;
    if (strided_check("argument", t, c->error) || copy_input(c, in, i, n, t)) return c->error->code;
  }
  return SVM_OK;
}

/* The function's parameters as values: borrowed tensors over the inputs' data, copies of the rest. */
static int32_t make_arg(call *c, const svm_value *in, void *data, int32_t index, value *out) {
  if (in->tag != SVM_TAG_TENSOR) return value_import(&c->budget, in, out, c->error);
  const svm_tensor *t = &in->tensor;
  if (strided_check("argument", t, c->error)) return c->error->code;
  int64_t n_bytes = checked_bytes(t->dtype, checked_elements(t->rank, t->sizes));
  storage *memory = storage_over(&c->budget, data, n_bytes, SVM_ORIGIN_INPUT, index, c->error);
  if (memory) memory->is_written = c->contract && c->contract->memory[index] & WRITTEN;
  return memory ? tensor_make(&c->budget, t->dtype, t->rank, t->sizes, memory, out, c->error)
                : c->error->code;
}

static int32_t make_args(call *c, const svm_value *values, int32_t n, void *const *data, int64_t n_symbols,
                         const int64_t *symbols, value **out) {
  value *args = calloc((size_t)n + (size_t)n_symbols + 1, sizeof *args);
  if (!args)
    return status_fail(c->error, SVM_ERROR_MEMORY, "memory: there is none for the arguments of a call");
  *out = args;
  for (int32_t i = 0; i < n; i++) {
    int32_t code = make_arg(c, &values[i], data[i], i, &args[i]);
    if (code) return code;
  }
  for (int64_t i = 0; i < n_symbols; i++) args[n + i] = (value){SVM_TAG_INT, {symbols[i]}};
  return SVM_OK;
}

static void free_values(memory_budget *budget, value *values, int64_t n) {
  for (int64_t i = 0; values && i < n; i++) value_drop(budget, &values[i]);
  free(values);
}

static int64_t fuel_of(const svm_program *p) { return p->options.fuel ? p->options.fuel : INT64_MAX; }

/* Whether a call has no side effects: it writes to no input and calls no host function. */
static int can_run_again(const call *c) {
  return !c->program->n_externs && !(c->contract && c->contract->writes);
}

/* Refuse a call's result, `code`, if damaged weights or a changed file may have affected it. *is_again: the
 * file has the same bytes, but was changed meanwhile, so the call must run again. */
static int32_t check_weights(call *c, int32_t code, int *is_again) {
  int was_touched = 0;
  int32_t refused = weights_status(c->program, c->error);
  if (!refused) refused = image_check_file(&c->program->image, &was_touched, c->error);
  if (!refused && was_touched && !can_run_again(c)) {
    refused =
        status_fail(c->error, SVM_ERROR_FILE, "%.500s: the file was touched while the call ran; call again",
                    c->program->image.path);
  }
  *is_again = !refused && was_touched;
  if (*is_again) status_clear(c->error), c->fuel = fuel_of(c->program);
  return refused ? refused : code;
}

/* A call that cannot run again is refused beforehand. */
static int32_t check_weights_before(call *c) {
  int was_touched;
  int32_t code = weights_status(c->program, c->error);
  if (code || can_run_again(c)) return code;
  return image_check_file(&c->program->image, &was_touched, c->error);
}

/* Interpreted calls ---------------------------------------------------------------------------- */

static int32_t call_interpreted(call *c, int32_t function, const svm_value *values, int32_t n,
                                int64_t n_symbols, output_binding *b, svm_value *outputs) {
  int32_t n_results = c->program->functions[function].info.n_results;
  atomic_fetch_add_explicit(&c->program->counters.n_interpreted, 1, memory_order_relaxed);
  int allocates = c->contract != NULL; /* other functions make what stays, such as a first state */
  if (allocates) arena_open(&c->context->arena);
  value *args = NULL, *results = calloc((size_t)n_results + 1, sizeof *results);
  int32_t code =
      results ? make_args(c, values, n, b->input_data, n_symbols, c->context->symbols, &args)
              : status_fail(c->error, SVM_ERROR_MEMORY, "memory: there is none for the results of a call");
  for (int is_again = !code; is_again;) {
    code = check_weights(c, interpret(c, function, args, results), &is_again);
    for (int32_t i = 0; is_again && i < n_results; i++) value_drop(&c->budget, &results[i]);
  }
  if (!code) code = output_binding_finish(b, results, n_results, outputs);
  free_values(&c->budget, args, n + n_symbols);
  free_values(&c->budget, results, n_results);
  if (allocates) arena_close(&c->context->arena);
  return code;
}

/* Planned calls -------------------------------------------------------------------------------- */

/* The key: the function, the symbols, then the values of inputs (see is_in_key). */
static void make_key(const call *c, const svm_value *values, void *const *data, int64_t *key) {
  int32_t n_symbols = c->program->io.n_symbols;
  *key = c->contract->function;
  memcpy(key + 1, c->context->symbols, (size_t)n_symbols * sizeof *key);
  int64_t *next = key + 1 + n_symbols;
  for (int32_t i = 0; i < c->contract->n_inputs; i++) {
    if (!is_in_key(c->contract, i)) continue;
    *next = 0;
    if (values[i].tag == SVM_TAG_TENSOR && data[i])
      memcpy(next, data[i], (size_t)DTYPE_BYTES[values[i].tensor.dtype]);
    else if (values[i].tag == SVM_TAG_FLOAT) memcpy(next, &values[i].number, sizeof *next);
    else if (values[i].tag != SVM_TAG_TENSOR)
      *next = values[i].tag == SVM_TAG_BOOL ? values[i].integer != 0 : values[i].integer;
    next++;
  }
}

/* A plan for the key, traced and with its code ready; *out NULL without an error: the trace was given up. */
static int32_t make_plan(call *c, const svm_value *values, void *const *data, plan **out) {
  svm_program *p = c->program;
  value *args = NULL;
  plan *made = NULL;
  *out = NULL;
  int32_t code =
      make_args(c, values, c->contract->n_inputs, data, p->io.n_symbols, c->context->symbols, &args);
  if (!code) code = plan_make(c, args, c->context->key, &made);
  free_values(&c->budget, args, c->contract->n_inputs + p->io.n_symbols);
  if (code || !made) return code;
  atomic_fetch_add_explicit(&p->counters.n_traces, 1, memory_order_relaxed);
  plan_pin(p, made);
  code = plan_settle(c, made, 1);
  if (!code) {
    *out = plan_publish(p, made);
    return SVM_OK;
  }
  pthread_mutex_lock(&p->lock);
  plan_free(made);
  pthread_mutex_unlock(&p->lock);
  return code;
}

static int32_t replay(call *c, const plan *made, output_binding *b, svm_value *outputs) {
  context *x = c->context;
  int64_t n_bases = BASE_INPUTS + c->contract->n_inputs + made->n_outputs;
  storage *few[8], **owners = made->n_outputs <= 8 ? few : malloc((size_t)made->n_outputs * sizeof *owners);
  if (!owners)
    return status_fail(c->error, SVM_ERROR_MEMORY, "memory: there is none for the results of a call");
  int32_t code = budget_take(&c->budget, made->arena_bytes, c->error);
  if (!code) code = context_reserve_arena(x, made->arena_bytes, c->error);
  if (!code) code = context_reserve_bases(x, n_bases, c->error);
  if (!code) {
    x->bases[BASE_ARENA] = x->arena.data;
    x->bases[BASE_ABSOLUTE] = NULL;
    memcpy(x->bases + BASE_INPUTS, b->input_data, (size_t)c->contract->n_inputs * sizeof *x->bases);
    b->plan = made;
    b->made = x->bases + BASE_INPUTS + c->contract->n_inputs;
    b->owners = owners;
    code = output_binding_prepare(b);
    if (!code) {
      for (int is_again = 1; is_again;) code = check_weights(c, plan_replay(c, made, x->bases), &is_again);
      if (!code) code = output_binding_finish(b, made->results, made->n_results, outputs);
      if (code) output_binding_undo(b);
    }
  }
  if (owners != few) free(owners);
  return code;
}

/* Whether a plan for the key pays: at once, or when the key has come before, as the values of inputs may be
 * others in every call. */
static int is_met(contract *k, const int64_t *key) {
  if (k->plans_at_once) return 1;
  uint64_t hash = hash_row(key, k->n_key);
  return atomic_exchange_explicit(&k->met[hash % N_MET], hash, memory_order_relaxed) == hash;
}

static int32_t call_planned(call *c, const svm_value *values, int32_t n, output_binding *b,
                            svm_value *outputs) {
  svm_program *p = c->program;
  make_key(c, values, b->input_data, c->context->key);
  plan *made = plan_find(p, c->context->key, c->contract->n_key);
  if (made) {
    atomic_store_explicit(&made->counts.last_used, c->number, memory_order_relaxed);
    atomic_fetch_add_explicit(&made->counts.executions, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->counters.n_replays, 1, memory_order_relaxed);
    if (plan_settle(c, made, 0)) return c->error->code;
    return replay(c, made, b, outputs);
  }
  if (is_met(c->contract, c->context->key)) {
    if (make_plan(c, values, b->input_data, &made)) return c->error->code;
    if (made) return replay(c, made, b, outputs);
    atomic_store(&c->contract->is_never_planned, 1);
    status_clear(c->error);
    c->fuel = fuel_of(p);
  }
  return call_interpreted(c, c->contract->function, values, n, p->io.n_symbols, b, outputs);
}

/* Calls ---------------------------------------------------------------------------------------- */

static int32_t check_memory(const svm_value *inputs, int32_t n_inputs, const svm_allocator *allocator,
                            const svm_value *outputs, int32_t n_outputs, svm_error *error) {
  if (n_inputs > 0 && status_need(inputs, "svm_call: inputs", error)) return error->code;
  if (n_outputs > 0 && status_need(outputs, "svm_call: outputs", error)) return error->code;
  return allocator && !allocator->allocate
             ? status_fail(error, SVM_ERROR_ARGUMENT, "svm_call: the allocator's allocate is NULL")
             : SVM_OK;
}

static int32_t check_call(const svm_program *p, const svm_call_options *options, int32_t function,
                          int32_t n_inputs, int32_t n_outputs, svm_error *error) {
  if (options->timeout_ms < 0)
    return status_fail(error, SVM_ERROR_ARGUMENT, "svm_call_with: timeout_ms is negative; 0 means no limit");
  if (function < 0 || function >= p->n_functions) {
    return status_fail(error, SVM_ERROR_ARGUMENT, "svm_call: function %d of %d", function, p->n_functions);
  }
  const svm_function_info *f = &p->functions[function].info;
  if (n_outputs != f->n_results) {
    return status_fail(error, SVM_ERROR_ARGUMENT, "svm_call: room for %d outputs; \"%.100s\" gives %d",
                       n_outputs, f->name, f->n_results);
  }
  if (!p->functions[function].contract && n_inputs != f->n_params) {
    return status_fail(error, SVM_ERROR_ARGUMENT, "svm_call: %d inputs; \"%.100s\" takes %d", n_inputs,
                       f->name, f->n_params);
  }
  for (int32_t i = 0; i < p->n_externs && atomic_load_explicit(&p->n_externs_missing, memory_order_relaxed);
       i++) {
    if (extern_is_registered(&p->externs[i])) continue;
    status_fail(error, SVM_ERROR_EXTERN,
                "host function \"%.200s\" (%s) is missing; register it, or load the plug-in that has it, "
                "before the first call",
                p->externs[i].name, p->externs[i].kind == SVM_EXTERN_DPS ? "call_dps" : "call_packed");
    error->source = svm_extern_source(p, i);
    return error->code;
  }
  return SVM_OK;
}

static int32_t run_call(call *c, int32_t function, const svm_value *values, int32_t n,
                        const svm_allocator *allocator, svm_value *outputs) {
  svm_program *p = c->program;
  void *few[16];
  inputs in = {n <= 16 ? few : malloc((size_t)n * sizeof *in.data), NULL};
  if (!in.data)
    return status_fail(c->error, SVM_ERROR_MEMORY, "memory: there is none for the inputs of a call");
  int32_t code = inputs_set(c, &in, values, n);
  output_binding b = {.allocator = allocator,
                      .call = c,
                      .inputs = values,
                      .is_copied = in.is_copied,
                      .input_data = in.data,
                      .error = c->error};
  contract *k = c->contract;
  if (!code && k && contract_is_planned(k)) {
    code = call_planned(c, values, n, &b, outputs);
  } else if (!code) {
    code = call_interpreted(c, function, values, n, k ? p->io.n_symbols : 0, &b, outputs);
  }
  output_binding_free(&b);
  inputs_free(&in, n);
  if (in.data != few) free(in.data);
  return code;
}

int32_t svm_call(svm_program *p, int32_t function, const svm_value *values, int32_t n_inputs,
                 const svm_allocator *allocator, svm_value *outputs, int32_t n_outputs, svm_error *error) {
  return svm_call_with(p, NULL, function, values, n_inputs, allocator, outputs, n_outputs, error);
}

void svm_call_options_init(svm_call_options *options) {
  if (options) *options = (svm_call_options){.strategy = -1};
}

/* The strategy of a call: its own, else the function's, else the program's. */
static int32_t strategy_of(const svm_program *p, const svm_call_options *o, int32_t function) {
  if (o->strategy != -1) return o->strategy;
  int is_known = function >= 0 && function < p->n_functions; /* check_call refuses another */
  int32_t own =
      is_known ? atomic_load_explicit(&p->functions[function].own_strategy, memory_order_relaxed) : 0;
  return own ? own - 1 : atomic_load_explicit(&p->switches.strategy, memory_order_relaxed);
}

/* Note who looks at the call's launches. Returns the call's row in the timeline, NULL without one. */
static timeline_row *begin_row(const call *c, const svm_call_options *options, int32_t function) {
  svm_rt *rt = &c->context->rt;
  rt->timeline = atomic_load_explicit(&c->program->observers.timeline, memory_order_acquire);
  rt->observer = options->observe ? options : NULL;
  rt->is_noted = rt->timeline || rt->observer;
  timeline_row *row = rt->timeline ? timeline_begin(rt->timeline, TIMELINE_CALL, function) : NULL;
  if (row && c->contract) timeline_set_dims(rt->timeline, row, c->context->symbols, c->program->io.n_symbols);
  return row;
}

static void count_call(svm_program *p, int32_t counted, const int64_t *symbols, int64_t ns) {
  if (counted & COUNT_SIZES) profile_count(p, symbols, ns);
  if (counted & COUNT_TIMES) latencies_count(&p->observers.latencies, ns);
}

/* The call in its context, whose arguments were checked. */
static inline int32_t call_checked(call *c, const svm_call_options *options, int32_t function,
                                   const svm_value *values, int32_t n_inputs, const svm_allocator *allocator,
                                   svm_value *outputs) {
  svm_program *p = c->program;
  context *x = c->context;
  watch own;
  c->watch = x->rt.watch = watch_begin(&own, options, p->options.timeout_ms);
  c->budget =
      (memory_budget){.max = p->options.memory_max,
                      .max_nesting = atomic_load_explicit(&p->switches.max_nesting, memory_order_relaxed),
                      .pool = &x->pool};
  c->max_calls = atomic_load_explicit(&p->switches.max_calls, memory_order_relaxed);
  c->fuel = fuel_of(p);
  c->number = atomic_fetch_add_explicit(&p->counters.n_calls, 1, memory_order_relaxed) + 1;
  int32_t code = c->contract ? contract_bind(p, c->contract, values, n_inputs, x->symbols, c->error) : SVM_OK;
  int32_t counted = code || function ? 0 : atomic_load_explicit(&p->observers.counted, memory_order_relaxed);
  int64_t begin = counted ? profile_now() : 0;
  timeline_row *row = begin_row(c, options, function);
  if (!code) code = run_call(c, function, values, n_inputs, allocator, outputs);
  timeline_end(row);
  if (counted && !code) count_call(p, counted, x->symbols, profile_now() - begin);
  x->last_call = c->number;
  if (++x->n_counted >= x->window) contexts_trim(p, x);
  return code;
}

int32_t svm_call_with(svm_program *p, const svm_call_options *options, int32_t function,
                      const svm_value *values, int32_t n_inputs, const svm_allocator *allocator,
                      svm_value *outputs, int32_t n_outputs, svm_error *error) {
  static const svm_call_options DEFAULTS = {.strategy = -1};
  svm_error unasked;
  error = error ? error : &unasked;
  options = options ? options : &DEFAULTS;
  error->code = SVM_OK;
  error->function = -1;
  if (status_need(p, "svm_call: program", error) ||
      check_memory(values, n_inputs, allocator, outputs, n_outputs, error))
    return error->code;
  if (n_outputs > 0) memset(outputs, 0, (size_t)n_outputs * sizeof *outputs);
  context *x = context_enter(p, error);
  if (!x) return error->code;
  call c = {.program = p,
            .contract = contract_of(p, function),
            .context = x,
            .strategy = strategy_of(p, options, function),
            .error = error};
  float_mode host = float_mode_set();
  int was_blocked = mapping_arm(&p->image.weights);
  threads_enter_call();
  int32_t code = check_strategy(c.strategy, error);
  if (!code) code = check_call(p, options, function, n_inputs, n_outputs, error);
  if (!code) code = check_weights_before(&c);
  if (!code) code = call_checked(&c, options, function, values, n_inputs, allocator, outputs);
  if (code) error->source = program_keep_source(p, error->source);
  threads_leave_call();
  mapping_disarm(was_blocked);
  float_mode_restore(host);
  context_leave(p, x);
  return code;
}
