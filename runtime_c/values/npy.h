/* Arrays in numpy's files: .npy (format 1.0 to 3.0). For the runner. */
#pragma once

#include "svm.h"

typedef struct npy_array {
  char name[256]; /* in an .npz, without ".npy"; else "" */
  svm_tensor tensor;
  void *memory;        /* of the elements, to be freed */
  int64_t strides[16]; /* tensor.strides points here for Fortran order */
} npy_array;

void npy_free(npy_array *arrays, int32_t n);

/* A str as an array: `sizes[0]` code points of 4 bytes, of no axis; numpy's dtype "<U". */
enum { NPY_TEXT = -1 };

/* Write the code points of UTF-8 text, at most `length` of them, into `out`; return their number. Bytes that
 * are none become U+FFFD. */
int64_t npy_code_points(const char *text, int64_t length, uint32_t *out);

/* Write one contiguous tensor. */
int32_t npy_write(const char *path, const svm_tensor *tensor, svm_error *error);

/* --- for npz.c --- */

enum { MAX_NPY_HEADER = 1024 };

/* Parse an .npy of `size` bytes; `what` names it in errors. */
int32_t npy_parse(const char *what, const uint8_t *bytes, size_t size, npy_array *out, svm_error *error);

/* Write the header before the elements, return its bytes (a multiple of 64). */
size_t npy_header(const svm_tensor *tensor, char header[MAX_NPY_HEADER]);
size_t npy_data_bytes(const svm_tensor *tensor);

/* The bytes of a regular file of at most `max_bytes` (0: no limit), NULL on an error. */
uint8_t *npy_read_file(const char *path, int64_t max_bytes, size_t *size, svm_error *error);
