/* Output files that appear whole or not at all: written beside their place, synced, renamed. */
#ifndef SVM_OUTFILE_H
#define SVM_OUTFILE_H

#include <stdio.h>

#include "svm.h"

typedef struct outfile {
  FILE *stream;
  const char *path;
  char *beside; /* the temporary file's path; NULL for a pipe or a device, which is written as it is */
} outfile;

/* Begin a file that shall be at `path`, which must live until outfile_end. */
int32_t outfile_begin(outfile *out, const char *path, svm_error *error);

/* With `is_written`, put the file in its place; else, and on an error, nothing of it remains. */
int32_t outfile_end(outfile *out, int is_written, svm_error *error);

#endif
