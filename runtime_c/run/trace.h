/* The data that a trace collects. */
#pragma once

#include "base/arena.h"
#include "base/pointer_map.h"
#include "run/plan.h"

enum { NO_STEP = -1 };

/* Growing tables. */
typedef struct recorder {
  step *steps;
  buffer_ref *refs;
  arena_buffer *storages;
  int32_t *output_of; /* per storage: its number among the plan's outputs, or -1 */
  int64_t n_steps, n_refs, n_storages;
  int64_t step_capacity, ref_capacity, storage_capacity;
  int64_t max_bytes;   /* 0: no limit */
  int32_t is_given_up; /* calls of the function are interpreted */
  pointer_map seen;    /* containers among the results */
} recorder;

/* Record one launch; `registers` and `buffers` as in launch_check. */
int32_t record_launch(call *c, entry *e, const value *registers, const uint32_t *buffers, int32_t n_buffers,
                      int32_t function, uint32_t pc);

/* The error of a trace that there is no memory for. */
int32_t record_fail_memory(const call *c);

/* *out: the number of a new traced storage. */
int32_t record_storage(call *c, int64_t n_bytes, int32_t *out);

/* New storage that holds one element, the first of `bytes`. */
storage *record_scalar(call *c, int64_t n_bytes, int64_t bytes);

/* An instruction looks at an element: an error where the trace does not know it, or another call of the same
 * key may find another one. */
int32_t record_look(call *c, const storage *s);

/* End the trace: calls of the function are to be interpreted. */
int32_t record_give_up(call *c);
