/* Which of a kernel's code objects are for a launch's dims, without looking at all of them. */
#pragma once

#include "program/code.h"

/* An object, and the sizes of the index' dim that it is for; `top`: the greatest of those up to here. */
typedef struct code_span {
  int64_t low, high, top;
  int32_t object;
} code_span;

/* Objects in order of the dim that distinguishes most of them. */
typedef struct code_index {
  const code_object *objects;
  code_span *spans;
  int32_t n_spans;
  uint32_t dim, n_dims;
} code_index;

/* Index those of `objects` with this guard (exact or bucket); writes at most n_objects `spans`, which the
 * index keeps. */
code_index code_index_make(const code_object *objects, int32_t n_objects, uint32_t n_dims, uint32_t guard,
                           code_span *spans);

/* The first object for these dims, NULL without any. Ranges that do not overlap in the index' dim, such as
 * those of sizes that round up to multiples, cost a binary search. */
const code_object *code_index_find(const code_index *x, const int64_t *dims);
