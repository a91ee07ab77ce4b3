/* The results of a call, as its caller gets them. */
#pragma once

#include "base/pointer_map.h"
#include "run/plan.h"

/* How the tensors that a call returns get their memory. */
typedef struct output_binding {
  const svm_allocator *allocator; /* NULL: malloc */
  const svm_value *inputs;
  const int32_t *is_copied; /* per input: the call worked on a copy; NULL: on none */
  void *const *input_data;
  const plan *plan;   /* NULL: values of the interpreter */
  void **made;        /* per output of the plan: its memory */
  storage **owners;   /* the same without an allocator */
  int32_t n_leaves;   /* so far */
  pointer_map copies; /* containers that were bound: what became of them */
  call *call;
  svm_error *error;
} output_binding;

/* Get the memory of the plan's outputs: b->made, b->owners. */
int32_t output_binding_prepare(output_binding *b);

/* Describe the results to the caller. Drops those of the interpreter one by one, so that a large first state
 * is not held twice as a whole. On an error all outputs are none. */
int32_t output_binding_finish(output_binding *b, value *results, int32_t n, svm_value *outputs);

/* Give back what output_binding_prepare got, after an error. */
void output_binding_undo(output_binding *b);

void output_binding_free(output_binding *b);
