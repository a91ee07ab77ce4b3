/* Tensors and scalars as instructions make them: `r` are the frame's registers, `pc` the instruction, whose
 * operands outside of lists match its row of vm/isa.py. Errors name the instruction. */
#pragma once

#include "run/context.h"

/* `alloc`: in a trace without memory. */
int32_t tensor_alloc(call *c, const value *r, const uint32_t *pc, value *out);

/* `view`: other sizes over the same storage. */
int32_t tensor_view(call *c, const value *r, const uint32_t *pc, value *out);

/* `part`: some elements, in place. */
int32_t tensor_part(call *c, const value *r, const uint32_t *pc, value *out);

int32_t tensor_dim(const tensor *a, int32_t axis, int64_t *out, svm_error *error);
int32_t tensor_expect(call *c, const value *r, const uint32_t *pc);

/* `expect_items`: of a list among the inputs. */
int32_t items_expect(call *c, const sequence *items, const uint32_t *pc);

/* `distinct`: whether no two plain values are equal. */
int32_t items_distinct(call *c, const sequence *items, int64_t *is_distinct);

/* `item`, `scalar`: one element as bool, int or float, and back. */
int32_t tensor_item(call *c, const value *r, const uint32_t *pc, value *out);
int32_t tensor_scalar(call *c, int32_t dtype, value a, value *out);

/* Of a bool, int or float. */
value scalar_to_float(value a);
int32_t scalar_to_int(value a, value *out, svm_error *error);
