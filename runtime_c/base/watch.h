/* What may stop a running call: a cancel flag, a deadline, the host's poll. Looked at between kernels,
 * between tiles of long kernels, and every few thousand instructions; never inside of a kernel. */
#pragma once

#include "svm.h"

typedef struct watch {
  const svm_call_options *options;
  int64_t timeout_ms, deadline_ns, next_poll_ns; /* deadline 0: none */
  int32_t has_clock;                             /* a deadline or a poll */
  int32_t code;                                  /* why it stopped: an error code, SVM_OK while it runs */
} watch;

/* Fill *w; return w, or NULL where nothing can stop the call: then a look costs one branch. */
watch *watch_begin(watch *w, const svm_call_options *options, int64_t timeout_ms);

/* Return the code with which the call must stop, SVM_OK to go on. NULL is fine. Without a clock it costs a
 * load, with one the time of CLOCK_MONOTONIC_COARSE, some 5 ns. */
int32_t watch_look(watch *w);

/* The error of a watch that stopped. */
int32_t watch_fail(const watch *w, svm_error *error);
