/* Cancelling calls. */
#include "base/watch.h"

#include <inttypes.h>
#include <time.h>

#include "base/float_mode.h"
#include "base/status.h"

static const int64_t POLL_NS = 50 * 1000 * 1000;

/* A clock of a few milliseconds' resolution that is cheap to read. */
static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

watch *watch_begin(watch *w, const svm_call_options *options, int64_t timeout_ms) {
  if (options->timeout_ms) timeout_ms = options->timeout_ms;
  *w = (watch){.options = options, .timeout_ms = timeout_ms, .has_clock = timeout_ms || options->poll};
  if (!w->has_clock && !options->cancel) return NULL;
  if (!w->has_clock) return w;
  int64_t now = now_ns(), span;
  w->next_poll_ns = options->poll ? now + POLL_NS : INT64_MAX;
  w->deadline_ns = INT64_MAX;
  if (timeout_ms && !__builtin_mul_overflow(timeout_ms, INT64_C(1000000), &span) && span < INT64_MAX - now)
    w->deadline_ns = now + span;
  return w;
}

int32_t watch_look(watch *w) {
  if (!w || w->code) return w ? w->code : SVM_OK;
  const svm_call_options *o = w->options;
  if (o->cancel && *o->cancel) return w->code = SVM_ERROR_CANCELLED;
  if (!w->has_clock) return SVM_OK;
  int64_t now = now_ns();
  if (now >= w->deadline_ns) return w->code = SVM_ERROR_TIMEOUT;
  if (now < w->next_poll_ns) return SVM_OK;
  int is_stopped = o->poll(o->context);
  float_mode_set(); /* a signal's handler may have set another */
  if (is_stopped) return w->code = SVM_ERROR_CANCELLED;
  w->next_poll_ns = now + POLL_NS;
  return SVM_OK;
}

int32_t watch_fail(const watch *w, svm_error *error) {
  if (w->code == SVM_ERROR_TIMEOUT)
    return status_fail(error, w->code,
                       "timeout: the call took longer than %" PRId64
                       " ms; raise the limit or use smaller inputs",
                       w->timeout_ms);
  return status_fail(error, w->code, "the call was cancelled by its host");
}
