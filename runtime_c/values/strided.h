/* Tensors that callers describe with strides: checked, recognised as contiguous, copied. */
#ifndef SVM_STRIDED_H
#define SVM_STRIDED_H

#include "svm.h"

/* Dtype, rank, sizes and their product are in range and there is data; `what` names the tensor in errors. */
int32_t strided_check(const char *what, const svm_tensor *t, svm_error *error);

/* Whether the elements lie row-major without gaps. */
int strided_is_contiguous(const svm_tensor *t);

/* Copy the elements row-major without gaps. */
void strided_copy(void *to, const svm_tensor *from);

#endif
