/* Functions of the host: registration and calls. Their arguments are borrowed; their results are checked
 * before a register holds them. */
#include "run/extern.h"

#include <stdlib.h>
#include <string.h>

#include "base/float_mode.h"
#include "base/status.h"
#include "run/instructions.gen.h"
#include "run/operands.h"
#include "run/trace.h"

/* Registration --------------------------------------------------------------------------------- */

int extern_is_named(const extern_slot *slot, const char *name) {
  size_t n = strlen(name);
  return !strncmp(slot->name, name, n) && (!slot->name[n] || !strcmp(slot->name + n, ".default"));
}

/* Give `made`'s functions to all calls of that name and kind. */
static int32_t register_function(svm_program *p, const extern_slot *made, svm_error *error) {
  svm_error unasked;
  error = error ? error : &unasked;
  int found = 0;
  for (int32_t i = 0; i < p->n_externs; i++) {
    extern_slot *slot = &p->externs[i];
    if (slot->kind != made->kind || !extern_is_named(slot, made->name)) continue;
    if (!extern_is_registered(slot)) atomic_fetch_sub(&p->n_externs_missing, 1);
    slot->function = made->function;
    slot->writer = made->writer;
    slot->context = made->context;
    found = 1;
  }
  return found
             ? SVM_OK
             : status_fail(error, SVM_ERROR_ARGUMENT, "the program calls no host function \"%.200s\"%s",
                           made->name, made->kind == SVM_EXTERN_DPS ? " that writes into given tensors" : "");
}

int32_t svm_register_extern(svm_program *p, const char *name, svm_extern function, void *context,
                            svm_error *error) {
  if (status_need(p, "svm_register_extern: program", error) ||
      status_need(name, "svm_register_extern: name", error) ||
      status_need(function, "svm_register_extern: function", error))
    return SVM_ERROR_ARGUMENT;
  extern_slot made = {.name = name, .kind = SVM_EXTERN_PACKED, .function = function, .context = context};
  return register_function(p, &made, error);
}

int32_t svm_register_dps(svm_program *p, const char *name, svm_dps function, void *context,
                         svm_error *error) {
  if (status_need(p, "svm_register_dps: program", error) ||
      status_need(name, "svm_register_dps: name", error) ||
      status_need(function, "svm_register_dps: function", error))
    return SVM_ERROR_ARGUMENT;
  extern_slot made = {.name = name, .kind = SVM_EXTERN_DPS, .writer = function, .context = context};
  return register_function(p, &made, error);
}

/* Calls ---------------------------------------------------------------------------------------- */

static int32_t no_memory(const extern_slot *slot, svm_error *error) {
  return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for the arguments of \"%.100s\"",
                     slot->name);
}

static const extern_slot *slot_of(const svm_program *p, uint32_t name, int32_t kind) {
  return &p->externs[p->extern_of_key[extern_key(name, kind)]];
}

static void lend(const value *r, const uint32_t *from, int32_t n, svm_value *values) {
  for (int32_t i = 0; i < n; i++) {
    if (r[from[i]].tag == SVM_TAG_TENSOR) storage_clear(r[from[i]].tensor->memory);
    value_export(r[from[i]], 0, &values[i]);
  }
}

/* Count a call, which begins now, and note it in the timeline. */
static timeline_row *begin(call *c, const extern_slot *slot) {
  status_clear(c->error);
  atomic_fetch_add_explicit(&c->program->counters.n_extern_calls, 1, memory_order_relaxed);
  timeline *t = c->context->rt.timeline;
  return t ? timeline_begin(t, TIMELINE_EXTERN, (int32_t)(slot - c->program->externs)) : NULL;
}

/* Make an error from a function's return code: the message is terminated, whatever it wrote, and the position
 * is the call's.
 */
