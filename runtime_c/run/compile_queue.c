/* Exact code on demand: when an entry is queued, how compiled code comes in, what is evicted. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/threads.h"
#include "run/run.h"

enum {
  MAX_DOUBLINGS = 20,
  LOOK_MS = 20,    /* between two looks at what may stop a call that waits */
  MAX_QUEUE = 1024 /* requests that wait under auto: their entries stay, however many shapes there are */
};

/* The queue ------------------------------------------------------------------------------------ */

static int is_exact(const entry *e) {
  const instance *code = atomic_load(&e->code);
  return code && code->tier == SVM_TIER_EXACT;
}

static int is_pending(int32_t state) { return state == SVM_ENTRY_QUEUED || state == SVM_ENTRY_COMPILING; }

static void set_state(svm_program *p, entry *e, int32_t state) {
  p->stats.n_pending += is_pending(state) - is_pending(atomic_load(&e->state));
  atomic_store(&e->state, state);
}

static void queue_put(svm_program *p, entry *e) {
  set_state(p, e, SVM_ENTRY_QUEUED);
  e->next_queued = NULL;
  if (p->queue_tail) p->queue_tail->next_queued = e;
  else p->queue_head = e;
  p->queue_tail = e;
  p->stats.n_queued++;
  pthread_cond_broadcast(&p->changed);
}

static entry *queue_take(svm_program *p) {
  entry *e = p->queue_head;
  if (!e) return NULL;
  p->queue_head = e->next_queued;
  if (!p->queue_head) p->queue_tail = NULL;
  p->stats.n_queued--;
  return e;
}

void queue_clear(svm_program *p) {
  for (entry *e; (e = queue_take(p));) set_state(p, e, SVM_ENTRY_IDLE);
}

void queue_restore(svm_program *p) {
  for (int32_t i = 0; i < p->n_kernels; i++) {
    const call_site *s = &p->kernels[i].site;
    const entry_table *t = atomic_load(&s->many);
    for (uint64_t j = 0; j < (t ? t->mask + 1 : MAX_POLYMORPHIC); j++) {
      entry *e = t ? atomic_load(&t->slots[j]) : atomic_load(&s->few[j]);
      if (e) e->n_waiting = 0; /* who waited is gone */
      if (e && atomic_load(&e->state) == SVM_ENTRY_COMPILING) queue_put(p, e);
    }
  }
  p->stats.n_waiting = p->stats.n_hurries = 0; /* who waited is gone */
}

/* Strategies under which missing exact code is compiled. */
static int may_compile(int32_t strategy) { return SVM_COMPILING >> strategy & 1; }

/* Executions after which an entry asks: those that make it hot, and under auto, while nobody is in a hurry,
 * those that may pay for the answer. */
static int64_t wanted_executions(const svm_program *p, const entry *e, int32_t strategy) {
  int32_t doublings = e->n_refusals < MAX_DOUBLINGS ? e->n_refusals : MAX_DOUBLINGS;
  int64_t hot = strategy == SVM_STRATEGY_JIT && !doublings ? 0 : (int64_t)p->options.hot_calls << doublings;
  if (strategy != SVM_STRATEGY_AUTO || p->stats.n_hurries) return hot;
  const svm_price *price = &p->kernels[e->kernel].price;
  int64_t per_run;
  if (__builtin_add_overflow(price->per_launch, e->work, &per_run)) per_run = INT64_MAX;
  int64_t paying = per_run > 0 ? price->work / per_run : price->work;
  int64_t later = paying > e->again_after ? paying : e->again_after;
  return later > hot ? later : hot;
}

int64_t entry_count(svm_program *p, entry *e, int32_t strategy, int64_t now, int64_t n) {
  int32_t state = atomic_load(&e->state);
  int may_ask = state == SVM_ENTRY_IDLE || (state == SVM_ENTRY_DECLINED && strategy == SVM_STRATEGY_JIT);
  if (is_exact(e) || !may_ask || !may_compile(strategy) || !atomic_load(&p->is_attached)) return NOTHING_LEFT;
  e->executions += e->counted_at != now ? n : 0; /* a plan may use an entry many times */
  e->counted_at = now;
  int64_t missing = wanted_executions(p, e, strategy) - e->executions;
  if (missing > 0) return missing;
  if (strategy == SVM_STRATEGY_AUTO && p->stats.n_queued >= MAX_QUEUE) return 1;
  queue_put(p, e);
  return NOTHING_LEFT;
}

