/* Launches: everything is checked before a kernel runs, so that no bytecode makes one leave its buffers. */
#include "run/launch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/status.h"
#include "base/watch.h"
#include "run/call_site.h"

static int32_t fail_buffer(const kernel *k, int32_t index, const entry *e, value given, svm_error *error) {
  const buffer_type *b = &k->buffers[index];
  const char *label = k->info.label;
  if (given.tag != SVM_TAG_TENSOR) {
    return status_fail(error, SVM_ERROR_KIND, "kernel \"%.100s\": buffer %d is a %s; it takes a tensor",
                       label, index, tag_name(given.tag));
  }
  const tensor *t = given.tensor;
  if (t->dtype != b->dtype) {
    return status_fail(error, SVM_ERROR_KERNEL, "kernel \"%.100s\": buffer %d is %s; it takes %s", label,
                       index, DTYPE_NAMES[t->dtype], DTYPE_NAMES[b->dtype]);
  }
  if (t->n_elements != e->n_elements[index]) {
    return status_fail(error, SVM_ERROR_KERNEL,
                       "kernel \"%.100s\": buffer %d has %" PRId64
                       " elements; at these sizes it takes %" PRId64,
                       label, index, t->n_elements, e->n_elements[index]);
  }
  return status_fail(
      error, SVM_ERROR_KERNEL,
      "kernel \"%.100s\": buffer %d is written, but it is an input or a constant; write into an alloc", label,
      index);
}

int32_t launch_check(svm_program *p, int32_t index, const int64_t *dims, const value *registers,
                     const uint32_t *buffers, entry **out, svm_error *error) {
  const kernel *k = &p->kernels[index];
  for (int32_t i = 0; i < k->info.n_dims; i++) {
    if (dims[i] < 0)
      return status_fail(error, SVM_ERROR_KERNEL,
                         "kernel \"%.100s\": size n%d is %" PRId64 "; sizes are >= 0", k->info.label, i,
                         dims[i]);
  }
  if (site_find(p, index, dims, out, error)) return error->code;
  for (int32_t i = 0; i < k->info.n_buffers; i++) {
    const buffer_type *b = &k->buffers[i];
    value v = registers[buffers[i]];
    int fits = v.tag == SVM_TAG_TENSOR && v.tensor->dtype == b->dtype &&
               v.tensor->n_elements == (*out)->n_elements[i] &&
               (!b->is_output || storage_is_writable(v.tensor->memory));
    if (!fits) return fail_buffer(k, i, *out, v, error);
  }
  return SVM_OK;
}

static inline __attribute__((always_inline)) int32_t run_tiles(const instance *code, void *const *buffers,
                                                               const int64_t *dims, svm_rt *rt) {
  if (code->scratch > rt->scratch_bytes && rt_reserve(rt, code->scratch)) return -1;
  rt->prepared = NOTHING_PREPARED;
  if (code->is_shared) threads_run(code->run, buffers, dims, rt, code->n_tiles, code->stretch, code->scratch);
  else if (code->n_tiles) code->run(buffers, dims, rt, 0, code->n_tiles);
  return rt->error != 0;
}

/* Not inlined, so that unobserved launches need no registers for it. */
static __attribute__((noinline)) int32_t run_noted(const entry *e, const instance *code, void *const *buffers,
                                                   svm_rt *rt) {
  const svm_call_options *o = rt->observer;
  if (o) o->observe(o->context, e->kernel, 0), float_mode_set();
  timeline_row *row = rt->timeline ? timeline_begin(rt->timeline, TIMELINE_LAUNCH, e->kernel) : NULL;
  rt->launch = row;
  int32_t failed = run_tiles(code, buffers, e->dims, rt);
  if (o) o->observe(o->context, e->kernel, 1);
  if (!row) return failed;
  row->tier = code->tier;
  row->n_tiles = code->n_tiles;
  timeline_set_dims(rt->timeline, row, e->dims, e->n_dims);
  memcpy(row->schedule, code->object->record->schedule, sizeof row->schedule);
  timeline_end(row);
  return failed;
}

int32_t launch_run(const entry *e, const instance *code, void *const *buffers, svm_rt *rt) {
  return rt->is_noted ? run_noted(e, code, buffers, rt) : run_tiles(code, buffers, e->dims, rt);
}

int32_t launch_fail(const svm_program *p, const entry *e, svm_rt *rt, svm_error *error) {
  const svm_kernel_info *k = &p->kernels[e->kernel].info;
  int64_t kind = rt->error;
  rt->error = 0;
  if (kind == KERNEL_STOPPED) return watch_fail(rt->watch, error);
  if (kind == KERNEL_ERROR_INDEX) {
    return status_fail(error, SVM_ERROR_INDEX,
                       "kernel \"%.100s\": index %" PRId64 " is out of range for an axis of size %" PRId64,
                       k->label, rt->error_value, rt->error_bound);
  }
  if (kind == KERNEL_ERROR_ROWS) {
    return status_fail(error, SVM_ERROR_KERNEL,
                       "kernel \"%.100s\": it has %" PRId64 " rows for %" PRId64
                       " outputs of its images; the program's sizes are wrong",
                       k->label, rt->error_value, rt->error_bound);
  }
  if (kind == KERNEL_ERROR_DIVISION) {
    return status_fail(
        error, SVM_ERROR_DIVISION,
        "kernel \"%.100s\": an integer tensor is divided by 0; let no element of the divisor be 0", k->label);
  }
  if (kind)
    return status_fail(error, SVM_ERROR_INTERNAL, "kernel \"%.100s\": unknown error %" PRId64, k->label,
                       kind);
  return status_fail(
      error, SVM_ERROR_MEMORY,
      "memory: there is none for the scratch of kernel \"%.100s\"; use smaller inputs or fewer threads",
      k->label);
}
