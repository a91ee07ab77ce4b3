/* The rest of the API: opening and closing, the contract's queries, host functions, statistics. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>

#include "base/status.h"
#include "base/xxh3.h"
#include "program/weights.h"
#include "run/compile_queue.h"
#include "run/contract.h"
#include "run/extern.h"
#include "run/lifetime.h"
#include "run/plan.h"

_Static_assert(SVM_MESSAGE_BYTES == sizeof((svm_error *)0)->message, "svm.h agrees with itself");

int32_t svm_api_version(void) { return 1000 * SVM_API_MAJOR + SVM_API_MINOR; }

/* Opening -------------------------------------------------------------------------------------- */

void svm_options_init(svm_options *options) {
  if (!options) return;
  *options = (svm_options){.strategy = SVM_STRATEGY_AUTO,
                           .hot_calls = SVM_DEFAULT_HOT_CALLS,
                           .native_code = 1,
                           .code_bytes_max = SVM_DEFAULT_CODE_BYTES,
                           .plans_max = SVM_DEFAULT_PLANS,
                           .plan_bytes_max = SVM_DEFAULT_PLAN_BYTES};
}

static int32_t check_options(const svm_options *o, svm_error *error) {
  if (check_strategy(o->strategy, error)) return error->code;
  if (o->hot_calls < 0 || o->code_bytes_max < 0 || o->plans_max < 0 || o->plan_bytes_max < 0 || o->fuel < 0 ||
      o->memory_max < 0 || o->timeout_ms < 0) {
    return status_fail(error, SVM_ERROR_ARGUMENT, "options: a limit is negative; 0 means no limit");
  }
  if (o->verify < SVM_VERIFY_AUTO || o->verify > SVM_VERIFY_NONE || o->copy < SVM_COPY_AUTO ||
      o->copy > SVM_COPY_NEVER) {
    return status_fail(error, SVM_ERROR_ARGUMENT, "options: verify %d must be 0 to 3, copy %d 0 to 2",
                       o->verify, o->copy);
  }
  if (o->huge_pages < SVM_HUGE_PAGES_AUTO || o->huge_pages > SVM_HUGE_PAGES_NEVER)
    return status_fail(error, SVM_ERROR_ARGUMENT, "options: huge_pages %d must be 0 to 2", o->huge_pages);
  return SVM_OK;
}

/* Set a limit; 0 means the greatest. */
static int32_t limit_depth(_Atomic int32_t *limit, int32_t wanted, int32_t greatest, const char *name,
                           svm_error *error) {
  if (wanted < 0 || wanted > greatest)
    return status_fail(error, SVM_ERROR_ARGUMENT, "svm_limit_depth: %s %d must be 0 (the greatest) to %d",
                       name, wanted, greatest);
  atomic_store_explicit(limit, wanted ? wanted : greatest, memory_order_relaxed);
  return SVM_OK;
}

int32_t svm_limit_depth(svm_program *p, int32_t calls, int32_t nesting, svm_error *error) {
  if (status_need(p, "svm_limit_depth: program", error)) return SVM_ERROR_ARGUMENT;
  svm_error unasked;
  error = error ? error : &unasked;
  int32_t code = limit_depth(&p->switches.max_calls, calls, SVM_LIMIT_CALL_DEPTH, "call_depth", error);
  return code ? code : limit_depth(&p->switches.max_nesting, nesting, SVM_LIMIT_NESTING, "nesting", error);
}

int32_t svm_use_bands(svm_program *p, int32_t bands, svm_error *error) {
  if (status_need(p, "svm_use_bands: program", error)) return SVM_ERROR_ARGUMENT;
  svm_error unasked;
  if (bands < SVM_BANDS_AUTO || bands > SVM_BANDS_NEVER)
    return status_fail(error ? error : &unasked, SVM_ERROR_ARGUMENT, "svm_use_bands: %d must be 0 to 2",
                       bands);
  atomic_store_explicit(&p->switches.bands, bands, memory_order_relaxed);
  return SVM_OK;
}

/* Where an artifact is: `size` bytes at `data`, or an open file of that path. */
typedef struct place {
  const void *data;
  size_t size;
  int file;
  const char *path;
} place;

