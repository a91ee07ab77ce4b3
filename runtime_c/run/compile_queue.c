/* Exact code on demand: when an entry is queued, who waits for it, how the compiler answers. */
#include "run/compile_queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/threads.h"

enum {
  MAX_DOUBLINGS = 20,
  LOOK_MS = 20,    /* between two looks at what may stop a call that waits */
  MAX_QUEUE = 1024 /* requests that wait under auto: their entries stay, however many shapes there are */
};

/* The queue ------------------------------------------------------------------------------------ */

static void queue_put(svm_program *p, entry *e) {
  entry_set_state(p, e, SVM_ENTRY_QUEUED);
  e->request.next = NULL;
  if (p->queue.tail) p->queue.tail->request.next = e;
  else p->queue.head = e;
  p->queue.tail = e;
  p->stats.n_queued++;
  pthread_cond_broadcast(&p->changed);
}

static entry *queue_take(svm_program *p) {
  entry *e = p->queue.head;
  if (!e) return NULL;
  p->queue.head = e->request.next;
  if (!p->queue.head) p->queue.tail = NULL;
  p->stats.n_queued--;
  return e;
}

void queue_clear(svm_program *p) {
  for (entry *e; (e = queue_take(p));) entry_set_state(p, e, SVM_ENTRY_IDLE);
}

void queue_restore(svm_program *p) {
  entry *e;
  for (const kernel *k = p->kernels; k < p->kernels + p->n_kernels; k++) {
    for (uint64_t i = 0; (e = site_next(&k->site, &i));) {
      e->request.n_waiting = 0; /* who waited is gone */
      if (atomic_load(&e->state) == SVM_ENTRY_COMPILING) queue_put(p, e);
    }
  }
  p->stats.n_waiting = p->stats.n_hurries = p->queue.n_listening = 0; /* who waited is gone */
  p->queue.is_paused = p->queue.is_known = 0;
}

/* Strategies under which missing exact code is compiled. */
static int may_compile(int32_t strategy) { return SVM_COMPILING >> strategy & 1; }

/* Executions after which an entry requests code: those that make it hot and, under auto unless in a hurry,
 * those that may pay for it. */
static int64_t wanted_executions(const svm_program *p, const entry *e, int32_t strategy) {
  int32_t doublings = e->request.n_refusals < MAX_DOUBLINGS ? e->request.n_refusals : MAX_DOUBLINGS;
  int64_t hot = strategy == SVM_STRATEGY_JIT && !doublings ? 0 : (int64_t)p->options.hot_calls << doublings;
  if (strategy != SVM_STRATEGY_AUTO || p->stats.n_hurries) return hot;
  const svm_price *price = &p->kernels[e->kernel].price;
  int64_t per_run;
  if (__builtin_add_overflow(price->per_launch, e->work, &per_run)) per_run = INT64_MAX;
  int64_t paying = per_run > 0 ? price->work / per_run : price->work;
  int64_t later = paying > e->request.again_after ? paying : e->request.again_after;
  return later > hot ? later : hot;
}

int64_t entry_count(svm_program *p, entry *e, int32_t strategy, int64_t now, int64_t n) {
  int32_t state = atomic_load(&e->state);
  int may_ask = state == SVM_ENTRY_IDLE || (state == SVM_ENTRY_DECLINED && strategy == SVM_STRATEGY_JIT);
  if (entry_is_exact(e) || !may_ask || !may_compile(strategy) || !atomic_load(&p->queue.is_attached))
    return NOTHING_LEFT;
  e->request.executions += e->request.counted_at != now ? n : 0; /* a plan may use an entry many times */
  e->request.counted_at = now;
  int64_t missing = wanted_executions(p, e, strategy) - e->request.executions;
  if (missing > 0) return missing;
  if (strategy == SVM_STRATEGY_AUTO && p->stats.n_queued >= MAX_QUEUE) return 1;
  queue_put(p, e);
  return NOTHING_LEFT;
}

/* Ask for an entry that is hot by now, under the program's strategy. */
static void count_none(svm_program *p, entry *e) {
  entry_count(p, e, atomic_load(&p->switches.strategy), e->request.counted_at, 0);
}

