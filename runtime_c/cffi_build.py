"""The cffi module shapevm.vm._runtime: all of svm.h, and the prepared call that vm/fast_path.py makes.

`python -m cffi.gen_src exec-python cffi_build.py _runtime.c` writes its C source.
"""

import re
from pathlib import Path

from cffi import FFI

INCLUDE = Path(__file__).parent / "include"
BEGIN, END = "/* --- cffi begin --- */", "/* --- cffi end --- */"

# A call whose outputs' sizes are known from an earlier one: everything is filled in except addresses.
FRAME = """
typedef struct svm_frame {
  svm_program *program;
  int32_t function, n_inputs, n_outputs;
  svm_value *inputs;
  svm_value *outputs;
  const svm_tensor *expected; /* per output: dtype, rank, sizes */
  const uint64_t *expected_bytes;
  uintptr_t *input_data;      /* per input: address of a tensor's data, unused for others */
  const uint64_t *input_align; /* per input: bytes per element, 0 for anything but a tensor */
  uintptr_t *output_data;
  svm_error *error;
} svm_frame;

/* -1: the call was not made (an address is misaligned) or its outputs are not the expected ones; else what
 * svm_call returns. Either way outputs are released. */
int32_t svm_frame_call(svm_frame *frame);

/* Set this thread's floating-point mode to that of kernels; what it was is for svm_leave_float_mode. */
typedef struct svm_float_mode { uint64_t control; uint16_t x87; } svm_float_mode;
void svm_enter_float_mode(svm_float_mode *before);
void svm_leave_float_mode(const svm_float_mode *before);

/* The poll of a call's options: not 0 when a signal's handler raised an exception. Only Python's main thread
 * runs these. */
int32_t svm_poll_signals(void *context);

/* Whether the process was forked since is_forked was last 0; svm_watch_forks is called once. */
extern int32_t svm_is_forked;
void svm_watch_forks(void);

/* Whether Python itself makes the next fork of this thread: without a rest, and with its own repairs. */
void svm_python_forks(int32_t does);

/* Let the process end with the process `program`, or when the other end of the socket `link` is closed. Its
 * main thread then gets normal priority: a thread of the lowest one may get no time to end in. 0, or -1 where
 * there is no thread to be had. */
int32_t svm_end_with(int32_t program, int32_t link);
"""

CALLBACKS = """
extern "Python+C" int32_t svm_py_poll(void *context);
extern "Python" void *svm_py_allocate(void *context, int32_t leaf, const svm_tensor *like, size_t n_bytes);
extern "Python" void svm_py_release(void *context);
extern "Python" void svm_py_observe(void *context, int32_t kernel, int32_t is_end);
extern "Python" void svm_py_damaged(void *context, const char *message);
extern "Python" int32_t svm_py_extern(void *context, const svm_value *args, int32_t n_args,
                                      svm_value *results, int32_t n_results, svm_error *error);
extern "Python" int32_t svm_py_dps(void *context, const svm_value *args, int32_t n_args,
                                   const svm_tensor *outputs, int32_t n_outputs, svm_error *error);
"""

