/* Hash of a row of int64 (sizes): multiply and fold, as in wyhash, enough for tables that no stranger fills.
 */
#pragma once

#include <stdint.h>

static inline uint64_t hash_row(const int64_t *row, int64_t n) {
  uint64_t h = UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)n;
  for (int64_t i = 0; i < n; i++) {
    h = (h ^ (uint64_t)row[i]) * UINT64_C(0xd6e8feb86659fd93);
    h ^= h >> 32;
  }
  return h;
}
