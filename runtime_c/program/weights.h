/* Checking the hashes of WEIGHTS: when the program is loaded, or in the background. */
#ifndef SVM_WEIGHTS_H
#define SVM_WEIGHTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "svm.h"

typedef struct weights_check {
  _Atomic int32_t state;
  _Atomic int32_t is_stopped;
  _Atomic uint64_t next, n_done; /* chunks that somebody took, and finished */
  pthread_t thread;
  int32_t has_thread;
  svm_error damage; /* set before `state` says so */
} weights_check;

/* Check as options.verify says: all now, or begin a thread of the lowest priority. */
int32_t weights_begin(svm_program *p, svm_error *error);

/* What is known now: fails once a chunk was found damaged. Costs a load. */
int32_t weights_status(svm_program *p, svm_error *error);

/* Check what is left, on this thread too; return when all is checked. */
int32_t weights_finish(svm_program *p, svm_error *error);

/* End the thread. */
void weights_end(svm_program *p);

/* In a forked child, which has no such thread: the next call begins another. */
void weights_restart(svm_program *p);

#endif
