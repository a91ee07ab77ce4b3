/* A file's bytes in memory: copied, or mapped privately and watched. A change or truncation of a mapped file
 * is detected (`mapping_state`) and never kills the process: lost bytes are read as zeros. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "svm.h"

struct guard;

typedef struct mapping {
  void *data;
  size_t size;
  /* Of a mapped file, else -1 and NULL: */
  int file;
  struct guard *guard;
  uint64_t file_size;
  _Atomic int64_t modified; /* nanoseconds */
} mapping;

enum { MAPPING_HUGE_PAGE = 2 << 20 };

/* Read `size` bytes from the file's start into memory that is read-only from then on. `is_huge`: on huge
 * pages, where the system has them; `out->size` counts the rest of the last one, unless it is large. */
int32_t mapping_copy(mapping *out, int file, const char *path, size_t size, int is_huge, svm_error *error);

/* Map `size` bytes at `offset`, a multiple of the page size. The descriptor is duplicated. `is_huge`: on huge
 * pages, where the file system has them. */
int32_t mapping_make(mapping *out, int file, const char *path, size_t offset, size_t size, int is_huge,
                     svm_error *error);

/* What has become of a mapped file since it was mapped, or since `modified` was noted; of a copy, nothing.
 * TOUCHED: its time, *modified, is another one, its size is not. */
enum { MAPPING_SAME, MAPPING_TOUCHED, MAPPING_CHANGED };
int mapping_state(const mapping *mapping, int64_t *modified);

/* Fill *error with the reason for refusing a file that is not SAME. */
int32_t mapping_fail_changed(const char *path, svm_error *error);

/* Wait until any later change of the file gives it a time other than `modified`. */
void mapping_wait_for_clock(int64_t modified);

/* Around reads of mapped bytes, because hosts replace and block the signal that a truncated file raises. Pass
 * the result of mapping_arm to mapping_disarm. */
int mapping_arm_guarded(void);
void mapping_block(void);

static inline int mapping_arm(const mapping *mapping) { return mapping->guard ? mapping_arm_guarded() : 0; }

static inline void mapping_disarm(int was_blocked) {
  if (was_blocked) mapping_block();
}

void mapping_free(mapping *mapping);

/* Around a fork: no other thread is changing the list of mappings. */
void mapping_lock(void);
void mapping_unlock(void);

/* Fill *error with what errno says of a file. */
int32_t mapping_fail(const char *path, const char *what, svm_error *error);

/* Read exactly `size` bytes at `offset`: 0, or -1 and errno. */
int mapping_read(int file, void *to, size_t size, size_t offset);
