/* The trace: an entry point is interpreted once without launching, and its launches are recorded. */
#include "run/trace.h"

#include <stdlib.h>

#include "base/status.h"

/* Grow *rows, of `size` bytes each, so that row n exists. */
static int make_room(void **rows, int64_t *capacity, int64_t n, size_t size) {
  if (n < *capacity) return 0;
  int64_t wanted = n * 2 > 64 ? n * 2 : 64;
  void *made = realloc(*rows, (size_t)wanted * size);
  if (!made) return -1;
  *rows = made;
  *capacity = wanted;
  return 0;
}

int32_t record_fail_memory(const call *c) {
  return status_fail(c->error, SVM_ERROR_MEMORY, "memory: there is none for the trace of a call");
}

static int32_t stop_if_too_long(call *c) {
  recorder *r = c->recorder;
  int64_t bytes = r->n_steps * (int64_t)sizeof(step) + r->n_refs * (int64_t)sizeof(buffer_ref) +
                  r->n_storages * (int64_t)sizeof(arena_buffer);
  if (!r->max_bytes || bytes <= r->max_bytes) return SVM_OK;
  r->is_given_up = 1;
  return status_fail(c->error, SVM_ERROR_LIMIT, "plan_bytes_max: the plan of a call takes over %lld bytes",
                     (long long)r->max_bytes);
}

int32_t record_storage(call *c, int64_t n_bytes, int32_t *out) {
  recorder *r = c->recorder;
  if (r->n_storages == INT32_MAX ||
      make_room((void **)&r->storages, &r->storage_capacity, r->n_storages, sizeof *r->storages))
    return record_fail_memory(c);
  r->storages[r->n_storages] = (arena_buffer){n_bytes, 0, INT32_MAX, NO_STEP, 0, 0};
  *out = (int32_t)r->n_storages++;
  return stop_if_too_long(c);
}

storage *record_scalar(call *c, int64_t n_bytes, int64_t bytes) {
  int32_t number;
  if (record_storage(c, n_bytes, &number)) return NULL;
  arena_buffer *b = &c->recorder->storages[number];
  b->first = 0;
  b->is_read_first = 1;
  b->first_bytes = bytes;
  return storage_over(&c->budget, NULL, n_bytes, SVM_ORIGIN_NEW, number, c->error);
}

int32_t record_look(call *c, const storage *s) {
  if (s->whole) s = s->whole;
  int is_key = s->origin == SVM_ORIGIN_INPUT && !s->is_written && is_in_key(c->contract, s->origin_index);
  if (is_key || s->origin == SVM_ORIGIN_CONSTANT) return SVM_OK;
  return record_give_up(c);
}

int32_t record_give_up(call *c) {
  c->recorder->is_given_up = 1;
  return status_fail(c->error, SVM_ERROR_LIMIT, "trace: the call depends on what only its launches give");
}

/* Traced storage keeps its number until the arena is planned. */
static buffer_ref reference(recorder *r, const storage *s, int is_output) {
  if (s->whole) {
    buffer_ref found = reference(r, s->whole, is_output);
    found.offset += (int64_t)((uintptr_t)s->data - (uintptr_t)s->whole->data);
    return found;
  }
  if (s->origin == SVM_ORIGIN_INPUT) return (buffer_ref){0, BASE_INPUTS + s->origin_index, 0};
  if (s->origin == SVM_ORIGIN_CONSTANT) return (buffer_ref){(int64_t)(intptr_t)s->data, BASE_ABSOLUTE, 0};
  arena_buffer *b = &r->storages[s->origin_index];
  if (b->first == INT32_MAX) {
    b->is_read_first = !is_output;
    b->first = is_output ? (int32_t)r->n_steps : 0; /* zeros from the beginning */
  }
  b->last = (int32_t)r->n_steps;
  return (buffer_ref){0, BASE_ARENA, s->origin_index};
}

int32_t record_launch(call *c, entry *e, const value *registers, const uint32_t *buffers, int32_t n_buffers,
                      int32_t function, uint32_t pc) {
  recorder *r = c->recorder;
  if (r->n_steps >= INT32_MAX - 1 ||
      make_room((void **)&r->steps, &r->step_capacity, r->n_steps, sizeof *r->steps) ||
      make_room((void **)&r->refs, &r->ref_capacity, r->n_refs + n_buffers, sizeof *r->refs)) {
    return record_fail_memory(c);
  }
  const buffer_type *types = c->program->kernels[e->kernel].buffers;
  for (int is_output = 0; is_output < 2; is_output++) { /* what is read, then what is written */
    for (int32_t i = 0; i < n_buffers; i++) {
      if (types[i].is_output == is_output)
        r->refs[r->n_refs + i] = reference(r, registers[buffers[i]].tensor->memory, is_output);
    }
  }
  r->steps[r->n_steps++] = (step){e, NULL, n_buffers, function, pc};
  r->n_refs += n_buffers;
  return stop_if_too_long(c);
}
