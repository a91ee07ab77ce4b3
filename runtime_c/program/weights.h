/* Checking the hashes of WEIGHTS: when the program is loaded, or in the background. */
#pragma once

#include "program/program.h"

/* Check as options.verify says: all now, or begin a thread of the lowest priority. */
int32_t weights_begin(svm_program *p, svm_error *error);

/* The present state: fails once a chunk was found damaged. Costs a load. */
int32_t weights_status(svm_program *p, svm_error *error);

/* Check the remaining chunks, also on this thread; return when all are checked. */
int32_t weights_finish(svm_program *p, svm_error *error);

/* End the thread. */
void weights_end(svm_program *p);

/* In a forked child, which has no such thread: the next call begins another. */
void weights_restart(svm_program *p);
