/* The pool. One job at a time; its tiles are taken in blocks from an atomic counter, so any partition may
 * happen: by the kernel ABI the bits do not depend on it.
 *
 * A worker joins a job by raising `n_inside` and then reading `open`; the caller closes the job by clearing
 * `open` and then waits for n_inside == 0. All four are sequentially consistent: either the worker sees the
 * job closed and leaves its fields alone, or the caller waits for it. So late workers are never waited for.
 */
#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/cpus.h"
#include "base/float_mode.h"
#include "base/sharing.h"
#include "base/status.h"
#include "base/watch.h"

enum {
  CACHE_LINE = 64,
  LEAST_BLOCK = 2,
  SPIN_NS = 50000,
  SPINS_PER_LOOK = 64,
};

typedef struct job {
  svm_kernel_code *code;
  void *const *buffers;
  const int64_t *dims;
  int64_t n_tiles, longest; /* tiles of a block at most */
  int32_t n_threads;
  size_t scratch;
  timeline *timeline; /* NULL: not observed */
  int32_t kernel;
} job;

static struct pool {
  _Alignas(CACHE_LINE) atomic_flag busy; /* held by the caller whose job runs, and by svm_set_threads */
  _Alignas(CACHE_LINE) _Atomic uint64_t number; /* of the newest job */
  _Atomic uint64_t open;                        /* number of the job that may be joined, 0: none */
  _Atomic int32_t n_asleep;
  _Atomic int32_t is_ending;
  _Alignas(CACHE_LINE) _Atomic int64_t next; /* tile */
  _Alignas(CACHE_LINE) _Atomic int32_t n_inside;
  _Atomic int32_t is_awaited; /* the caller sleeps until no thread is inside */
  job job;
  svm_rt error;                                 /* the first that a worker reported, under `lock` */
  sharing sharing;                              /* learns while `busy` is held */
  _Atomic int32_t n_wanted;                     /* threads, the caller included; 0: not decided yet */
  _Alignas(CACHE_LINE) _Atomic int32_t n_calls; /* threads that are in calls */
  int32_t n_running;                            /* workers, changed while `busy` is held */
  pthread_t workers[SVM_LIMIT_THREADS];
  pthread_mutex_t lock;
  pthread_cond_t wake, left;
} pool = {.busy = ATOMIC_FLAG_INIT,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER,
          .left = PTHREAD_COND_INITIALIZER};

/* The kernel's view of a thread ---------------------------------------------------------------- */

int rt_reserve(svm_rt *rt, size_t scratch) {
  if (scratch <= rt->scratch_bytes) return 0;
  size_t size = (scratch + 63) / 64 * 64;
  void *memory = size >= scratch ? aligned_alloc(64, size) : NULL;
  if (!memory) return -1;
  free(rt->scratch);
  rt->scratch = memory;
  rt->scratch_bytes = size;
  return 0;
}

void rt_free(svm_rt *rt) {
  free(rt->scratch);
  *rt = (svm_rt){0};
}

/* Workers -------------------------------------------------------------------------------------- */

/* Take the next tiles: a thread's share of those left, so that the last blocks are small and a thread that is
 * held up leaves its tiles to the others; but no fewer than LEAST_BLOCK. */
static int take_block(const job *j, int64_t *begin, int64_t *end) {
  int64_t size;
  *begin = atomic_load_explicit(&pool.next, memory_order_relaxed);
  do {
    int64_t left = j->n_tiles - *begin;
    if (left <= 0) return 0;
    size = left / j->n_threads;
    size = size > LEAST_BLOCK ? size : LEAST_BLOCK;
    size = size < j->longest ? size : j->longest;
    size = size < left ? size : left;
    *end = *begin + size;
  } while (!atomic_compare_exchange_weak_explicit(&pool.next, begin, *end, memory_order_relaxed,
                                                  memory_order_relaxed));
  return 1;
}

/* Return how many tiles it has run. */
static int64_t take_blocks(const job *j, svm_rt *rt) {
  for (int64_t n = 0;;) {
    int64_t begin, end;
    if (!take_block(j, &begin, &end)) return n;
    n += end - begin;
    j->code(j->buffers, j->dims, rt, begin, end);
    if (rt->watch && end < j->n_tiles && watch_look(rt->watch)) { /* the caller's: no more are taken */
      atomic_store(&pool.next, j->n_tiles);
      rt->error = rt->error ? rt->error : KERNEL_STOPPED;
    }
  }
}

static int64_t take_share(const job *j, svm_rt *rt) {
  timeline_row *row = j->timeline ? timeline_begin(j->timeline, TIMELINE_SHARE, j->kernel) : NULL;
  int64_t n = take_blocks(j, rt);
  if (!row || !n) return n; /* a row that is not complete is not shown */
  row->n_tiles = n;
  timeline_end(row);
  return n;
}

