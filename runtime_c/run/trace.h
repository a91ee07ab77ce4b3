/* What a trace collects. */
#ifndef SVM_TRACE_H
#define SVM_TRACE_H

#include "base/arena.h"
#include "run/run.h"

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

#endif
