/* A balance of what sharing wins, which one wait for a thread that lost its processor overdraws. Launches
 * then run alone for a while, twice as long after each next loss, until sharing has gone well for longer than
 * schedulers let a thread wait. */
#include "base/sharing.h"

enum {
  MS = 1000000,
  MAX_WON = MS,  /* no more is saved for later losses */
  MAX_LOST = MS, /* then launches run alone */
  FIRST_PAUSE = 8 * MS,
  MAX_PAUSE = 256 * MS,
  GOES_WELL = 50 * MS
};

int sharing_pays(const sharing *s, int64_t now) {
  return now >= atomic_load_explicit(&s->resume, memory_order_relaxed);
}

void sharing_learn(sharing *s, int64_t begin, int64_t own_end, int64_t end, int64_t n_own, int64_t n_tiles) {
  if (!n_own) return; /* the time of a tile is unknown */
  s->since = s->since ? s->since : begin;
  double alone = (double)(own_end - begin) * (double)n_tiles / (double)n_own;
  double balance = (double)s->balance + alone - (double)(end - begin);
  s->balance = balance < MAX_WON ? (int64_t)balance : MAX_WON;
  if (end - s->since > GOES_WELL) s->pause = 0;
  if (s->balance > -MAX_LOST) return;
  s->pause = s->pause ? 2 * s->pause : FIRST_PAUSE;
  s->pause = s->pause < MAX_PAUSE ? s->pause : MAX_PAUSE;
  s->since = s->balance = 0;
  atomic_store_explicit(&s->resume, end + s->pause, memory_order_relaxed);
}
