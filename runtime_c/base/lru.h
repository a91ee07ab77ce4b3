/* Which of many objects was used least recently. A use is one store beside the object and nothing here: a row
 * whose object was used meanwhile is put right when it comes to the top of the heap. Putting and taking cost
 * the logarithm of the number of objects, however many there are. Called with the program's lock held. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

typedef struct lru_row {
  int64_t used; /* *last_used when it was last looked at */
  const _Atomic int64_t *last_used;
  void *object;
} lru_row;

/* rows[0 .. n - 1]: a heap, the least `used` first; also the way to go over all objects. */
typedef struct lru {
  lru_row *rows;
  int64_t n, room;
} lru;

/* Put an object that is not in it; 0: there is no memory. */
int lru_put(lru *l, void *object, const _Atomic int64_t *last_used);

/* Take out the object that was used least recently, not `kept`; NULL: there is no other. */
void *lru_take(lru *l, const void *kept);

void lru_free(lru *l);
