/* The container: header, section table, sections in private memory. */
#pragma once

#include <stddef.h>

#include "base/mapping.h"
#include "isa.gen.h"
#include "svm.h"

typedef struct section {
  const uint8_t *data;
  uint64_t size, count;
  const svm_file_section *row;
} section;

/* A file's sections are read into `copy`, so that later changes of the file cannot affect verified data; the
 * WEIGHTS of large files are mapped (svm_options.copy). An image from memory belongs to the caller. */
typedef struct image {
  section sections[SVM_FILE_N_SECTIONS + 1]; /* by id */
  mapping copy, weights;
  char *path;      /* for messages: the file's, or "artifact" */
  int64_t refused; /* time of the mapped file when it had other bytes, 0: it never had; under image_lock */
  uint32_t version;
} image;

/* Check all of the container but the hashes of WEIGHTS. Of `options`, `copy` and `sha256` count. On an error
 * nothing is left open. `path` names the open `file` in messages. */
int32_t image_open_file(image *out, int file, const char *path, const svm_options *options, svm_error *error);
int32_t image_open_memory(image *out, const void *data, size_t size, const svm_options *options,
                          svm_error *error);
void image_close(image *image);

/* The file still has the bytes that were opened. Where its time alone is another one it is read once: what
 * was computed from it before may be wrong (`was_touched`). */
int32_t image_check_file(image *image, int *was_touched, svm_error *error);

/* Around a fork: no other thread is reading a file for that. */
void image_lock(void);
void image_unlock(void);

/* Number of chunks of a section that CHUNKS has hashes of. */
uint64_t image_n_chunks(const image *image, int32_t id);

/* Whether chunk `index` of the section matches its hash. With `room` for a chunk, mapped WEIGHTS are read
 * from their file into it: what no call reads then takes no memory of this process. */
int image_is_chunk_sound(const image *image, int32_t id, uint64_t index, void *room);

/* Name of a section, for errors. */
const char *section_name(int32_t id);
