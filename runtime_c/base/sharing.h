/* Whether sharing launches with other threads pays at the moment. On a machine that other programs keep busy
 * a thread may lose its processor in the middle of a tile, and the launch then waits for it, often longer
 * than the launch takes on one thread. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

/* All times in nanoseconds. Zeroed: sharing pays until launches tell otherwise. */
typedef struct sharing {
  _Atomic int64_t resume; /* launches run alone until then */
  int64_t since;          /* when the first shared launch since then began, 0: none did */
  int64_t balance;        /* what sharing has won lately; negative: lost */
  int64_t pause;          /* how long launches ran alone after the last loss, 0: it is forgotten */
} sharing;

/* Any thread may ask. */
int sharing_pays(const sharing *s, int64_t now);

/* A shared launch of n_tiles began, its caller had run n_own of them at `own_end`, and it was over at `end`:
 * the time of the caller's tiles gives an estimate for all tiles on one thread. One thread at a time. */
void sharing_learn(sharing *s, int64_t begin, int64_t own_end, int64_t end, int64_t n_own, int64_t n_tiles);