/* Ask for an entry that is hot by now, under the program's strategy. */
static void count_none(svm_program *p, entry *e) {
  entry_count(p, e, atomic_load(&p->strategy), e->counted_at, 0);
}

void entry_price(svm_program *p, entry *e) {
  int64_t from = p->kernels[e->kernel].price.declined_from;
  if (from && e->work >= from && atomic_load(&e->state) == SVM_ENTRY_IDLE && !is_exact(e))
    set_state(p, e, SVM_ENTRY_DECLINED);
}

/* Let a compiler that waits for requests look up. */
static void nudge(svm_program *p) {
  p->is_nudged = 1;
  pthread_cond_broadcast(&p->changed);
}

static int32_t fail_wait(const svm_program *p, const entry *e, svm_error *error) {
  const svm_kernel_info *k = &p->kernels[e->kernel].info;
  if (atomic_load(&e->state) == SVM_ENTRY_FAILED) {
    return status_fail(error, SVM_ERROR_COMPILE, "kernel \"%.100s\" could not be compiled: %.700s", k->label,
                       e->failure);
  }
  return status_fail(error, SVM_ERROR_COMPILE,
                     "kernel \"%.100s\" needs exact code and no compiler is attached; use strategy generic, "
                     "or load where a compiler is",
                     k->label);
}

/* Wait for a change while there is nothing to watch, else for a moment; the lock is free during the look. */
static int32_t wait_or_look(svm_program *p, watch *w) {
  if (!w) return pthread_cond_wait(&p->changed, &p->lock), SVM_OK;
  struct timespec soon = threads_deadline(LOOK_MS);
  if (pthread_cond_timedwait(&p->changed, &p->lock, &soon) != ETIMEDOUT) return SVM_OK;
  pthread_mutex_unlock(&p->lock);
  int32_t code = watch_look(w);
  pthread_mutex_lock(&p->lock);
  return code;
}

int32_t entry_wait(svm_program *p, entry *e, int wants_exact, watch *w, svm_error *error) {
  if (is_exact(e) || (!wants_exact && atomic_load(&e->code))) return SVM_OK;
  int32_t code = SVM_OK;
  pthread_mutex_lock(&p->lock);
  e->n_waiting++;
  p->stats.n_waiting++;
  if (atomic_load(&e->state) == SVM_ENTRY_COMPILING) nudge(p); /* it may wait for its turn there */
  while (!is_exact(e)) {
    if (!atomic_load(&p->is_attached) || atomic_load(&e->state) == SVM_ENTRY_FAILED) {
      code = fail_wait(p, e, error);
      break;
    }
    int32_t state = atomic_load(&e->state);
    if (state == SVM_ENTRY_IDLE || state == SVM_ENTRY_DECLINED) queue_put(p, e);
    if (wait_or_look(p, w)) {
      code = watch_fail(w, error);
      break;
    }
  }
  e->n_waiting--;
  p->stats.n_waiting--;
  pthread_mutex_unlock(&p->lock);
  return code;
}

int32_t entry_prepare(const call *c, entry *e) {
  svm_program *p = c->program;
  int32_t strategy = c->strategy;
  if (is_exact(e) || (!may_compile(strategy) && atomic_load(&e->code))) return SVM_OK;
  if (strategy == SVM_STRATEGY_AUTO && atomic_load(&p->is_attached) &&
      atomic_load(&e->state) == SVM_ENTRY_IDLE) {
    pthread_mutex_lock(&p->lock);
    entry_count(p, e, strategy, c->number, 1);
    pthread_mutex_unlock(&p->lock);
  }
  return entry_wait(p, e, strategy == SVM_STRATEGY_JIT, c->watch, c->error);
}

/* The compiler's side -------------------------------------------------------------------------- */

void svm_attach_compiler(svm_program *p, int32_t attached) {
  pthread_mutex_lock(&p->lock);
  atomic_store(&p->is_attached, attached != 0);
  if (!attached) queue_clear(p);
  atomic_fetch_add(&p->generation, 1);
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
}

int32_t svm_request_wait(svm_program *p, int32_t timeout_ms, svm_request *request) {
  struct timespec deadline = threads_deadline(timeout_ms);
  int32_t found = 0;
  entry *e = NULL;
  pthread_mutex_lock(&p->lock);
  while (atomic_load(&p->is_attached) && !(e = queue_take(p)) && !p->is_nudged) {
    if (pthread_cond_timedwait(&p->changed, &p->lock, &deadline) == ETIMEDOUT) break;
  }
  if (e) {
    set_state(p, e, SVM_ENTRY_COMPILING);
    *request = (svm_request){.kernel = e->kernel,
                             .n_dims = e->n_dims,
                             .runs = e->executions,
                             .is_awaited = e->n_waiting > 0 || !atomic_load(&e->code)};
    memcpy(request->dims, e->dims, (size_t)e->n_dims * sizeof *e->dims);
    found = 1;
  } else if (!atomic_load(&p->is_attached)) {
    found = -1;
  }
  if (!e) p->is_nudged = 0;
  pthread_mutex_unlock(&p->lock);
  return found;
}

