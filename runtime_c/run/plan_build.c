/* From a trace to a plan: its outputs, the storages to fill, the memory layout. */
#include "run/plan_build.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/status.h"
#include "run/bands_find.h"
#include "run/interpreter.h"

static void recorder_free(recorder *r) {
  free(r->steps);
  free(r->refs);
  free(r->storages);
  free(r->output_of);
  pointer_map_free(&r->seen);
}

/* Outputs -------------------------------------------------------------------------------------- */

/* Number the storages that the results own, in order of their first tensors; *leaf counts all tensors. */
static int32_t find_outputs(call *c, plan *made, value v, int32_t *leaf) {
  recorder *r = c->recorder;
  if (v.tag == SVM_TAG_TENSOR) {
    storage *s = v.tensor->memory;
    if (s->whole) return record_give_up(c); /* a result that is a part is copied */
    if (s->origin == SVM_ORIGIN_NEW && r->output_of[s->origin_index] < 0) {
      plan_output *outputs = realloc(made->outputs, ((size_t)made->n_outputs + 1) * sizeof *outputs);
      if (!outputs) return record_fail_memory(c);
      made->outputs = outputs;
      outputs[made->n_outputs] = (plan_output){v.tensor, *leaf};
      r->output_of[s->origin_index] = made->n_outputs++;
    }
    (*leaf)++;
  } else if (value_is_object(v) && v.tag != SVM_TAG_STR && !pointer_map_get(&r->seen, v.object)) {
    if (pointer_map_put(&r->seen, v.object, v.object)) return record_fail_memory(c);
    int64_t n = sequence_n_values(v.sequence);
    for (int64_t i = 0; i < n; i++) {
      if (find_outputs(c, made, v.sequence->items[i], leaf)) return c->error->code;
    }
  }
  return SVM_OK;
}

static int32_t find_all_outputs(call *c, plan *made) {
  recorder *r = c->recorder;
  r->output_of = malloc(((size_t)r->n_storages + 1) * sizeof *r->output_of);
  if (!r->output_of) return record_fail_memory(c);
  for (int64_t i = 0; i < r->n_storages; i++) r->output_of[i] = -1;
  int32_t leaf = 0; /* of each container once */
  for (int32_t i = 0; i < made->n_results; i++) {
    if (find_outputs(c, made, made->results[i], &leaf)) return c->error->code;
  }
  return SVM_OK;
}

/* Storages to be filled, mostly with zeros: unwritten outputs, and storages that are read first.
 * Programs without native code cannot be trusted to write all of an output. */
static int32_t find_fills(call *c, plan *made) {
  recorder *r = c->recorder;
  int64_t n = 0;
  for (int64_t i = 0; i < r->n_storages; i++) {
    arena_buffer *b = &r->storages[i];
    int is_output = r->output_of[i] >= 0;
    b->is_read_first |= is_output && (b->first == INT32_MAX || !c->program->options.native_code);
    b->is_read_first &= b->n_bytes > 0 && (is_output || b->last != NO_STEP);
    n += b->is_read_first;
    if (is_output) b->first = INT32_MAX, b->last = NO_STEP; /* not in the arena */
  }
  made->fills = n ? malloc((size_t)n * sizeof *made->fills) : NULL;
  if (n && !made->fills) return record_fail_memory(c);
  for (int64_t i = 0; i < r->n_storages; i++) {
    if (r->storages[i].is_read_first)
      made->fills[made->n_fills++] =
          (fill){{0, BASE_ARENA, (int32_t)i}, r->storages[i].n_bytes, r->storages[i].first_bytes};
  }
  return SVM_OK;
}

/* From now on the storages of the results are numbered as outputs. */
static void renumber(plan *made, const recorder *r) {
  for (int32_t i = 0; i < made->n_outputs; i++) {
    storage *s = made->outputs[i].tensor->memory;
    s->origin_index = r->output_of[s->origin_index];
  }
}

/* Plans ---------------------------------------------------------------------------------------- */

static void resolve_ref(const contract *k, const recorder *r, buffer_ref *ref) {
  if (ref->base != BASE_ARENA) return;
  int32_t output = r->output_of[ref->storage];
  if (output < 0) ref->offset += r->storages[ref->storage].offset;
  else ref->base = BASE_INPUTS + k->n_inputs + output;
}

static void resolve(const contract *k, plan *made, const recorder *r) {
  for (int64_t i = 0; i < r->n_refs; i++) resolve_ref(k, r, &made->refs[i]);
  for (int32_t i = 0; i < made->n_fills; i++) resolve_ref(k, r, &made->fills[i].at);
}

/* The steps and their references are the plan's now. */
static void give_steps(recorder *r, plan *made) {
  made->n_steps = (int32_t)r->n_steps;
  made->steps = r->steps, r->steps = NULL;
  made->refs = r->refs, r->refs = NULL;
  const buffer_ref *next = made->refs;
  for (int32_t i = 0; i < made->n_steps; i++) {
    made->steps[i].refs = next;
    next += made->steps[i].n_buffers;
  }
}

static int32_t build(call *c, plan *made) {
  recorder *r = c->recorder;
  if (find_all_outputs(c, made) || find_fills(c, made)) return c->error->code;
  give_steps(r, made);
  bands_find(c, r, made);
  made->arena_bytes = arena_plan(r->storages, (int32_t)r->n_storages);
  if (made->arena_bytes < 0)
    return status_fail(c->error, SVM_ERROR_MEMORY,
                       "memory: the call's tensors take over 2^62 bytes; use smaller inputs");
  made->plan_bytes = made->n_bands * (int64_t)sizeof *made->bands + (int64_t)sizeof *made +
                     r->n_steps * (int64_t)sizeof(step) + r->n_refs * (int64_t)sizeof(buffer_ref) +
                     made->n_fills * (int64_t)sizeof(fill);
  resolve(c->contract, made, r);
  renumber(made, r);
  return SVM_OK;
}

static plan *plan_alloc(const contract *k, const int64_t *key) {
  plan *made = calloc(1, sizeof *made + (size_t)k->n_key * sizeof *key);
  if (!made) return NULL;
  made->n_key = k->n_key;
  memcpy(made->key, key, (size_t)k->n_key * sizeof *key);
  made->hash = hash_row(key, k->n_key);
  made->n_results = k->n_outputs;
  made->results = calloc((size_t)k->n_outputs + 1, sizeof *made->results);
  atomic_init(&made->counts.settled, -1);
  atomic_init(&made->counts.looked, -1);
  made->counts.counted = -1; /* the call that makes it runs it too */
  return made->results ? made : (free(made), NULL);
}

int32_t plan_make(call *c, const value *args, const int64_t *key, plan **out) {
  recorder r = {.max_bytes = c->program->options.plan_bytes_max};
  plan *made = plan_alloc(c->contract, key);
  *out = NULL;
  if (!made) return record_fail_memory(c);
  c->recorder = &r;
  int32_t code = interpret(c, c->contract->function, args, made->results);
  if (!code) code = build(c, made);
  c->recorder = NULL;
  recorder_free(&r);
  if (!code) {
    *out = made;
    return SVM_OK;
  }
  plan_free(made);
  return r.is_given_up ? SVM_OK : code;
}