static void report(svm_rt *rt) {
  if (!rt->error) return;
  pthread_mutex_lock(&pool.lock);
  if (!pool.error.error) pool.error = *rt;
  pthread_mutex_unlock(&pool.lock);
  rt->error = 0;
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

struct timespec threads_deadline(int32_t milliseconds) {
  int64_t end = now_ns() + (int64_t)(milliseconds > 0 ? milliseconds : 0) * 1000000;
  return (struct timespec){end / 1000000000, end % 1000000000};
}

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Leave the job. Either the caller sees that no thread is inside before it sleeps, or this thread sees that
 * it sleeps. */
static void leave(void) {
  if (atomic_fetch_sub(&pool.n_inside, 1) > 1 || !atomic_load(&pool.is_awaited)) return;
  pthread_mutex_lock(&pool.lock);
  pthread_cond_signal(&pool.left);
  pthread_mutex_unlock(&pool.lock);
}

static int is_alone(uint64_t unused) {
  (void)unused;
  return !atomic_load(&pool.n_inside);
}

static int has_news(uint64_t seen) {
  return atomic_load(&pool.number) != seen || atomic_load(&pool.is_ending);
}

/* Whether `is_so(argument)` within a while of spinning. */
static int spin(int (*is_so)(uint64_t), uint64_t argument) {
  int64_t until = now_ns() + SPIN_NS;
  do {
    for (int i = 0; i < SPINS_PER_LOOK; i++) {
      if (is_so(argument)) return 1;
      relax();
    }
    sched_yield(); /* to a thread on the same processor, which may be the awaited one */
  } while (now_ns() < until);
  return 0;
}

/* Return when there is a job newer than `seen`, or the pool ends: spin for a while, then sleep. */
static void wait_for_news(uint64_t seen) {
  if (spin(has_news, seen)) return;
  pthread_mutex_lock(&pool.lock);
  atomic_fetch_add(&pool.n_asleep, 1);
  while (!has_news(seen)) pthread_cond_wait(&pool.wake, &pool.lock);
  atomic_fetch_sub(&pool.n_asleep, 1);
  pthread_mutex_unlock(&pool.lock);
}

/* Return when no worker is inside: spin for a while, then sleep. A worker that takes so long most likely
 * waits for the processor, which another process has: the caller's own, idle now, takes it over. */
static void wait_for_workers(void) {
  if (is_alone(0) || spin(is_alone, 0)) return;
  pthread_mutex_lock(&pool.lock);
  atomic_store(&pool.is_awaited, 1);
  while (!is_alone(0)) pthread_cond_wait(&pool.left, &pool.lock);
  atomic_store(&pool.is_awaited, 0);
  pthread_mutex_unlock(&pool.lock);
}

static void *work(void *argument) {
  int32_t own = (int32_t)(intptr_t)argument; /* its number among the threads of a job */
  float_mode_set();                          /* not that of the thread that started this one */
  svm_rt rt = {0};
  uint64_t seen = 0;
  while (!atomic_load(&pool.is_ending)) {
    wait_for_news(seen);
    seen = atomic_load(&pool.number);
    atomic_fetch_add(&pool.n_inside, 1);
    if (atomic_load(&pool.open) == seen && seen && own < pool.job.n_threads &&
        !rt_reserve(&rt, pool.job.scratch)) {
      rt.prepared = NOTHING_PREPARED;
      take_share(&pool.job, &rt);
      report(&rt);
    }
    leave();
  }
  rt_free(&rt);
  return NULL;
}

static void wake_sleepers(void) {
  if (!atomic_load(&pool.n_asleep)) return;
  pthread_mutex_lock(&pool.lock);
  pthread_cond_broadcast(&pool.wake);
  pthread_mutex_unlock(&pool.lock);
}

int threads_start(pthread_t *thread, void *(*run)(void *), void *argument) {
  sigset_t all, before;
  sigfillset(&all);
  sigdelset(&all, SIGBUS);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(thread, NULL, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return failed;
}

/* Size of the pool ----------------------------------------------------------------------------- */

static int32_t default_count(void) {
  int32_t n = cpus_available();
  return n > SVM_LIMIT_THREADS ? SVM_LIMIT_THREADS : n;
}

int32_t threads_count(void) {
  int32_t n = atomic_load_explicit(&pool.n_wanted, memory_order_relaxed);
  if (n) return n;
  int32_t expected = 0;
  n = default_count();
  return atomic_compare_exchange_strong(&pool.n_wanted, &expected, n) ? n : expected;
}

/* After a fork only the forking thread exists. */
static void forget_workers(void) {
  atomic_flag_clear(&pool.busy);
  pool.n_running = 0;
  atomic_store(&pool.is_ending, 0);
  atomic_store(&pool.n_asleep, 0);
  atomic_store(&pool.n_inside, 0);
  atomic_store(&pool.open, 0);
  pthread_mutex_init(&pool.lock, NULL);
  pthread_cond_init(&pool.wake, NULL);
  pthread_cond_init(&pool.left, NULL);
  atomic_store(&pool.is_awaited, 0);
}

/* End all workers; the caller holds `busy`. */
static void end_workers(void) {
  atomic_store(&pool.is_ending, 1);
  pthread_mutex_lock(&pool.lock);
  pthread_cond_broadcast(&pool.wake);
  pthread_mutex_unlock(&pool.lock);
  for (int32_t i = 0; i < pool.n_running; i++) pthread_join(pool.workers[i], NULL);
  pool.n_running = 0;
  atomic_store(&pool.is_ending, 0);
}

/* Start the missing threads; the caller holds `busy`. Fewer threads than wanted are not an error, only
 * slower. */
static void start_workers(void) {
  static int is_registered;
  if (!is_registered) is_registered = !pthread_atfork(NULL, NULL, forget_workers);
  int32_t n = threads_count() - 1;
  while (pool.n_running < n &&
         !threads_start(&pool.workers[pool.n_running], work, (void *)(intptr_t)(pool.n_running + 1)))
    pool.n_running++;
}

int32_t svm_get_threads(void) { return threads_count(); }

int32_t svm_set_threads(int32_t n, svm_error *error) {
  if (n < 0 || n > SVM_LIMIT_THREADS) {
    return status_fail(error, SVM_ERROR_ARGUMENT,
                       "threads: %d is out of range; give 1 to %d, or 0 for one per CPU", n,
                       SVM_LIMIT_THREADS);
  }
  n = n ? n : default_count();
  while (atomic_flag_test_and_set(&pool.busy)) sched_yield();
  if (n - 1 < pool.n_running) end_workers();
  atomic_store(&pool.n_wanted, n);
  atomic_flag_clear(&pool.busy);
  return SVM_OK;
}

/* Calls ---------------------------------------------------------------------------------------- */

static _Thread_local int32_t own_calls; /* of this thread, within each other: they count as one */

void threads_enter_call(void) {
  if (!own_calls++) atomic_fetch_add_explicit(&pool.n_calls, 1, memory_order_relaxed);
}

void threads_leave_call(void) {
  if (!--own_calls) atomic_fetch_sub_explicit(&pool.n_calls, 1, memory_order_relaxed);
}

void threads_forget_calls(void) { atomic_store(&pool.n_calls, own_calls > 0); }

/* Threads for a launch: all but one for each call on another thread. */
static int32_t threads_free(void) {
  int32_t n = atomic_load_explicit(&pool.n_calls, memory_order_relaxed);
  return n > 1 ? threads_count() - n + 1 : threads_count();
}

/* Jobs ----------------------------------------------------------------------------------------- */

void threads_run_alone(svm_kernel_code *code, void *const *buffers, const int64_t *dims, svm_rt *rt,
                       int64_t n_tiles, int64_t stretch) {
  int64_t step = rt->watch ? stretch : n_tiles;
  for (int64_t begin = 0; begin < n_tiles; begin += step) {
    if (begin && watch_look(rt->watch)) {
      rt->error = rt->error ? rt->error : KERNEL_STOPPED;
      return;
    }
    code(buffers, dims, rt, begin, n_tiles - begin < step ? n_tiles : begin + step);
  }
}

/* Run pool.job, which began at `start`, on all threads; the caller holds `busy`. */
static void share_job(svm_rt *rt, int64_t start) {
  pool.error.error = 0;
  atomic_store_explicit(&pool.next, 0, memory_order_relaxed);
  uint64_t number = atomic_load_explicit(&pool.number, memory_order_relaxed) + 1;
  atomic_store(&pool.open, number);
  atomic_store(&pool.number, number);
  wake_sleepers();
  int64_t n_own = take_share(&pool.job, rt), own_end = now_ns();
  atomic_store(&pool.open, 0);
  wait_for_workers();
  sharing_learn(&pool.sharing, start, own_end, now_ns(), n_own, pool.job.n_tiles);
  if (!rt->error && pool.error.error) {
    rt->error = pool.error.error;
    rt->error_value = pool.error.error_value;
    rt->error_bound = pool.error.error_bound;
  }
}

void threads_run(svm_kernel_code *code, void *const *buffers, const int64_t *dims, svm_rt *rt,
                 int64_t n_tiles, int64_t stretch, size_t scratch) {
  int32_t n = threads_free();
  int64_t start = n > 1 && n_tiles > 1 ? now_ns() : 0;
  if (!start || !sharing_pays(&pool.sharing, start) ||
      atomic_flag_test_and_set_explicit(&pool.busy, memory_order_acquire)) {
    threads_run_alone(code, buffers, dims, rt, n_tiles, stretch);
    return;
  }
  if (pool.n_running < n - 1) start_workers();
  int64_t longest = (n_tiles + n - 1) / n; /* all take part, even if there are few tiles */
  if (rt->watch && stretch < longest) longest = stretch;
  pool.job = (job){code, buffers, dims, n_tiles, longest, n, scratch, NULL, 0};
  if (rt->timeline && rt->launch) pool.job.timeline = rt->timeline, pool.job.kernel = rt->launch->index;
  share_job(rt, start);
  atomic_flag_clear_explicit(&pool.busy, memory_order_release);
}
