/* Plans: the cache by symbol values, and counting towards exact code. */
#include "run/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "run/compile_queue.h"

/* The cache ------------------------------------------------------------------------------------ */

plan *plan_find(const svm_program *p, const int64_t *key, int64_t n_key) {
  uint64_t hash = hash_row(key, n_key);
  plan *found = atomic_load(&p->plans.buckets[hash % PLAN_BUCKETS]);
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
  _Atomic(plan *) *at = &p->plans.buckets[gone->hash % PLAN_BUCKETS];
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

/* Add the plan's replay counts since the last time to the entries and their sites. */
static void credit(svm_program *p, plan *x) {
  int64_t n = atomic_load(&x->counts.executions) - x->counts.credited;
  x->counts.credited += n;
  for (int32_t i = 0; n && i < x->n_steps; i++) {
    atomic_fetch_add(&x->steps[i].entry->hits, n);
    atomic_fetch_add(&p->kernels[x->steps[i].entry->kernel].site.hits, n);
  }
}

void plans_credit(svm_program *p) {
  for (int64_t i = 0; i < p->plans.used.n; i++) credit(p, p->plans.used.rows[i].object);
}

plan *plan_publish(svm_program *p, plan *made) {
  pthread_mutex_lock(&p->lock);
  plan *earlier = plan_find(p, made->key, made->n_key);
  atomic_store(&made->counts.last_used, atomic_load(&p->counters.n_calls));
  if (earlier || !made->is_pinned || !lru_put(&p->plans.used, made, &made->counts.last_used)) {
    retire(p, made, plan_free); /* after this call, which may still replay it */
  } else {
    _Atomic(plan *) *bucket = &p->plans.buckets[made->hash % PLAN_BUCKETS];
    atomic_store(&made->next, atomic_load(bucket));
    atomic_store(bucket, made);
    p->stats.n_plans++;
    p->stats.plan_bytes += made->plan_bytes;
    for (plan *gone; is_over_limit(p) && (gone = lru_take(&p->plans.used, made));) {
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
    for (plan *x = atomic_load(&p->plans.buckets[i]), *next; x; x = next) {
      next = atomic_load(&x->next);
      plan_free(x);
    }
  }
  lru_free(&p->plans.used);
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
  for (int64_t i = 0; i < p->plans.used.n; i++) {
    const plan *x = p->plans.used.rows[i].object;
    int64_t used = atomic_load(&x->counts.last_used);
    for (int32_t s = 0; s < x->n_steps; s++) {
      entry *e = x->steps[s].entry;
      if (used > atomic_load(&e->last_used)) atomic_store(&e->last_used, used);
    }
  }
}

/* Count the plan's runs since the last count, with the lock held. Returns the number of further runs until
 * the next count: when runs have doubled, or earlier if an entry may then request code. */
static int64_t count_plan(svm_program *p, plan *x, int32_t strategy) {
  int64_t executions = atomic_load(&x->counts.executions), n = executions - x->counts.counted,
          least = NOTHING_LEFT;
  int64_t now = atomic_fetch_add(&p->counters.n_settles, 1) + 1;
  x->counts.counted = executions;
  for (int32_t i = 0; i < x->n_steps; i++) {
    int64_t more = entry_count(p, x->steps[i].entry, strategy, now, n);
    least = more < least ? more : least;
  }
  int64_t doubled = executions > 0 ? executions : 1;
  return least != NOTHING_LEFT && least > doubled ? doubled : least;
}

void plans_count(svm_program *p) {
  for (int64_t i = 0; i < p->plans.used.n; i++)
    count_plan(p, p->plans.used.rows[i].object, atomic_load(&p->switches.strategy));
}

/* Whether entries of the plan may have something to count. */
static int is_due(const plan *x, int64_t generation) {
  if (atomic_load_explicit(&x->counts.settled, memory_order_relaxed) == generation) return 0;
  return atomic_load_explicit(&x->counts.looked, memory_order_relaxed) != generation ||
         atomic_load_explicit(&x->counts.executions, memory_order_relaxed) >=
             atomic_load_explicit(&x->counts.look_at, memory_order_relaxed);
}

int32_t plan_settle(const call *c, plan *made, int is_new) {
  svm_program *p = c->program;
  int64_t generation = atomic_load(&p->plans.generation);
  int is_own = c->strategy !=
               atomic_load(&p->switches.strategy); /* settled entries are so for the program's strategy */
  if (is_own || is_due(made, generation)) {
    pthread_mutex_lock(&p->lock);
    int64_t more = count_plan(p, made, c->strategy);
    pthread_mutex_unlock(&p->lock);
    if (!is_own && more == NOTHING_LEFT) {
      atomic_store_explicit(&made->counts.settled, generation, memory_order_relaxed);
    } else if (!is_own) {
      atomic_store_explicit(&made->counts.look_at, atomic_load(&made->counts.executions) + more,
                            memory_order_relaxed);
      atomic_store_explicit(&made->counts.looked, generation, memory_order_relaxed);
    }
  }
  int wants_exact = c->strategy == SVM_STRATEGY_JIT;
  for (int32_t i = 0; (is_new || is_own) && i < made->n_steps; i++) {
    int32_t code = entry_wait(p, made->steps[i].entry, wants_exact, c->watch, c->error);
    if (code) return code;
  }
  return SVM_OK;
}
