/* The replay of plans: step by step, and chains in bands where that is quicker. */
#include "run/replay.h"

#include <string.h>

#include "base/hash.h"
#include "base/threads.h"
#include "run/bands.h"
#include "run/launch.h"
#include "run/profile.h"

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

/* Run the steps of a chain, in bands or each whole; whole while launches are observed. */
static int32_t replay_chain(call *c, const plan *made, band_chain *x, void *const *bases) {
  svm_rt *rt = &c->context->rt;
  const step *first = made->steps + x->first;
  int32_t mode = atomic_load_explicit(&c->program->switches.bands, memory_order_relaxed), trial = -1;
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
    atomic_fetch_add_explicit(&c->program->counters.n_band_runs, 1, memory_order_relaxed);
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