/* The kernel that a request named, NULL where there is none of that number of dims. */
static const kernel *requested(svm_program *p, int32_t index, int32_t n_dims, const char *function,
                               svm_error *error) {
  if (index >= 0 && index < p->n_kernels && n_dims == p->kernels[index].info.n_dims)
    return &p->kernels[index];
  if (error) status_fail(error, SVM_ERROR_ARGUMENT, "%s: no kernel %d with %d dims", function, index, n_dims);
  return NULL;
}

int32_t svm_compile_failed(svm_program *p, int32_t kernel_index, const int64_t *dims, int32_t n_dims,
                           const char *message, svm_error *error) {
  const kernel *k = requested(p, kernel_index, n_dims, "svm_compile_failed", error);
  if (!k) return SVM_ERROR_ARGUMENT;
  pthread_mutex_lock(&p->lock);
  entry *e = site_lookup(k, dims);
  if (e && !is_exact(e)) {
    free(e->failure);
    e->failure = strdup(message ? message : "");
    set_state(p, e, e->failure ? SVM_ENTRY_FAILED : SVM_ENTRY_IDLE);
    p->stats.n_failed++;
  }
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
  return SVM_OK;
}

int32_t svm_decline_request(svm_program *p, int32_t kernel_index, const int64_t *dims, int32_t n_dims,
                            int64_t again_after, svm_error *error) {
  const kernel *k = requested(p, kernel_index, n_dims, "svm_decline_request", error);
  if (!k) return SVM_ERROR_ARGUMENT;
  pthread_mutex_lock(&p->lock);
  entry *e = site_lookup(k, dims);
  if (e && atomic_load(&e->state) == SVM_ENTRY_COMPILING) {
    e->again_after = again_after;
    set_state(p, e, again_after > 0 ? SVM_ENTRY_IDLE : SVM_ENTRY_DECLINED);
    if (again_after > 0) atomic_fetch_add(&p->generation, 1);    /* plans count it again */
    if (again_after > 0 && p->stats.n_hurries) count_none(p, e); /* the hurry began after the request */
  }
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
  return SVM_OK;
}

int32_t svm_is_awaited(svm_program *p, int32_t kernel_index, const int64_t *dims, int32_t n_dims) {
  const kernel *k = requested(p, kernel_index, n_dims, "svm_is_awaited", NULL);
  if (!k) return 0;
  pthread_mutex_lock(&p->lock);
  const entry *e = site_lookup(k, dims);
  int32_t is_awaited = e && e->n_waiting > 0;
  pthread_mutex_unlock(&p->lock);
  return is_awaited;
}

/* Prices --------------------------------------------------------------------------------------- */

static void for_each_entry(svm_program *p, int32_t index, void (*visit)(svm_program *, entry *)) {
  const call_site *s = &p->kernels[index].site;
  const entry_table *t = atomic_load(&s->many);
  for (uint64_t i = 0; i < (t ? t->mask + 1 : MAX_POLYMORPHIC); i++) {
    entry *e = t ? atomic_load(&t->slots[i]) : atomic_load(&s->few[i]);
    if (e) visit(p, e);
  }
}

int32_t svm_set_price(svm_program *p, int32_t kernel_index, const svm_price *price, svm_error *error) {
  if (kernel_index < 0 || kernel_index >= p->n_kernels || price->work < 0 || price->per_launch < 0 ||
      price->declined_from < 0)
    return status_fail(error, SVM_ERROR_ARGUMENT, "svm_set_price: kernel %d of %d, or a negative number",
                       kernel_index, p->n_kernels);
  pthread_mutex_lock(&p->lock);
  p->kernels[kernel_index].price = *price;
  for_each_entry(p, kernel_index, entry_price);
  pthread_mutex_unlock(&p->lock);
  return SVM_OK;
}

