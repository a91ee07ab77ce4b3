/* Reading numpy's files of either format, and writing stored (not compressed) .npz. */
#pragma once

#include "values/npy.h"

/* Read a file of at most `max_bytes` (0: no limit) into n arrays (*out to be freed by npy_free), which take
 * no more bytes than the file. Arrays of an .npz in the order of the file. */
int32_t npz_read(const char *path, int64_t max_bytes, npy_array **out, int32_t *n, svm_error *error);

/* The same of an archive's bytes; after an error the caller frees *out too. */
int32_t npz_parse(const char *path, const uint8_t *bytes, size_t size, npy_array **out, int32_t *n,
                  svm_error *error);

/* Write n contiguous tensors with names. */
int32_t npz_write(const char *path, const char *const *names, const svm_tensor *tensors, int32_t n,
                  svm_error *error);
