/* A timeline: the start and end of calls, launches, threads' shares of launches and host functions. Any
 * number of threads write to it at once, each to separate rows. */
#pragma once

#include "svm.h"

/* The kind of a row. A share: the tiles of a launch that one thread ran. */
enum { TIMELINE_CALL, TIMELINE_LAUNCH, TIMELINE_SHARE, TIMELINE_EXTERN };

typedef struct timeline_row {
  _Atomic int32_t is_complete; /* set last: marks a row as readable */
  int32_t kind, index;         /* TIMELINE_..., number of the function, kernel or host function */
  int32_t thread;              /* the system's number of it */
  int32_t tier;                /* of a launch: SVM_TIER_... */
  int32_t n_dims;
  int64_t begin_ns, end_ns; /* of CLOCK_MONOTONIC */
  int64_t n_tiles;
  const int64_t *dims; /* of a launch; of a call the first symbols' values */
  char schedule[64];
} timeline_row;

/* Rows are short, and their data is packed, because new pages cost a call more than the clock does. */
typedef struct timeline {
  _Atomic int64_t n; /* requested rows: those over `capacity` are lost */
  _Atomic int64_t n_dims;
  int64_t capacity, begin_ns;
  int64_t *dims; /* room for SVM_LIMIT_DIMS of each row */
  timeline_row rows[];
} timeline;

/* An empty timeline, NULL without memory. Its rows take memory once they are written. */
timeline *timeline_make(void);
void timeline_free(void *timeline);

/* In a child of fork: the thread that lives on has another number. */
void timeline_forget_thread(void);

/* A new row that begins now, NULL when all are taken. */
timeline_row *timeline_begin(timeline *t, int32_t kind, int32_t index);

/* Give a row its dims, at most SVM_LIMIT_DIMS; once. */
void timeline_set_dims(timeline *t, timeline_row *row, const int64_t *dims, int32_t n_dims);

/* End a row now. NULL is fine. */
void timeline_end(timeline_row *row);
