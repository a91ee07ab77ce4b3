#include "program/code_index.h"

#include <stdlib.h>

/* The sizes of a dim that an object is for; without dims, of none. */
static code_span span_of(const code_object *o, int32_t object, uint32_t dim) {
  code_span s = {0, INT64_MAX, 0, object};
  if (dim >= o->record->n_dims) return s;
  if (o->exact_dims) s.low = s.high = o->exact_dims[dim];
  else s.low = o->ranges[dim].min, s.high = o->ranges[dim].max == NO_MAX ? INT64_MAX : o->ranges[dim].max;
  return s;
}

static int by_low(const void *a, const void *b) {
  const code_span *x = a, *y = b;
  if (x->low != y->low) return x->low < y->low ? -1 : 1;
  return x->object < y->object ? -1 : x->object > y->object;
}

/* Sort the spans by a dim; return the number of different lows. */
static int32_t sort_by(code_index *x, uint32_t dim) {
  int32_t n_different = 0;
  x->dim = dim;
  for (int32_t i = 0; i < x->n_spans; i++) {
    int32_t object = x->spans[i].object;
    x->spans[i] = span_of(&x->objects[object], object, dim);
  }
  qsort(x->spans, (size_t)x->n_spans, sizeof *x->spans, by_low);
  for (int32_t i = 0; i < x->n_spans; i++) {
    code_span *s = &x->spans[i];
    s->top = i && s[-1].top > s->high ? s[-1].top : s->high;
    n_different += !i || s->low != s[-1].low;
  }
  return n_different;
}

code_index code_index_make(const code_object *objects, int32_t n_objects, uint32_t n_dims, uint32_t guard,
                           code_span *spans) {
  code_index made = {objects, spans, 0, 0, n_dims};
  for (int32_t i = 0; i < n_objects; i++) {
    if (objects[i].record->guard == guard) spans[made.n_spans++].object = i;
  }
  uint32_t best = 0;
  int32_t most = 0;
  for (uint32_t dim = 0; made.n_spans && dim < n_dims; dim++) {
    int32_t n = sort_by(&made, dim);
    if (n > most) most = n, best = dim;
  }
  sort_by(&made, best);
  return made;
}

const code_object *code_index_find(const code_index *x, const int64_t *dims) {
  int64_t size = x->n_dims ? dims[x->dim] : 0;
  int32_t begin = 0, end = x->n_spans; /* the spans before `begin` start at `size` or below */
  while (begin < end) {
    int32_t middle = begin + (end - begin) / 2;
    if (x->spans[middle].low <= size) begin = middle + 1;
    else end = middle;
  }
  const code_object *found = NULL;
  for (const code_span *s = x->spans + begin; s > x->spans && s[-1].top >= size; s--) {
    const code_object *o = &x->objects[s[-1].object];
    if ((!found || o < found) && code_fits(o, dims)) found = o;
  }
  return found;
}
