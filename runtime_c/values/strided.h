/* Tensors that callers describe with strides: checked, recognised as contiguous, copied. */
#pragma once

#include "svm.h"

/* Dtype, rank, sizes and their product are in range and there is data; `what` names the tensor in errors. */
int32_t strided_check(const char *what, const svm_tensor *t, svm_error *error);

/* The same for memory that is used in place: also refuse tensors that are not contiguous or aligned. */
int32_t strided_check_lent(const char *what, const svm_tensor *t, svm_error *error);

/* Whether the elements are row-major without gaps. */
int strided_is_contiguous(const svm_tensor *t);

/* Copy the elements row-major without gaps. */
void strided_copy(void *to, const svm_tensor *from);

/* Whether kernels can read the tensor in place: row-major, elements aligned. True also for one that no kernel
 * can read.
 */
int strided_is_usable(const svm_tensor *t);
