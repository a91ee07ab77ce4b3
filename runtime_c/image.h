/* The container: header, section table, sections in memory that nobody else can change. */
#ifndef SVM_IMAGE_H
#define SVM_IMAGE_H

#include <stddef.h>

#include "svm.h"

typedef struct section {
  const uint8_t *data;
  uint64_t size, count;
  const svm_file_section *row;
} section;

/* A file's sections except WEIGHTS are read into `copy`, so that whoever changes the file later cannot change
 * what was verified; WEIGHTS is mapped read-only. In an image from memory all is the caller's. */
typedef struct image {
  section sections[SVM_FILE_N_SECTIONS + 1]; /* by id */
  void *copy;
  void *mapping;
  size_t mapping_size;
} image;

/* Check header, section table and the hashes of all sections but META. On an error nothing is left open. */
int32_t image_open_path(image *out, const char *path, svm_error *error);
int32_t image_open_memory(image *out, const void *data, size_t size, svm_error *error);
void image_close(image *image);

/* Check one section's hash. */
int32_t image_check_hash(const image *image, int32_t id, svm_error *error);

/* Name of a section, for errors. */
const char *section_name(int32_t id);

#endif
