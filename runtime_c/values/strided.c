/* Strided tensors of callers. */
#include "values/strided.h"

#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "values/value.h"

int32_t strided_check(const char *what, const svm_tensor *t, svm_error *error) {
  if (t->dtype < 0 || t->dtype >= N_DTYPES) {
    return status_fail(error, SVM_ERROR_DTYPE, "%s: dtype %d is unknown, known are 0 to %d", what, t->dtype,
                       N_DTYPES - 1);
  }
  if (t->rank < 0 || t->rank > SVM_MAX_RANK) {
    return status_fail(error, SVM_ERROR_SHAPE, "%s: rank %d is out of range, at most %d axes are supported",
                       what, t->rank, SVM_MAX_RANK);
  }
  int64_t n = checked_elements(t->rank, t->sizes);
  if (checked_bytes(t->dtype, n) < 0) {
    return status_fail(error, SVM_ERROR_SHAPE, "%s: its sizes are negative or make over 2^62 bytes", what);
  }
  if (!t->data && n) return status_fail(error, SVM_ERROR_ARGUMENT, "%s: data is NULL; pass its memory", what);
  return SVM_OK;
}

int32_t strided_check_lent(const char *what, const svm_tensor *t, svm_error *error) {
  if (strided_check(what, t, error)) return error->code;
  if (strided_is_contiguous(t) && (uintptr_t)t->data % (uintptr_t)DTYPE_BYTES[t->dtype] == 0) return SVM_OK;
  return status_fail(error, SVM_ERROR_ARGUMENT, "%s: it must be contiguous with aligned elements; copy it",
                     what);
}

int strided_is_contiguous(const svm_tensor *t) {
  if (!t->strides) return 1;
  int64_t expected = 1;
  for (int32_t i = t->rank - 1; i >= 0; i--) {
    if (t->sizes[i] == 0) return 1;
    if (t->sizes[i] != 1 && t->strides[i] != expected) return 0;
    if (__builtin_mul_overflow(expected, t->sizes[i], &expected)) return 0;
  }
  return 1;
}

static char *copy_axis(char *to, const char *from, const svm_tensor *t, int32_t axis) {
  int64_t bytes = DTYPE_BYTES[t->dtype];
  if (axis == t->rank) {
    memcpy(to, from, (size_t)bytes);
    return to + bytes;
  }
  for (int64_t i = 0; i < t->sizes[axis]; i++)
    to = copy_axis(to, from + i * t->strides[axis] * bytes, t, axis + 1);
  return to;
}

void strided_copy(void *to, const svm_tensor *from) {
  int64_t n = checked_elements(from->rank, from->sizes);
  if (n == 0) return;
  if (strided_is_contiguous(from)) memcpy(to, from->data, (size_t)checked_bytes(from->dtype, n));
  else copy_axis(to, from->data, from, 0);
}

int strided_is_usable(const svm_tensor *t) {
  int is_known = t->dtype >= 0 && t->dtype < N_DTYPES && t->rank >= 0 && t->rank <= SVM_MAX_RANK;
  if (!is_known) return 1; /* it is refused later */
  return (uintptr_t)t->data % (uintptr_t)DTYPE_BYTES[t->dtype] == 0 && strided_is_contiguous(t);
}
