/* The process's pool of threads that share out the tiles of a launch. */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <time.h>

#include "base/timeline.h"
#include "svm.h"

/* A kernel's data of its thread (jit/llvm/abi.py): the offsets of these fields are part of the kernel ABI.
 */
typedef struct svm_rt {
  void *scratch;       /* 64-byte aligned */
  int64_t error;       /* 0, or the kernel's error: a KERNEL_ERROR_ below */
  int64_t error_value; /* the index, and the size that it should be below; the rows, and the outputs */
  int64_t error_bound;
  int64_t prepared;     /* a kernel's own, as its scratch is; NOTHING_PREPARED when a launch begins */
  size_t scratch_bytes; /* of ours: how much `scratch` has */
  struct watch *watch;  /* of ours: what may stop the call, NULL on the pool's own threads */
  int64_t is_noted;     /* internal: `timeline` or `observe` is set */
  timeline *timeline;   /* of ours: where launches are written, NULL: nowhere */
  timeline_row *launch; /* of ours: the row of the launch that runs */
  const svm_call_options *observer; /* internal: whose `observe` is called for launches, NULL: none */
} svm_rt;

enum {
  KERNEL_ERROR_INDEX = 1,
  KERNEL_ERROR_ROWS = 2,     /* a convolution has other numbers of rows and of outputs */
  KERNEL_ERROR_DIVISION = 3, /* a divisor of integers is 0 */
  NOTHING_PREPARED = -1,
  KERNEL_STOPPED = -1 /* no kernel's: the watch stopped the launch between tiles */
};
_Static_assert(offsetof(svm_rt, error) == 8 && offsetof(svm_rt, error_value) == 16 &&
                   offsetof(svm_rt, error_bound) == 24 && offsetof(svm_rt, prepared) == 32,
               "the kernel ABI");

typedef void svm_kernel_code(void *const *buffers, const int64_t *dims, svm_rt *rt, int64_t tile_begin,
                             int64_t tile_end);

/* Make sure that rt has `scratch` bytes. 0, or -1 when there is no memory. */
int rt_reserve(svm_rt *rt, size_t scratch);
void rt_free(svm_rt *rt);

/* A call of a program begins or ends on this thread: a launch leaves a processor to each other thread that is
 * in one. A forked child has none of those. */
void threads_enter_call(void);
void threads_leave_call(void);
void threads_forget_calls(void);

/* Run tiles 0 <= t < n_tiles on the pool and the calling thread; on the latter alone while the pool is busy.
 * `stretch` >= 1: tiles that may run without a look at the caller's watch. An error that a kernel reports on
 * any thread ends up in *rt. The caller's rt has `scratch` bytes. */
void threads_run(svm_kernel_code *code, void *const *buffers, const int64_t *dims, svm_rt *rt,
                 int64_t n_tiles, int64_t stretch, size_t scratch);

/* The same on the calling thread alone. */
void threads_run_alone(svm_kernel_code *code, void *const *buffers, const int64_t *dims, svm_rt *rt,
                       int64_t n_tiles, int64_t stretch);

/* Start a thread of the runtime's: 0, or not. Signals of the process are for the host's threads, all but that
 * of a mapped file which was cut short. */
int threads_start(pthread_t *thread, void *(*run)(void *), void *argument);

/* Threads that threads_run would use at most. */
int32_t threads_count(void);

/* The time `milliseconds` from now, for waits on the monotonic clock. */
struct timespec threads_deadline(int32_t milliseconds);