static int32_t end(call *c, const extern_slot *slot, timeline_row *row, int32_t code) {
  float_mode_set(); /* whatever the function has set */
  timeline_end(row);
  svm_error *e = c->error;
  if (!code) return SVM_OK;
  if (e->code <= 0 || e->code > SVM_ERROR_CANCELLED)
    return status_fail(e, SVM_ERROR_EXTERN, "host function \"%.100s\" failed with code %d and no message",
                       slot->name, code);
  e->message[SVM_MESSAGE_BYTES - 1] = 0;
  e->function = -1;
  return e->code;
}

static int32_t look(const call *c) {
  return c->watch && watch_look(c->watch) ? watch_fail(c->watch, c->error) : SVM_OK;
}

/* The arguments are lent, the results taken over. */
int32_t extern_packed(call *c, value *r, const uint32_t *pc) {
  if (c->recorder) return record_give_up(c);
  const extern_slot *slot = slot_of(c->program, pc[1], SVM_EXTERN_PACKED);
  const uint32_t *to = pc + SVM_AT_CALL_PACKED_RESULTS(pc), *from = pc + SVM_AT_CALL_PACKED_ARGS(pc);
  int32_t n_results = (int32_t)*to++, n_args = (int32_t)*from++;
  svm_value *values = calloc((size_t)n_args + (size_t)n_results + 1, sizeof *values),
            *results = values + n_args;
  if (!values) return no_memory(slot, c->error);
  lend(r, from, n_args, values);
  timeline_row *row = begin(c, slot);
  int32_t code =
      end(c, slot, row, slot->function(slot->context, values, n_args, results, n_results, c->error));
  for (int32_t i = 0; i < n_results; i++) {
    value made;
    if (!code) code = value_import(&c->budget, &results[i], &made, c->error);
    if (!code) value_drop(&c->budget, &r[to[i]]), r[to[i]] = made;
    svm_value_release(&results[i]);
  }
  free(values);
  return code ? code : look(c);
}

/* The one register that holds an output is the only user of its memory: no input, constant, argument or other
 * output changes with it. */
static int32_t check_output(const extern_slot *slot, const tensor *t, int32_t i, svm_error *error) {
  const storage *s = t->memory;
  if (s->origin == SVM_ORIGIN_NEW && !s->whole && t->base.refs == 1 && s->refs == 1) return SVM_OK;
  return status_fail(
      error, SVM_ERROR_EXTERN,
      "host function \"%.100s\": output %d shares its memory with another value; give it an alloc "
      "of its own",
      slot->name, i);
}

/* Arguments and outputs are lent. */
int32_t extern_dps(call *c, const value *r, const uint32_t *pc) {
  if (c->recorder) return record_give_up(c);
  const extern_slot *slot = slot_of(c->program, pc[1], SVM_EXTERN_DPS);
  const uint32_t *to = pc + SVM_AT_CALL_DPS_OUTPUTS(pc), *from = pc + SVM_AT_CALL_DPS_ARGS(pc);
  int32_t n_outputs = (int32_t)*to++, n_args = (int32_t)*from++;
  for (int32_t i = 0; i < n_outputs; i++)
    if (!SVM_FITS_CALL_DPS_OUTPUTS(r[to[i]].tag)) return operands_check(r, pc, c->error);
  for (int32_t i = 0; i < n_outputs; i++)
    if (check_output(slot, r[to[i]].tensor, i, c->error)) return c->error->code;
  svm_value *values = calloc((size_t)n_args + (size_t)n_outputs + 1, sizeof *values);
  svm_tensor *outputs = calloc((size_t)n_outputs + 1, sizeof *outputs);
  int32_t code = values && outputs ? SVM_OK : no_memory(slot, c->error);
  if (!code) {
    lend(r, from, n_args, values);
    lend(r, to, n_outputs, values + n_args);
    for (int32_t i = 0; i < n_outputs; i++) outputs[i] = values[n_args + i].tensor;
    timeline_row *row = begin(c, slot);
    code = end(c, slot, row, slot->writer(slot->context, values, n_args, outputs, n_outputs, c->error));
  }
  free(values);
  free(outputs);
  return code ? code : look(c);
}