static int32_t open_program(place from, const svm_options *options, svm_program **out, svm_error *error) {
  svm_error unasked;
  error = error ? error : &unasked;
  status_clear(error);
  *out = NULL;
  svm_program *p = program_new(error);
  if (!p) return error->code;
  svm_options_init(&p->options);
  if (options) p->options = *options;
  atomic_init(&p->switches.strategy, p->options.strategy);
  atomic_init(&p->switches.max_calls, SVM_DEFAULT_CALL_DEPTH);
  atomic_init(&p->switches.max_nesting, SVM_DEFAULT_NESTING);
  atomic_init(&p->epochs.now, 1);
  int32_t code = check_options(&p->options, error);
  const svm_options *o = &p->options;
  if (!code)
    code = from.path ? image_open_file(&p->image, from.file, from.path, o, error)
                     : image_open_memory(&p->image, from.data, from.size, o, error);
  if (!code) code = load_tables(p, error);
  if (!code) code = load_kernels(p, error);
  if (!code) code = verify_program(p, error);
  if (!code) code = weights_begin(p, error);
  if (code) svm_close(p);
  else *out = p;
  return code;
}

int32_t svm_open_path(const char *path, const svm_options *options, svm_program **program, svm_error *error) {
  if (status_need(program, "svm_open_path: program", error) ||
      status_need(path, "svm_open_path: path", error))
    return SVM_ERROR_ARGUMENT;
  svm_error unasked;
  error = error ? error : &unasked;
  *program = NULL;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return mapping_fail(path, "cannot open it", error);
  int32_t code = svm_open_file(file, path, options, program, error);
  close(file);
  return code;
}

int32_t svm_open_file(int32_t file, const char *path, const svm_options *options, svm_program **program,
                      svm_error *error) {
  if (status_need(program, "svm_open_file: program", error) ||
      status_need(path, "svm_open_file: path", error))
    return SVM_ERROR_ARGUMENT;
  return open_program((place){.file = file, .path = path}, options, program, error);
}

int32_t svm_open_memory(const void *data, size_t size, const svm_options *options, svm_program **program,
                        svm_error *error) {
  if (status_need(program, "svm_open_memory: program", error) ||
      status_need(data, "svm_open_memory: data", error))
    return SVM_ERROR_ARGUMENT;
  return open_program((place){.data = data, .size = size}, options, program, error);
}

/* Queries -------------------------------------------------------------------------------------- */

/* An empty program replaces NULL. */
static const svm_program *of(const svm_program *p) {
  static svm_program none;
  return p ? p : &none;
}

int32_t svm_n_inputs(const svm_program *p) { return svm_function_n_inputs(p, 0); }
int32_t svm_n_outputs(const svm_program *p) { return svm_function_n_outputs(p, 0); }
int32_t svm_n_symbols(const svm_program *p) { return of(p)->io.n_symbols; }
int32_t svm_n_functions(const svm_program *p) { return of(p)->n_functions; }
int32_t svm_n_kernels(const svm_program *p) { return of(p)->n_kernels; }
int32_t svm_n_externs(const svm_program *p) { return of(p)->n_externs; }
int32_t svm_main_function(const svm_program *p) { return (void)p, 0; }

static int is_in(int32_t index, int32_t n) { return index >= 0 && index < n; }

int32_t svm_is_entry_point(const svm_program *p, int32_t function) {
  return contract_of(p, function) != NULL;
}

int32_t svm_is_repeatable(const svm_program *p, int32_t function) {
  const contract *k = contract_of(p, function);
  return k && (!k->writes || contract_is_planned(k)) && (!p->n_externs || k->is_static);
}

int32_t svm_function_n_inputs(const svm_program *p, int32_t function) {
  const contract *k = contract_of(p, function);
  return k ? k->n_inputs : 0;
}
int32_t svm_function_n_outputs(const svm_program *p, int32_t function) {
  const contract *k = contract_of(p, function);
  return k ? k->n_outputs : 0;
}
const svm_input_info *svm_function_input(const svm_program *p, int32_t function, int32_t i) {
  const contract *k = contract_of(p, function);
  return k && is_in(i, k->n_inputs) ? &k->inputs[i] : NULL;
}
const svm_output_info *svm_function_output(const svm_program *p, int32_t function, int32_t i) {
  const contract *k = contract_of(p, function);
  return k && is_in(i, k->n_outputs) ? &k->outputs[i] : NULL;
}
int32_t svm_function_writes(const svm_program *p, int32_t function, int32_t i) {
  const contract *k = contract_of(p, function);
  return k && is_in(i, k->n_inputs) && k->memory[i] & WRITTEN;
}
int32_t svm_function_in_rows(const svm_program *p, int32_t function, int32_t i) {
  const contract *k = contract_of(p, function);
  return k && is_in(i, k->n_inputs) && k->memory[i] & IN_ROWS;
}

const svm_input_info *svm_input(const svm_program *p, int32_t i) { return svm_function_input(p, 0, i); }
const svm_output_info *svm_output(const svm_program *p, int32_t i) { return svm_function_output(p, 0, i); }

