/* Offsets in one arena for buffers whose lifetimes are known. */
#pragma once

#include <stdint.h>

enum { ARENA_ALIGNMENT = 64 };

/* One buffer: wants n_bytes from step `first` to step `last`, both included; first > last: never used. */
typedef struct arena_buffer {
  int64_t n_bytes, offset;
  int32_t first, last;
  int32_t is_read_first; /* before anything is written into it (of the trace) */
  int64_t first_bytes;   /* their content, followed by zeros (of the trace) */
} arena_buffer;

/* Set the offsets so that buffers alive at one step do not overlap. Returns the arena's bytes, -1 if memory
 * for the planning itself or 2^62 bytes do not suffice. Method: greedy by size, as in Pisarchyk and Lee,
 * "Efficient memory management for deep neural net inference" (2020): the largest buffer first, each into the
 * smallest gap between those placed already that are alive with it. */
int64_t arena_plan(arena_buffer *buffers, int32_t n);
