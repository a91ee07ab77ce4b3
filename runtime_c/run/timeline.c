/* Timelines of a program: switched on and off, and written in Chrome's trace event format. */
#include "base/timeline.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/status.h"
#include "base/text.h"
#include "run/context.h"

int32_t svm_timeline(svm_program *p, int32_t is_on, svm_error *error) {
  if (status_need(p, "svm_timeline: program", error)) return SVM_ERROR_ARGUMENT;
  svm_error unasked;
  timeline *made = is_on ? timeline_make() : NULL;
  if (is_on && !made)
    return status_fail(error ? error : &unasked, SVM_ERROR_MEMORY, "memory: there is none for a timeline");
  pthread_mutex_lock(&p->lock);
  atomic_store(&p->observers.timeline, made);
  if (made) {
    timeline *before = p->observers.latest_timeline;
    p->observers.latest_timeline = made;
    if (before) retire(p, before, timeline_free); /* after the calls that may still write to it */
    reclaim(p, 0);
  }
  pthread_mutex_unlock(&p->lock);
  return SVM_OK;
}

static void add_numbers(text_buffer *t, const int64_t *numbers, int32_t n) {
  text_add(t, "[");
  for (int32_t i = 0; i < n; i++) text_add(t, i ? ", %" PRId64 : "%" PRId64, numbers[i]);
  text_add(t, "]");
}

static void add_launch(text_buffer *t, const svm_program *p, const timeline_row *r) {
  static const char *const TIERS[] = SVM_TIER_NAMES;
  text_add(t, "\"kernel\": %" PRId32 ", \"source\": ", r->index);
  text_add_quoted(t, p->kernels[r->index].info.source);
  text_add(t, ", \"tier\": \"%s\", \"schedule\": ", TIERS[r->tier]);
  text_add_quoted(t, r->schedule);
  text_add(t, ", \"tiles\": %" PRId64 ", \"dims\": ", r->n_tiles);
  add_numbers(t, r->dims, r->n_dims);
}

static void add_symbols(text_buffer *t, const svm_program *p, const timeline_row *r) {
  for (int32_t i = 0; i < r->n_dims; i++) {
    if (i) text_add(t, ", ");
    text_add_quoted(t, p->io.symbols[i].name);
    text_add(t, ": %" PRId64, r->dims[i]);
  }
}

/* A complete event, "X", with times in us since the timeline began. */
static void add_event(text_buffer *t, const svm_program *p, const timeline *all, const timeline_row *r) {
  static const char *const KINDS[] = {"call", "kernel", "tiles", "host"};
  const char *names[] = {
      r->kind == TIMELINE_CALL ? p->functions[r->index].info.name : "",
      r->kind == TIMELINE_LAUNCH || r->kind == TIMELINE_SHARE ? p->kernels[r->index].info.label : "",
      "tiles",
      r->kind == TIMELINE_EXTERN ? p->externs[r->index].name : "",
  };
  text_add(t, ",\n{\"name\": ");
  text_add_quoted(t, names[r->kind]);
  text_add(t, ", \"cat\": \"%s\", \"ph\": \"X\", \"ts\": %.3f, \"dur\": %.3f", KINDS[r->kind],
           (double)(r->begin_ns - all->begin_ns) / 1e3, (double)(r->end_ns - r->begin_ns) / 1e3);
  text_add(t, ", \"pid\": %d, \"tid\": %" PRId32 ", \"args\": {", (int)getpid(), r->thread);
  if (r->kind == TIMELINE_CALL) add_symbols(t, p, r);
  if (r->kind == TIMELINE_LAUNCH) add_launch(t, p, r);
  if (r->kind == TIMELINE_SHARE)
    text_add(t, "\"kernel\": %" PRId32 ", \"tiles\": %" PRId64, r->index, r->n_tiles);
  text_add(t, "}}");
}

int32_t svm_timeline_text(svm_program *p, char **out, svm_error *error) {
  if (status_need(p, "svm_timeline_text: program", error) ||
      status_need(out, "svm_timeline_text: text", error))
    return SVM_ERROR_ARGUMENT;
  svm_error unasked;
  text_buffer t = {0};
  pthread_mutex_lock(&p->lock);
  const timeline *all = p->observers.latest_timeline;
  int64_t asked = all ? atomic_load(&all->n) : 0, n = all && asked > all->capacity ? all->capacity : asked;
  text_add(&t,
           "{\"displayTimeUnit\": \"ns\", \"otherData\": {\"producer\": \"shapevm\", \"threads\": %" PRId32
           ", \"lost\": %" PRId64 "}, \"traceEvents\": [",
           svm_get_threads(), asked - n);
  text_add(&t,
           "\n{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": %d, \"args\": {\"name\": \"shapevm\"}}",
           (int)getpid());
  for (int64_t i = 0; i < n; i++) {
    if (atomic_load_explicit(&all->rows[i].is_complete, memory_order_acquire))
      add_event(&t, p, all, &all->rows[i]);
  }
  text_add(&t, "\n]}\n");
  pthread_mutex_unlock(&p->lock);
  *out = t.bytes;
  return t.bytes ? SVM_OK
                 : status_fail(error ? error : &unasked, SVM_ERROR_MEMORY,
                               "memory: there is none for a timeline");
}