int64_t svm_output_size(const svm_program *p, int32_t output, int32_t axis, const int64_t *symbols) {
  return svm_function_output_size(p, 0, output, axis, symbols);
}

int64_t svm_function_output_size(const svm_program *p, int32_t function, int32_t output, int32_t axis,
                                 const int64_t *symbols) {
  const svm_output_info *info = svm_function_output(p, function, output);
  if (!info || !is_in(axis, info->rank)) return -1;
  const svm_axis_info *a = &info->axes[axis];
  int64_t size = 0;
  if (a->symbol == SVM_FILE_EXPRESSION) return -1;
  if (a->symbol >= 0 && !symbols) return -1;
  if (a->symbol >= 0 && __builtin_mul_overflow(a->scale, symbols[a->symbol], &size)) return -1;
  return __builtin_add_overflow(size, a->offset, &size) || size < 0 ? -1 : size;
}

const svm_symbol_info *svm_symbol(const svm_program *p, int32_t i) {
  return is_in(i, of(p)->io.n_symbols) ? &p->io.symbols[i] : NULL;
}
const svm_function_info *svm_function(const svm_program *p, int32_t i) {
  return is_in(i, of(p)->n_functions) ? &p->functions[i].info : NULL;
}
const svm_kernel_info *svm_kernel(const svm_program *p, int32_t i) {
  return is_in(i, of(p)->n_kernels) ? &p->kernels[i].info : NULL;
}
const char *svm_extern_source(const svm_program *p, int32_t i) {
  if (!is_in(i, of(p)->n_externs)) return NULL;
  return function_source(p, p->externs[i].first_call.function, p->externs[i].first_call.pc);
}

int32_t svm_extern_kind(const svm_program *p, int32_t i) {
  return is_in(i, of(p)->n_externs) ? p->externs[i].kind : -1;
}

int32_t svm_extern_is_missing(const svm_program *p, int32_t i) {
  return is_in(i, of(p)->n_externs) && !extern_is_registered(&p->externs[i]);
}

const char *svm_extern_name(const svm_program *p, int32_t i) {
  return is_in(i, of(p)->n_externs) ? p->externs[i].name : NULL;
}

int32_t svm_find_function(const svm_program *p, const char *name) {
  for (int32_t i = 0; name && i < of(p)->n_functions; i++) {
    if (!strcmp(p->functions[i].info.name, name)) return i;
  }
  return -1;
}

int32_t svm_meta(const svm_program *p, const char **text, size_t *size, svm_error *error) {
  if (status_need(p, "svm_meta: program", error) || status_need(text, "svm_meta: text", error) ||
      status_need(size, "svm_meta: size", error))
    return SVM_ERROR_ARGUMENT;
  const section *s = &p->image.sections[SVM_SECTION_META];
  *text = (const char *)s->data;
  *size = s->size;
  return SVM_OK;
}

int32_t svm_check_file(svm_program *p, svm_error *error) {
  if (status_need(p, "svm_check_file: program", error)) return SVM_ERROR_ARGUMENT;
  svm_error unasked;
  error = error ? error : &unasked;
  int was_touched;
  int32_t code = weights_status(p, error);
  return code ? code : image_check_file(&p->image, &was_touched, error);
}

int32_t svm_check_weights(svm_program *p, svm_error *error) {
  if (status_need(p, "svm_check_weights: program", error)) return SVM_ERROR_ARGUMENT;
  svm_error unasked;
  int32_t code = weights_finish(p, error ? error : &unasked);
  return code ? code : svm_check_file(p, error);
}

void svm_hash_chunk(const void *data, size_t size, uint64_t *hash) {
  enum { LEAST_BYTES = 241 }; /* fewer are hashed otherwise */
  if (!hash) return;
  xxh3_hash found = data && size >= LEAST_BYTES ? xxh3_128(data, size) : (xxh3_hash){0};
  hash[0] = found.low, hash[1] = found.high;
}

/* Strategy ------------------------------------------------------------------------------------- */

int32_t svm_set_strategy(svm_program *p, int32_t strategy, svm_error *error) {
  if (status_need(p, "svm_set_strategy: program", error)) return SVM_ERROR_ARGUMENT;
  svm_error unasked;
  svm_options changed = p->options;
  changed.strategy = strategy;
  int32_t code = check_options(&changed, error ? error : &unasked);
  if (code) return code;
  atomic_store(&p->switches.strategy, strategy);
  atomic_fetch_add(&p->plans.generation, 1);
  return SVM_OK;
}