void queue_ask(svm_program *p) {
  entry *e;
  for (const kernel *k = p->kernels; k < p->kernels + p->n_kernels; k++)
    for (uint64_t i = 0; (e = site_next(&k->site, &i));) count_none(p, e);
}

void queue_nudge(svm_program *p) {
  p->queue.is_nudged = 1;
  pthread_cond_broadcast(&p->changed);
}

static int32_t fail_wait(const svm_program *p, const entry *e, svm_error *error) {
  const svm_kernel_info *k = &p->kernels[e->kernel].info;
  if (atomic_load(&e->state) == SVM_ENTRY_FAILED) {
    return status_fail(error, SVM_ERROR_COMPILE, "kernel \"%.100s\" could not be compiled: %.700s", k->label,
                       e->request.failure);
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
  if (entry_is_exact(e) || (!wants_exact && atomic_load(&e->code))) return SVM_OK;
  int32_t code = SVM_OK;
  pthread_mutex_lock(&p->lock);
  e->request.n_waiting++;
  p->stats.n_waiting++;
  if (atomic_load(&e->state) == SVM_ENTRY_COMPILING) queue_nudge(p); /* it may wait for its turn there */
  while (!entry_is_exact(e)) {
    if (!atomic_load(&p->queue.is_attached) || atomic_load(&e->state) == SVM_ENTRY_FAILED) {
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
  e->request.n_waiting--;
  p->stats.n_waiting--;
  pthread_mutex_unlock(&p->lock);
  return code;
}

int32_t entry_prepare(const call *c, entry *e) {
  svm_program *p = c->program;
  int32_t strategy = c->strategy;
  if (entry_is_exact(e) || (!may_compile(strategy) && atomic_load(&e->code))) return SVM_OK;
  if (strategy == SVM_STRATEGY_AUTO && atomic_load(&p->queue.is_attached) &&
      atomic_load(&e->state) == SVM_ENTRY_IDLE) {
    pthread_mutex_lock(&p->lock);
    entry_count(p, e, strategy, c->number, 1);
    pthread_mutex_unlock(&p->lock);
  }
  return entry_wait(p, e, strategy == SVM_STRATEGY_JIT, c->watch, c->error);
}

/* The compiler's side -------------------------------------------------------------------------- */

void svm_attach_compiler(svm_program *p, int32_t attached) {
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  atomic_store(&p->queue.is_attached, attached != 0);
  if (!attached) queue_clear(p);
  atomic_fetch_add(&p->plans.generation, 1);
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
}

/* Stay until the fork that asked for it is over. */
static void pause_here(svm_program *p) {
  while (p->queue.is_paused) pthread_cond_wait(&p->changed, &p->lock);
}

int32_t queue_pause(svm_program *p, int32_t is_paused) {
  p->queue.is_paused = is_paused;
  if (!is_paused) pthread_cond_broadcast(&p->changed);
  int is_own = p->queue.is_known && pthread_equal(p->queue.compiler, pthread_self());
  return !atomic_load(&p->queue.is_attached) || p->queue.n_listening || is_own;
}

int32_t svm_request_wait(svm_program *p, int32_t timeout_ms, svm_request *request) {
  if (!p || !request) return -1;
  struct timespec deadline = threads_deadline(timeout_ms);
  int32_t found = 0;
  entry *e = NULL;
  pthread_mutex_lock(&p->lock);
  p->queue.compiler = pthread_self();
  p->queue.is_known = 1;
  p->queue.n_listening++;
  pause_here(p);
  while (atomic_load(&p->queue.is_attached) && !(e = queue_take(p)) && !p->queue.is_nudged) {
    int32_t code = pthread_cond_timedwait(&p->changed, &p->lock, &deadline);
    pause_here(p);
    if (code == ETIMEDOUT) break;
  }
  if (e) {
    entry_set_state(p, e, SVM_ENTRY_COMPILING);
    *request = (svm_request){.kernel = e->kernel,
                             .n_dims = e->n_dims,
                             .runs = e->request.executions,
                             .is_awaited = e->request.n_waiting > 0 || !atomic_load(&e->code)};
    memcpy(request->dims, e->dims, (size_t)e->n_dims * sizeof *e->dims);
    found = 1;
  } else if (!atomic_load(&p->queue.is_attached)) {
    found = -1;
  }
  if (!e) p->queue.is_nudged = 0;
  p->queue.n_listening--;
  pthread_mutex_unlock(&p->lock);
  return found;
}

int32_t svm_compiler_is_busy(svm_program *p) {
  if (!p) return 0;
  pthread_mutex_lock(&p->lock);
  int32_t is_busy = atomic_load(&p->queue.is_attached) && (!p->queue.n_listening || p->queue.is_nudged);
  pthread_mutex_unlock(&p->lock);
  return is_busy;
}

/* The kernel named by a request, NULL if there is none with that number of dims. */
static const kernel *requested(svm_program *p, int32_t index, const int64_t *dims, int32_t n_dims,
                               const char *function, svm_error *error) {
  int is_known = p && index >= 0 && index < p->n_kernels && n_dims == p->kernels[index].info.n_dims;
  if (is_known && (dims || !n_dims)) return &p->kernels[index];
  status_fail(error, SVM_ERROR_ARGUMENT, "%s: no kernel %d with %d dims", function, index, n_dims);
  return NULL;
}

int32_t svm_compile_failed(svm_program *p, int32_t kernel_index, const int64_t *dims, int32_t n_dims,
                           const char *message, svm_error *error) {
  const kernel *k = requested(p, kernel_index, dims, n_dims, "svm_compile_failed", error);
  if (!k) return SVM_ERROR_ARGUMENT;
  pthread_mutex_lock(&p->lock);
  entry *e = site_lookup(k, dims);
  if (e && !entry_is_exact(e)) {
    free(e->request.failure);
    e->request.failure = strdup(message ? message : "");
    entry_set_state(p, e, e->request.failure ? SVM_ENTRY_FAILED : SVM_ENTRY_IDLE);
    p->stats.n_failed++;
  }
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
  return SVM_OK;
}

int32_t svm_decline_request(svm_program *p, int32_t kernel_index, const int64_t *dims, int32_t n_dims,
                            int64_t again_after, svm_error *error) {
  const kernel *k = requested(p, kernel_index, dims, n_dims, "svm_decline_request", error);
  if (!k) return SVM_ERROR_ARGUMENT;
  pthread_mutex_lock(&p->lock);
  entry *e = site_lookup(k, dims);
  if (e && atomic_load(&e->state) == SVM_ENTRY_COMPILING) {
    e->request.again_after = again_after;
    entry_set_state(p, e, again_after > 0 ? SVM_ENTRY_IDLE : SVM_ENTRY_DECLINED);
    if (again_after > 0) atomic_fetch_add(&p->plans.generation, 1); /* plans count it again */
    if (again_after > 0 && p->stats.n_hurries) count_none(p, e);    /* the hurry began after the request */
  }
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
  return SVM_OK;
}

int32_t svm_is_awaited(svm_program *p, int32_t kernel_index, const int64_t *dims, int32_t n_dims) {
  const kernel *k = requested(p, kernel_index, dims, n_dims, "svm_is_awaited", NULL);
  if (!k) return 0;
  pthread_mutex_lock(&p->lock);
  const entry *e = site_lookup(k, dims);
  int32_t is_awaited = e && e->request.n_waiting > 0;
  pthread_mutex_unlock(&p->lock);
  return is_awaited;
}

/* Prices --------------------------------------------------------------------------------------- */

int32_t svm_set_price(svm_program *p, int32_t kernel_index, const svm_price *price, svm_error *error) {
  if (status_need(p, "svm_set_price: program", error) || status_need(price, "svm_set_price: price", error))
    return SVM_ERROR_ARGUMENT;
  if (kernel_index < 0 || kernel_index >= p->n_kernels || price->work < 0 || price->per_launch < 0 ||
      price->declined_from < 0)
    return status_fail(error, SVM_ERROR_ARGUMENT, "svm_set_price: kernel %d of %d, or a negative number",
                       kernel_index, p->n_kernels);
  pthread_mutex_lock(&p->lock);
  kernel *k = &p->kernels[kernel_index];
  k->price = *price;
  entry *e;
  for (uint64_t i = 0; (e = site_next(&k->site, &i));) entry_price(k, e);
  pthread_mutex_unlock(&p->lock);
  return SVM_OK;
}