void svm_hurry(svm_program *p, int32_t is_hurried) {
  pthread_mutex_lock(&p->lock);
  if (is_hurried) p->stats.n_hurries++;
  else if (p->stats.n_hurries) p->stats.n_hurries--;
  if (is_hurried && atomic_load(&p->strategy) == SVM_STRATEGY_AUTO) {
    plans_count(p);
    for (int32_t i = 0; i < p->n_kernels; i++) for_each_entry(p, i, count_none);
  }
  nudge(p);
  pthread_mutex_unlock(&p->lock);
}

/* Eviction ------------------------------------------------------------------------------------- */

/* Exact code may go when it was installed (not the artifact's) and other code takes its place. */
static int is_evictable(const entry *e) { return e->exact && e->exact->map.memory && entry_fallback(e); }

/* Without memory for that the code is never evicted. */
static void rank(svm_program *p, entry *e) {
  if (is_evictable(e) && !e->is_ranked) e->is_ranked = lru_put(&p->exact_used, e, &e->last_used);
}

static void drop_exact(svm_program *p, entry *e, const instance *instead) {
  installed *old = e->exact;
  e->exact = NULL;
  atomic_store(&e->code, instead);
  p->stats.code_bytes -= (int64_t)old->map.size;
  retire(p, old, installed_free);
}

/* Evict the least recently used exact code until the limit holds again; `kept` is what came in just now. */
static void evict(svm_program *p, const entry *kept) {
  int64_t most = p->options.code_bytes_max;
  if (!most || p->stats.code_bytes <= most) return;
  plans_stamp_entries(p);
  for (entry *e; p->stats.code_bytes > most && (e = lru_take(&p->exact_used, kept));) {
    e->is_ranked = 0;
    drop_exact(p, e, entry_fallback(e));
    e->n_refusals++;
    e->executions = 0;
    set_state(p, e, SVM_ENTRY_IDLE);
    p->stats.code_evicted++;
  }
  atomic_fetch_add(&p->generation, 1);
}

/* Installation --------------------------------------------------------------------------------- */

/* What is kept of a record lies behind its code, in the same pages. */
static int32_t map_installed(const svm_program *p, const kernel *k, installed *out, const uint8_t *code,
                             svm_error *error) {
  const svm_file_object *o = out->object.record;
  code_piece pieces[] = {{code, o->code_size, o->alignment, k->info.label},
                         {o, o->record_size, SVM_FILE_ALIGN, NULL}};
  void *starts[2];
  if (code_map_make(pieces, 2, p->options.perf_map, &out->map, starts, error)) return error->code;
  if (code_parse(k->info.label, &k->signature, starts[1], o->record_size, &out->object, error))
    return error->code;
  out->object.run = (svm_kernel_code *)(uintptr_t)((char *)starts[0] + out->object.record->entry);
  return SVM_OK;
}

static int32_t parse_installed(const svm_program *p, const kernel *k, const void *record, size_t size,
                               installed *out, svm_error *error) {
  if (code_parse(k->info.label, &k->signature, record, size, &out->object, error)) return error->code;
  const svm_file_object *o = out->object.record;
  const uint8_t *code = (const uint8_t *)o + o->record_size;
  if (o->code_offset || o->code_size != size - o->record_size) {
    return status_fail(error, SVM_ERROR_ARTIFACT,
                       "code of kernel \"%.100s\": the record is not followed by exactly its code",
                       k->info.label);
  }
  if (!code_target_rank(o->target)) {
    return status_fail(error, SVM_ERROR_TARGET,
                       "code of kernel \"%.100s\" is for %s; this CPU runs %s: compile for that",
                       k->info.label, o->target, svm_host_target());
  }
  if (code_check_hash(k->info.label, &out->object, code, error)) return error->code;
  return map_installed(p, k, out, code, error);
}

/* An entry for which the code's numbers overflow stays without it: a launch that waits for code will get the
 * error from the exact code's installation. */
static void give_to_entries(svm_program *p, kernel *k, const installed *made, svm_error *error) {
  const entry_table *t = atomic_load(&k->site.many);
  for (uint64_t i = 0; i < (t ? t->mask + 1 : MAX_POLYMORPHIC); i++) {
    entry *e = t ? atomic_load(&t->slots[i]) : atomic_load(&k->site.few[i]);
    if (!e) continue;
    entry_give(e, k, &made->object, error);
    rank(p, e);
  }
}

static int32_t install_bucket(svm_program *p, kernel *k, installed *made, svm_error *error) {
  installed **at = &k->installed_buckets;
  while (*at) at = &(*at)->next;
  *at = made;
  k->has_buckets = 1;
  give_to_entries(p, k, made, error);
  p->stats.code_bytes += (int64_t)made->map.size;
  return SVM_OK;
}