int32_t svm_set_function_strategy(svm_program *p, int32_t function, int32_t strategy, svm_error *error) {
  if (status_need(p, "svm_set_function_strategy: program", error)) return SVM_ERROR_ARGUMENT;
  svm_error unasked;
  error = error ? error : &unasked;
  if (!is_in(function, p->n_functions))
    return status_fail(error, SVM_ERROR_ARGUMENT, "svm_set_function_strategy: function %d of %d", function,
                       p->n_functions);
  int32_t code = strategy == -1 ? SVM_OK : check_strategy(strategy, error);
  if (!code) atomic_store(&p->functions[function].own_strategy, strategy + 1);
  return code;
}

void svm_hurry(svm_program *p, int32_t is_hurried) {
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  if (is_hurried) p->stats.n_hurries++;
  else if (p->stats.n_hurries) p->stats.n_hurries--;
  if (is_hurried && atomic_load(&p->switches.strategy) == SVM_STRATEGY_AUTO) {
    plans_count(p);
    queue_ask(p);
  }
  if (is_hurried) queue_nudge(p);
  pthread_mutex_unlock(&p->lock);
}

/* Statistics ----------------------------------------------------------------------------------- */

void svm_get_stats(svm_program *p, svm_stats *stats) {
  if (stats) *stats = (svm_stats){0};
  if (!p || !stats) return;
  pthread_mutex_lock(&p->lock);
  *stats = p->stats;
  pthread_mutex_unlock(&p->lock);
  stats->calls = atomic_load(&p->counters.n_calls);
  stats->replays = atomic_load(&p->counters.n_replays);
  stats->traces = atomic_load(&p->counters.n_traces);
  stats->interpreted = atomic_load(&p->counters.n_interpreted);
  stats->extern_calls = atomic_load(&p->counters.n_extern_calls);
  for (context *c = atomic_load(&p->epochs.contexts); c; c = c->next) {
    stats->n_contexts++;
    stats->arena_bytes += atomic_load_explicit(&c->arena.n_bytes_seen, memory_order_relaxed);
  }
}

int32_t svm_get_site(svm_program *p, int32_t kernel, svm_site_stats *stats) {
  if (stats) memset(stats, 0, sizeof *stats);
  if (!stats || !is_in(kernel, of(p)->n_kernels)) return SVM_ERROR_ARGUMENT;
  call_site *s = &p->kernels[kernel].site;
  pthread_mutex_lock(&p->lock);
  plans_credit(p);
  int32_t n = atomic_load(&s->n_entries);
  stats->n_entries = n;
  stats->state = n == 0                 ? SVM_SITE_UNINITIALISED
                 : n == 1               ? SVM_SITE_MONOMORPHIC
                 : n <= MAX_POLYMORPHIC ? SVM_SITE_POLYMORPHIC
                                        : SVM_SITE_MEGAMORPHIC;
  stats->hits = atomic_load(&s->hits);
  stats->misses = s->misses;
  stats->outside = s->outside;
  stats->by_combination = s->by_combination;
  memcpy(stats->by_dim, s->by_dim, sizeof stats->by_dim);
  pthread_mutex_unlock(&p->lock);
  return SVM_OK;
}

static const entry *nth_entry(const call_site *s, int32_t index) {
  const entry *e = NULL;
  for (uint64_t i = 0; (e = site_next(s, &i)) && index;) index--;
  return e;
}

static void describe_entry(svm_program *p, const entry *e, svm_entry_stats *out) {
  const instance *code = entry_code(e, atomic_load(&p->switches.strategy));
  out->n_dims = e->n_dims;
  out->tier = code ? code->tier : SVM_TIER_NONE;
  out->state = atomic_load(&e->state);
  out->new_dims = e->new_dims;
  memcpy(out->dims, e->dims, (size_t)e->n_dims * sizeof *e->dims);
  out->hits = atomic_load(&e->hits);
  if (e->request.failure) strncpy(out->failure, e->request.failure, sizeof out->failure - 1);
  if (!code) return;
  out->n_tiles = code->n_tiles;
  out->code_bytes = (int64_t)code->object->record->code_size;
  memcpy(out->schedule, code->object->record->schedule, sizeof out->schedule);
}

int32_t svm_get_entry(svm_program *p, int32_t kernel, int32_t index, svm_entry_stats *stats) {
  if (stats) memset(stats, 0, sizeof *stats);
  if (!stats || !is_in(kernel, of(p)->n_kernels) || index < 0) return SVM_ERROR_ARGUMENT;
  pthread_mutex_lock(&p->lock);
  plans_credit(p);
  const entry *e = nth_entry(&p->kernels[kernel].site, index);
  if (e) describe_entry(p, e, stats);
  pthread_mutex_unlock(&p->lock);
  return e ? SVM_OK : SVM_ERROR_ARGUMENT;
}
