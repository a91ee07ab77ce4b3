/* Output files that appear whole or not at all: written beside their place, synced, renamed. */
#pragma once

#include <stdio.h>

#include "svm.h"

typedef struct outfile {
  FILE *stream;
  const char *path; /* for messages */
  char *target;     /* the path without links at its end */
  char *beside;     /* the temporary file's path; NULL if the target is written in place */
} outfile;

/* The open file of this process that a path denotes, such as 1 for /dev/stdout; -1 for other paths. */
int outfile_descriptor(const char *path);

/* Begin a file for `path`, which must live until outfile_end. Links are followed, and an existing file keeps
 * its owner and mode. Paths that a file cannot be renamed to are written in place: devices, pipes, open files
 * of this process, mounted files, and files whose folder is not writable or whose owner cannot be kept.
 */
int32_t outfile_begin(outfile *out, const char *path, svm_error *error);

/* With `is_written`, put the file in its place; else, and on an error, nothing of it remains beside it. */
int32_t outfile_end(outfile *out, int is_written, svm_error *error);