SOURCE = (
    r"""
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_DEFAULT */
#endif
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/float_mode.h"
#include "svm.h"
"""
    + FRAME
    + r"""
enum { FORKED = -2 };
int32_t svm_py_poll(void *context);

int32_t svm_poll_signals(void *context) {
  return syscall(SYS_gettid) == getpid() ? svm_py_poll(context) : 0;
}

void svm_enter_float_mode(svm_float_mode *before) {
  float_mode found = float_mode_set();
  *before = (svm_float_mode){found.control, found.x87};
}

void svm_leave_float_mode(const svm_float_mode *before) {
  float_mode_restore((float_mode){before->control, before->x87});
}

int32_t svm_is_forked;

static void note_fork(void) { svm_is_forked = 1; }

static __thread int32_t python_forks;

void svm_python_forks(int32_t does) { python_forks = does; }

static PyThreadState *(*running)(void); /* the thread state that has the GIL; not in Python's limited API */

/* In a thread that has the GIL and forks in C: let others have it. */
static int32_t rest(void) {
  if (python_forks) return 0;
  PyThreadState *own = running ? PyGILState_GetThisThreadState() : NULL;
  int has_gil = own && running() == own;
  if (has_gil) PyEval_SaveThread();
  usleep(1000);
  if (has_gil) PyEval_RestoreThread(own);
  return 1;
}

void svm_watch_forks(void) {
  void *found = dlsym(RTLD_DEFAULT, "PyThreadState_GetUnchecked");
  if (!found) found = dlsym(RTLD_DEFAULT, "_PyThreadState_UncheckedGet");
  memcpy(&running, &found, sizeof found);
  pthread_atfork(NULL, NULL, note_fork);
  svm_rest_before_forks(rest);
}

static struct pollfd followed[2]; /* the program, the other end of the link */

static void *follow(void *unused) {
  struct sched_param normal = {0};
  (void)unused;
  while (poll(followed, 2, -1) < 0 && errno == EINTR) continue;
  sched_setscheduler(getpid(), SCHED_OTHER, &normal);
  kill(getpid(), SIGKILL);
  return NULL;
}

int32_t svm_end_with(int32_t program, int32_t link) {
  pthread_t thread;
  int end = (int)syscall(SYS_pidfd_open, program, 0);
  if (getppid() != program) kill(getpid(), SIGKILL);
  followed[0] = (struct pollfd){.fd = end, .events = POLLIN}; /* one of -1 is passed over */
  followed[1] = (struct pollfd){.fd = link, .events = POLLRDHUP};
  return pthread_create(&thread, NULL, follow, NULL) ? -1 : 0;
}

static int is_like(const svm_tensor *a, const svm_tensor *b) {
  if (a->dtype != b->dtype || a->rank != b->rank) return 0;
  return memcmp(a->sizes, b->sizes, sizeof(int64_t) * (size_t)a->rank) == 0;
}

static void *frame_allocate(void *context, int32_t leaf, const svm_tensor *like, size_t n_bytes) {
  svm_frame *frame = context;
  if (leaf < 0 || leaf >= frame->n_outputs) return NULL;
  if (n_bytes != frame->expected_bytes[leaf] || !is_like(like, &frame->expected[leaf])) return NULL;
  return (void *)frame->output_data[leaf];
}

int32_t svm_frame_call(svm_frame *frame) {
  if (svm_is_forked) return FORKED;
  for (int32_t i = 0; i < frame->n_inputs; i++) {
    if (frame->input_align[i] == 0) continue;
    if (frame->input_data[i] % frame->input_align[i] != 0) return -1;
    frame->inputs[i].tensor.data = (void *)frame->input_data[i];
  }
  svm_allocator allocator = {frame, frame_allocate, NULL};
  static const svm_call_options OPTIONS = {.strategy = -1, .poll = svm_poll_signals};
  int32_t code = svm_call_with(frame->program, &OPTIONS, frame->function, frame->inputs, frame->n_inputs,
                               &allocator, frame->outputs, frame->n_outputs, frame->error);
  if (code == SVM_ERROR_MEMORY) return -1; /* perhaps frame_allocate's refusal: the general call finds out */
  if (code != SVM_OK) return code;
  for (int32_t i = 0; i < frame->n_outputs; i++) {
    svm_value *value = &frame->outputs[i];
    int is_new = value->tag == SVM_TAG_TENSOR && value->origin == SVM_ORIGIN_NEW;
    int is_mine = is_new && (uintptr_t)value->tensor.data == frame->output_data[i];
    if (!is_mine || !is_like(&value->tensor, &frame->expected[i])) code = -1;
    svm_value_release(value);
  }
  return code;
}
"""
)


def declarations() -> str:
    """Return svm.h's part for cffi, without preprocessor lines, with the limits' numbers."""
    limits = dict(re.findall(r"#define (SVM_LIMIT_\w+) (\d+)", (INCLUDE / "svm_codes.h").read_text()))
    text = (INCLUDE / "svm.h").read_text().split(BEGIN)[1].split(END)[0]
    text = re.sub(r"SVM_LIMIT_\w+", lambda found: limits[found[0]], text)
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


ffibuilder = FFI()
ffibuilder.cdef(declarations() + FRAME + CALLBACKS)
ffibuilder.set_source("shapevm.vm._runtime", SOURCE)
