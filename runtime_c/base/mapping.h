/* A file's bytes in memory: copied, or mapped privately and watched. A mapped file that somebody changes or
 * cuts short is noticed (`mapping_check`) and never kills the process: what can no longer be read is read as
 * zeros. */
#ifndef SVM_MAPPING_H
#define SVM_MAPPING_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "svm.h"

struct guard;

typedef struct mapping {
  void *data;
  size_t size;
  /* Of a mapped file, else -1 and NULL: */
  int file;
  struct guard *guard;
  uint64_t file_size;
  struct timespec modified;
} mapping;

enum { MAPPING_HUGE_PAGE = 2 << 20 };

/* Read `size` bytes from the file's start into memory that is read-only from then on. `is_huge`: on huge
 * pages, where the system has them; `out->size` counts the rest of the last one, unless it is large. */
int32_t mapping_copy(mapping *out, int file, const char *path, size_t size, int is_huge, svm_error *error);

/* Map `size` bytes at `offset`, a multiple of the page size. The descriptor is duplicated. `is_huge`: on huge
 * pages, where the file system has them. */
int32_t mapping_make(mapping *out, int file, const char *path, size_t offset, size_t size, int is_huge,
                     svm_error *error);

/* SVM_OK while a mapped file has not changed since it was mapped; of a copy, always. */
int32_t mapping_check(const mapping *mapping, const char *path, svm_error *error);

void mapping_free(mapping *mapping);

/* Around a fork: nobody else is changing the list of mappings. */
void mapping_lock(void);
void mapping_unlock(void);

/* Fill *error with what errno says of a file. */
int32_t mapping_fail(const char *path, const char *what, svm_error *error);

/* Read exactly `size` bytes at `offset`: 0, or -1 and errno. */
int mapping_read(int file, void *to, size_t size, size_t offset);

#endif
