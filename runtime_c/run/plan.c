/* Plans: the cache by symbol values, counting towards exact code, and the replay. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/status.h"
#include "run/bands.h"
#include "run/profile.h"

/* The cache ------------------------------------------------------------------------------------ */

plan *plan_find(const svm_program *p, const int64_t *key, int64_t n_key) {
  uint64_t hash = hash_row(key, n_key);
  plan *found = atomic_load(&p->plans[hash % PLAN_BUCKETS]);
  for (; found; found = atomic_load(&found->next)) {
    int is_same = found->hash == hash && found->n_key == n_key;
    if (is_same && !memcmp(found->key, key, (size_t)n_key * sizeof *key)) break;
  }
  return found;
}

void plan_free(void *object) {
  plan *made = object;
  for (int32_t i = 0; made->is_pinned && i < made->n_steps; i++) made->steps[i].entry->n_plans--;
  for (int32_t i = 0; made->results && i < made->n_results; i++) value_drop(NULL, &made->results[i]);
  free(made->results);
  free(made->steps);
  free(made->bands);
  free(made->refs);
  free(made->outputs);
  free(made->fills);
  free(made);
}

static void unlink_plan(svm_program *p, plan *gone) {
  _Atomic(plan *) *at = &p->plans[gone->hash % PLAN_BUCKETS];
  while (atomic_load(at) != gone) at = &atomic_load(at)->next;
  atomic_store(at, atomic_load(&gone->next));
  p->stats.n_plans--;
  p->stats.plan_bytes -= gone->plan_bytes;
}

static int is_over_limit(const svm_program *p) {
  const svm_options *o = &p->options;
  return (o->plans_max && p->stats.n_plans > o->plans_max) ||
         (o->plan_bytes_max && p->stats.plan_bytes > o->plan_bytes_max);
}

/* Give the entries and their sites what the plan's replays have counted since they were last given it. */
static void credit(svm_program *p, plan *x) {
  int64_t n = atomic_load(&x->executions) - x->credited;
  x->credited += n;
  for (int32_t i = 0; n && i < x->n_steps; i++) {
    atomic_fetch_add(&x->steps[i].entry->hits, n);
    atomic_fetch_add(&p->kernels[x->steps[i].entry->kernel].site.hits, n);
  }
}

void plans_credit(svm_program *p) {
  for (int64_t i = 0; i < p->plans_used.n; i++) credit(p, p->plans_used.rows[i].object);
}

plan *plan_publish(svm_program *p, plan *made) {
  pthread_mutex_lock(&p->lock);
  plan *earlier = plan_find(p, made->key, made->n_key);
  atomic_store(&made->last_used, atomic_load(&p->n_calls));
  if (earlier || !made->is_pinned || !lru_put(&p->plans_used, made, &made->last_used)) {
    retire(p, made, plan_free); /* after this call, which may still replay it */
  } else {
    _Atomic(plan *) *bucket = &p->plans[made->hash % PLAN_BUCKETS];
    atomic_store(&made->next, atomic_load(bucket));
    atomic_store(bucket, made);
    p->stats.n_plans++;
    p->stats.plan_bytes += made->plan_bytes;
    for (plan *gone; is_over_limit(p) && (gone = lru_take(&p->plans_used, made));) {
      unlink_plan(p, gone);
      credit(p, gone);
      retire(p, gone, plan_free);
      p->stats.plans_evicted++;
    }
  }
  reclaim(p, 0);
  pthread_mutex_unlock(&p->lock);
  return earlier ? earlier : made;
}

void plan_free_all(svm_program *p) {
  for (int32_t i = 0; i < PLAN_BUCKETS; i++) {
    for (plan *x = atomic_load(&p->plans[i]), *next; x; x = next) {
      next = atomic_load(&x->next);
      plan_free(x);
    }
  }
  lru_free(&p->plans_used);
}

/* Entries -------------------------------------------------------------------------------------- */

void plan_pin(svm_program *p, plan *made) {
  pthread_mutex_lock(&p->lock);
  made->is_pinned = 1;
  for (int32_t i = 0; i < made->n_steps; i++) made->is_pinned &= !made->steps[i].entry->is_dropped;
  for (int32_t i = 0; made->is_pinned && i < made->n_steps; i++) made->steps[i].entry->n_plans++;
  pthread_mutex_unlock(&p->lock);
}

void plans_stamp_entries(svm_program *p) {
  for (int64_t i = 0; i < p->plans_used.n; i++) {
    const plan *x = p->plans_used.rows[i].object;
    int64_t used = atomic_load(&x->last_used);
    for (int32_t s = 0; s < x->n_steps; s++) {
      entry *e = x->steps[s].entry;
      if (used > atomic_load(&e->last_used)) atomic_store(&e->last_used, used);
    }
  }
}

/* Count what the plan has run since it was counted last, with the lock held. Returns after how many more runs
 * to count again: at twice as many as so far, or earlier if an entry may ask then. */
