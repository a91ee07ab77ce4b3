#include "base/pointer_map.h"

#include <stdlib.h>

enum { FIRST_SLOTS = 16 };

static struct pointer_pair *find_slot(const pointer_map *m, const void *key) {
  uint64_t hash = (uint64_t)(uintptr_t)key * UINT64_C(0x9e3779b97f4a7c15);
  for (uint64_t i = hash >> 32;; i++) {
    struct pointer_pair *slot = &m->slots[i & m->mask];
    if (!slot->key || slot->key == key) return slot;
  }
}

void *pointer_map_get(const pointer_map *m, const void *key) {
  return m->n ? find_slot(m, key)->value : NULL;
}

static int grow(pointer_map *m) {
  uint64_t n = m->slots ? 2 * (m->mask + 1) : FIRST_SLOTS;
  pointer_map made = {calloc(n, sizeof *m->slots), n - 1, m->n};
  if (!made.slots) return -1;
  for (uint64_t i = 0; m->slots && i <= m->mask; i++) {
    if (m->slots[i].key) *find_slot(&made, m->slots[i].key) = m->slots[i];
  }
  free(m->slots);
  *m = made;
  return 0;
}

int pointer_map_put(pointer_map *m, const void *key, void *value) {
  if ((!m->slots || 2 * (m->n + 1) > m->mask) && grow(m)) return -1;
  *find_slot(m, key) = (struct pointer_pair){key, value};
  m->n++;
  return 0;
}

void pointer_map_free(pointer_map *m) {
  free(m->slots);
  *m = (pointer_map){0};
}
