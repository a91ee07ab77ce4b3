/* Tensors and scalars as instructions make them. Errors name the instruction. */
#ifndef SVM_INTERPRETER_H
#define SVM_INTERPRETER_H

#include "run/run.h"

/* `alloc`: in a trace without memory. sizes: registers of ints. */
int32_t tensor_alloc(call *c, int32_t dtype, int32_t rank, const uint32_t *sizes, const value *registers,
                     value *out);

/* `view`: other sizes over the same storage. */
int32_t tensor_view(call *c, value a, int32_t rank, const uint32_t *sizes, const value *registers,
                    value *out);

int32_t tensor_dim(value a, int32_t axis, int64_t *out, svm_error *error);
int32_t tensor_expect(value a, int32_t dtype, int32_t rank, const uint32_t *registers_of_sizes,
                      const value *registers, const char *what, svm_error *error);

/* `item`, `scalar`: one element as bool, int or float, and back. */
int32_t tensor_item(value a, value *out, svm_error *error);
int32_t tensor_scalar(call *c, int32_t dtype, value a, value *out);

int32_t scalar_to_float(value a, value *out, svm_error *error);
int32_t scalar_to_int(value a, value *out, svm_error *error);

/* Number of Unicode characters, as Python counts them. */
int64_t text_n_characters(const text *t);

#endif