static int64_t count_plan(svm_program *p, plan *x, int32_t strategy) {
  int64_t executions = atomic_load(&x->executions), n = executions - x->counted, least = NOTHING_LEFT;
  int64_t now = atomic_fetch_add(&p->n_settles, 1) + 1;
  x->counted = executions;
  for (int32_t i = 0; i < x->n_steps; i++) {
    int64_t more = entry_count(p, x->steps[i].entry, strategy, now, n);
    least = more < least ? more : least;
  }
  int64_t doubled = executions > 0 ? executions : 1;
  return least != NOTHING_LEFT && least > doubled ? doubled : least;
}

void plans_count(svm_program *p) {
  for (int64_t i = 0; i < p->plans_used.n; i++)
    count_plan(p, p->plans_used.rows[i].object, atomic_load(&p->strategy));
}

/* Whether entries of the plan may have something to count. */
static int is_due(const plan *x, int64_t generation) {
  if (atomic_load_explicit(&x->settled, memory_order_relaxed) == generation) return 0;
  return atomic_load_explicit(&x->looked, memory_order_relaxed) != generation ||
         atomic_load_explicit(&x->executions, memory_order_relaxed) >=
             atomic_load_explicit(&x->look_at, memory_order_relaxed);
}

int32_t plan_settle(const call *c, plan *made, int is_new) {
  svm_program *p = c->program;
  int64_t generation = atomic_load(&p->generation);
  int is_own = c->strategy != atomic_load(&p->strategy); /* what is settled is so for the program's */
  if (is_own || is_due(made, generation)) {
    pthread_mutex_lock(&p->lock);
    int64_t more = count_plan(p, made, c->strategy);
    pthread_mutex_unlock(&p->lock);
    if (!is_own && more == NOTHING_LEFT) {
      atomic_store_explicit(&made->settled, generation, memory_order_relaxed);
    } else if (!is_own) {
      atomic_store_explicit(&made->look_at, atomic_load(&made->executions) + more, memory_order_relaxed);
      atomic_store_explicit(&made->looked, generation, memory_order_relaxed);
    }
  }
  int wants_exact = c->strategy == SVM_STRATEGY_JIT;
  for (int32_t i = 0; (is_new || is_own) && i < made->n_steps; i++) {
    int32_t code = entry_wait(p, made->steps[i].entry, wants_exact, c->watch, c->error);
    if (code) return code;
  }
  return SVM_OK;
}

/* The replay ----------------------------------------------------------------------------------- */

static int32_t stop_at(call *c, const step *s) {
  int32_t code = launch_fail(c->program, s->entry, &c->context->rt, c->error);
  c->error->function = s->function;
  c->error->pc = s->pc;
  c->error->source = function_source(c->program, s->function, s->pc);
  return code;
}

/* Launch steps from `begin` to before `end`, each whole. */
static int32_t replay_steps(call *c, const plan *made, int32_t begin, int32_t end, void *const *bases) {
  svm_rt *rt = &c->context->rt;
  for (const step *s = made->steps + begin; s < made->steps + end; s++) {
    void *buffers[SVM_LIMIT_BUFFERS];
    if (rt->watch && watch_look(rt->watch)) return watch_fail(rt->watch, c->error);
    for (int32_t i = 0; i < s->n_buffers; i++) {
      buffers[i] = (void *)((uintptr_t)bases[s->refs[i].base] + (uintptr_t)s->refs[i].offset);
    }
    const instance *code = entry_code(s->entry, c->strategy);
    if (launch_run(s->entry, code, buffers, rt)) return stop_at(c, s);
  }
  return SVM_OK;
}

enum { WHOLE, IN_BANDS, IN_DOUBT, LEAST_GAIN = 50 /* a part of the time */, MAX_DOUBTS = 4 };

/* The code of the steps and the number of threads, for which a way is chosen. */
static uint64_t identity(const bands *b) {
  int64_t row[BAND_STEPS + 1] = {threads_count()};
  for (int32_t i = 0; i < b->n_steps; i++) row[i + 1] = (int64_t)(intptr_t)b->steps[i].code;
  return hash_row(row, b->n_steps + 1);
}

/* What trials say: bands are quicker where all their runs but one, which other programs may have held up,
 * took a part less time than the best whole one. Where only some did it is in doubt: a busy machine holds up
 * either. */
static int judge(const band_chain *x) {
  int64_t best[] = {INT64_MAX, INT64_MAX};
  int32_t n = 0;
  for (int i = 0; i < BAND_TRIALS; i++) {
    int64_t ns = atomic_load_explicit(&x->tried[i], memory_order_relaxed);
    if (ns < best[i & 1]) best[i & 1] = ns;
  }
  int64_t bound = best[WHOLE] - best[WHOLE] / LEAST_GAIN;
  if (best[WHOLE] == INT64_MAX || best[IN_BANDS] >= bound) return WHOLE;
  for (int i = IN_BANDS; i < BAND_TRIALS; i += 2)
    n += atomic_load_explicit(&x->tried[i], memory_order_relaxed) < bound;
  return n >= BAND_TRIALS / 2 - 1 ? IN_BANDS : IN_DOUBT;
}

