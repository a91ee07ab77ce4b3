/* Code objects: their records parsed and evaluated, their machine code mapped. */
#pragma once

#include "base/threads.h"
#include "isa.gen.h"
#include "svm.h"

/* A row `bound` of an object (docs/artifact.md). */
typedef struct svm_file_bound {
  svm_file_size loop;
  int64_t scale;
  svm_file_size offset;
  svm_file_size axis;
} svm_file_bound;
_Static_assert(sizeof(svm_file_bound) == 56, "layout of bound");

/* A buffer of a kernel's signature. */
typedef struct buffer_type {
  int32_t dtype, is_output, rank;
  const svm_file_size *sizes;
} buffer_type;

/* One code object; all pointers go into its record, which its owner keeps. `run`: NULL until mapped. */
typedef struct code_object {
  const svm_file_object *record;
  const int64_t *exact_dims;    /* of exact code, else NULL */
  const svm_file_range *ranges; /* of a bucket, else NULL; both NULL: generic */
  const svm_file_tile *tiles;
  const svm_file_term *scratch, *cost;
  const svm_file_bound *bounds;
  const svm_file_lines *lines;
  svm_kernel_code *run;
} code_object;

enum { NO_MAX = -1 }; /* svm_file_range.max: unbounded */

/* Whether the object is for these dims. */
int code_fits(const code_object *object, const int64_t *dims);

/* The kernel that the object must match. `buffers`: the signature's bytes. */
typedef struct code_signature {
  uint32_t n_dims, n_buffers;
  const void *buffers;
  size_t buffers_size;
  uint8_t spec_hash[32];
} code_signature;

/* Parse and check a kernel's buffers at `bytes` (at most `size`). Writes n rows and the bytes they take. */
int32_t code_parse_buffers(const char *label, const void *bytes, size_t size, uint32_t n_dims, uint32_t n,
                           buffer_type *rows, size_t *out_size, svm_error *error);

/* Parse and check one object's record at `bytes` (at most `size`). */
int32_t code_parse(const char *label, const code_signature *kernel, const void *bytes, size_t size,
                   code_object *out, svm_error *error);

/* Check the object's hash over record and code. */
int32_t code_check_hash(const char *label, const code_object *object, const void *code, svm_error *error);

/* 0: this CPU does not run the target; otherwise the greater the better. */
int32_t code_target_rank(const char *target);

/* Value of a size, sum of terms, number of tiles: >= 0, or -1 when over 2^62. */
int64_t code_size(const svm_file_size *size, const int64_t *dims);
int64_t code_terms(const svm_file_term *terms, uint32_t n, const int64_t *dims);
int64_t code_tiles(const code_object *object, const int64_t *dims);

/* Check all bounds for these dims. */
int32_t code_check_bounds(const char *label, const code_object *object, const int64_t *dims,
                          svm_error *error);

/* A read+execute copy of several pieces of code, each at a multiple of its alignment. */
typedef struct code_map {
  void *memory;
  size_t size;
} code_map;

typedef struct code_piece {
  const void *code;
  size_t size, alignment; /* the latter a power of two, at most a page */
  const char *name;       /* for the perf map; NULL: not in it */
} code_piece;

/* Map the pieces; starts[i] gets the address of piece i. Never writable and executable at once. */
int32_t code_map_make(const code_piece *pieces, int32_t n, int write_perf_map, code_map *out, void **starts,
                      svm_error *error);
void code_map_free(code_map *map);
