/* A table from pointers to pointers. */
#pragma once

#include <stdint.h>

/* Open addressing; all zeros is an empty one. */
typedef struct pointer_map {
  struct pointer_pair {
    const void *key; /* NULL: a free slot */
    void *value;
  } *slots;
  uint64_t mask, n;
} pointer_map;

/* The value of `key`, NULL if it has none. */
void *pointer_map_get(const pointer_map *m, const void *key);

/* Give `key`, which has no value yet, one that is not NULL. 0, or -1 without memory. */
int pointer_map_put(pointer_map *m, const void *key, void *value);

void pointer_map_free(pointer_map *m);
