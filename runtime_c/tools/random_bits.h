/* The random numbers of the fuzzers. */
#pragma once

#include <stdint.h>

static uint64_t state; /* a seed at first, not 0 */

static uint64_t random_bits(void) { /* xorshift64*, Vigna 2016 */
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * UINT64_C(0x2545F4914F6CDD1D);
}