static int32_t install_generic(svm_program *p, kernel *k, installed *made, svm_error *error) {
  if (atomic_load(&k->generic))
    return status_fail(error, SVM_ERROR_ARGUMENT, "kernel \"%.100s\" has generic code already",
                       k->info.label);
  give_to_entries(p, k, made, error);
  k->installed_generic = made;
  atomic_store(&k->generic, &made->object);
  p->stats.code_bytes += (int64_t)made->map.size;
  return SVM_OK;
}

static int32_t install_exact(svm_program *p, kernel *k, installed *made, svm_error *error) {
  entry *e;
  if (site_find_locked(p, (int32_t)(k - p->kernels), made->object.exact_dims, &e, error)) return error->code;
  if (instance_make(k, &made->object, e->dims, &made->instance, error)) return error->code;
  if (e->exact) drop_exact(p, e, &made->instance);
  e->exact = made;
  atomic_store(&e->code, &made->instance);
  set_state(p, e, SVM_ENTRY_COMPILED);
  p->stats.code_bytes += (int64_t)made->map.size;
  atomic_store(&e->last_used, atomic_load(&p->n_calls));
  rank(p, e);
  evict(p, e);
  return SVM_OK;
}

int32_t svm_install_code(svm_program *p, int32_t kernel_index, const void *record, size_t size,
                         svm_error *error) {
  svm_error unasked;
  error = error ? error : &unasked;
  if (kernel_index < 0 || kernel_index >= p->n_kernels) {
    return status_fail(error, SVM_ERROR_ARGUMENT, "svm_install_code: kernel %d of %d", kernel_index,
                       p->n_kernels);
  }
  kernel *k = &p->kernels[kernel_index];
  installed *made = calloc(1, sizeof *made);
  void *copy = malloc(size ? size : 1); /* aligned, whatever the caller's is */
  if (!made || !copy) {
    free(made), free(copy);
    return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for %zu bytes of code to install",
                       size);
  }
  int32_t code = parse_installed(p, k, memcpy(copy, record, size), size, made, error);
  free(copy);
  if (!code) {
    pthread_mutex_lock(&p->lock);
    code = made->object.exact_dims ? install_exact(p, k, made, error)
           : made->object.ranges   ? install_bucket(p, k, made, error)
                                   : install_generic(p, k, made, error);
    p->stats.code_installed += !code;
    reclaim(p, 0);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
  }
  if (code) installed_free(made);
  return code;
}

/* Installed code in the order of svm_installed_code, NULL beyond its end. Called with the lock held. */
static const installed *nth_installed(const kernel *k, int32_t index) {
  if (k->installed_generic && index-- == 0) return k->installed_generic;
  for (const installed *x = k->installed_buckets; x; x = x->next) {
    if (index-- == 0) return x;
  }
  const entry_table *t = atomic_load(&k->site.many);
  for (uint64_t i = 0; i < (t ? t->mask + 1 : MAX_POLYMORPHIC); i++) {
    const entry *e = t ? atomic_load(&t->slots[i]) : atomic_load(&k->site.few[i]);
    if (e && e->exact && e->exact->map.memory && index-- == 0) return e->exact;
  }
  return NULL;
}

/* Copy a code object, record and code, where there is room. Returns its bytes. */
static size_t copy_code(const code_object *object, void *record, size_t size) {
  const svm_file_object *o = object->record;
  size_t bytes = o->record_size + o->code_size;
  if (!record || size < bytes) return bytes;
  memcpy(record, o, o->record_size);
  ((svm_file_object *)record)->code_offset = 0; /* in an artifact the code lies elsewhere */
  memcpy((uint8_t *)record + o->record_size, (const uint8_t *)(uintptr_t)object->run - o->entry,
         o->code_size);
  return bytes;
}

size_t svm_installed_code(svm_program *p, int32_t kernel_index, int32_t index, void *record, size_t size) {
  if (kernel_index < 0 || kernel_index >= p->n_kernels || index < 0) return 0;
  pthread_mutex_lock(&p->lock);
  const installed *found = nth_installed(&p->kernels[kernel_index], index);
  size_t bytes = found ? copy_code(&found->object, record, size) : 0;
  pthread_mutex_unlock(&p->lock);
  return bytes;
}

size_t svm_generic_code(svm_program *p, int32_t kernel_index, void *record, size_t size) {
  if (kernel_index < 0 || kernel_index >= p->n_kernels) return 0;
  const code_object *found = atomic_load(&p->kernels[kernel_index].generic); /* it stays */
  return found ? copy_code(found, record, size) : 0;
}