static void begin_trials(band_chain *x) {
  for (int i = 0; i < BAND_TRIALS; i++) atomic_store(&x->tried[i], INT64_MAX);
  atomic_store(&x->n_tried, 0);
}

/* The number of the next trial, -1: there are none any more, or other threads do the last ones. */
static int32_t next_trial(band_chain *x) {
  if (atomic_load_explicit(&x->n_tried, memory_order_relaxed) >= BAND_TRIALS) return -1;
  int32_t number = atomic_fetch_add(&x->n_tried, 1);
  return number < BAND_TRIALS ? number : -1;
}

/* The way in which the chain is to run. *trial: the number of the trial, -1: it is none. */
static int choose_way(band_chain *x, int32_t mode, uint64_t now, int32_t *trial) {
  *trial = -1;
  if (mode != SVM_BANDS_AUTO) return mode == SVM_BANDS_ALWAYS ? IN_BANDS : WHOLE;
  if (atomic_load_explicit(&x->tried_as, memory_order_relaxed) != now) {
    begin_trials(x);
    atomic_store(&x->n_doubts, 0);
    atomic_store(&x->tried_as, now);
  }
  if ((*trial = next_trial(x)) >= 0) return *trial & 1;
  int way = judge(x);
  if (way != IN_DOUBT) return way;
  if (atomic_load_explicit(&x->n_doubts, memory_order_relaxed) >= MAX_DOUBTS) return WHOLE;
  atomic_fetch_add(&x->n_doubts, 1);
  begin_trials(x);
  *trial = next_trial(x);
  return *trial < 0 ? WHOLE : *trial & 1;
}

/* Note the time of a trial, unless the chain has other code or threads by now. */
static void note_time(band_chain *x, uint64_t tried_as, int32_t trial, int64_t ns) {
  if (atomic_load(&x->tried_as) == tried_as) atomic_store(&x->tried[trial], ns);
}

/* Lay out the rings; 0 where the steps are to run whole: much would be done twice, or the call may not hold
 * so much. */
static int lay_out(const call *c, bands *b) {
  const memory_budget *m = &c->budget;
  return bands_layout(b, threads_count()) && (!m->max || bands_bytes(b) <= m->max - m->used);
}

/* Run the steps of a chain, in bands or each whole; whole while somebody looks at launches. */
static int32_t replay_chain(call *c, const plan *made, band_chain *x, void *const *bases) {
  svm_rt *rt = &c->context->rt;
  const step *first = made->steps + x->first;
  int32_t mode = atomic_load_explicit(&c->program->bands, memory_order_relaxed), trial = -1;
  int way = WHOLE;
  bands b;
  uint64_t now = 0;
  if (mode != SVM_BANDS_NEVER && !rt->is_noted &&
      bands_open(&b, c->program, first, x->last - x->first + 1, c->strategy, bases))
    way = choose_way(x, mode, now = identity(&b), &trial);
  int64_t begin = trial >= 0 ? profile_now() : 0;
  if (way == IN_BANDS && !lay_out(c, &b)) way = WHOLE, trial = -1;
  if (way == WHOLE) {
    int32_t code = replay_steps(c, made, x->first, x->last + 1, bases);
    if (code) return code;
  } else if (rt->watch && watch_look(rt->watch)) {
    return watch_fail(rt->watch, c->error);
  } else if (bands_run(&b, rt)) {
    return stop_at(c, first + bands_failed(&b));
  } else {
    atomic_fetch_add_explicit(&c->program->n_band_runs, 1, memory_order_relaxed);
  }
  if (trial >= 0) note_time(x, now, trial, profile_now() - begin);
  return SVM_OK;
}

int32_t plan_replay(call *c, const plan *made, void *const *bases) {
  for (int32_t i = 0; i < made->n_fills; i++) {
    const fill *f = &made->fills[i];
    char *at = (char *)((uintptr_t)bases[f->at.base] + (uintptr_t)f->at.offset);
    size_t n_first = f->n_bytes < 8 ? (size_t)f->n_bytes : 8;
    memcpy(at, &f->first_bytes, n_first);
    memset(at + n_first, 0, (size_t)f->n_bytes - n_first);
  }
  int32_t next = 0;
  for (int32_t i = 0; i < made->n_bands; i++) {
    band_chain *x = &made->bands[i];
    int32_t code = replay_steps(c, made, next, x->first, bases);
    if (!code) code = replay_chain(c, made, x, bases);
    if (code) return code;
    next = x->last + 1;
  }
  return replay_steps(c, made, next, made->n_steps, bases);
}
