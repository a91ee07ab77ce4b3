/* The frames of an interpreted call, and the budget of its instructions. Only the interpreter's loop uses
 * them. */
#pragma once

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "run/context.h"

/* Make room for `n` of the call's registers or frames, of `size` bytes each: *rows may move. */
static int32_t reserve(call *c, void **rows, int64_t *capacity, int64_t n, size_t size, const char *what) {
  if (n <= *capacity) return SVM_OK;
  int64_t wanted = n > 2 * *capacity ? n : 2 * *capacity, max = c->budget.max / (int64_t)size;
  if (c->budget.max && wanted > max) wanted = n;
  if (c->budget.max && n > max) {
    return status_fail(c->error, SVM_ERROR_LIMIT,
                       "memory_max: %" PRId64 " %s are over the limit of %" PRId64 " bytes; raise it", n,
                       what, c->budget.max);
  }
  void *made = realloc(*rows, (size_t)wanted * size);
  if (!made)
    return status_fail(c->error, SVM_ERROR_MEMORY, "memory: there is none for %" PRId64 " %s", n, what);
  *rows = made;
  *capacity = wanted;
  return SVM_OK;
}

/* Push a frame whose registers are none. The context's frames and registers may move. */
static int32_t push(call *c, int32_t depth, const function *f, int64_t base) {
  context *x = c->context;
  if (depth > c->max_calls) {
    return status_fail(
        c->error, SVM_ERROR_LIMIT,
        "call_depth: the program's functions call each other %d deep, over the limit of %d; raise "
        "call_depth, or the recursion does not end",
        depth, c->max_calls);
  }
  int64_t n_registers = base + f->info.n_registers;
  if (reserve(c, (void **)&x->frames, &x->n_frames, depth + 1, sizeof *x->frames,
              "calls within each other") ||
      reserve(c, (void **)&x->registers, &x->n_registers, n_registers, sizeof *x->registers, "registers"))
    return c->error->code;
  if (f->info.n_registers) /* else there may be none at all */
    memset(x->registers + base, 0, (size_t)f->info.n_registers * sizeof(value)); /* tag none is 0 */
  x->frames[depth] = (frame){f, f->code, base};
  return SVM_OK;
}

static void drop_registers(call *c, const frame *f) {
  value *registers = c->context->registers + f->base;
  for (int32_t i = 0; i < f->function->info.n_registers; i++) value_drop(&c->budget, &registers[i]);
}

enum {
  SLICE = 4096,       /* instructions between two looks at the watch */
  WORDS_PER_FUEL = 64 /* that an instruction reads or copies beside its own work */
};

/* Pay for what `slice` < 0 is short of and take the next one: an error when the call's fuel is used up or its
 * watch stops it. */
static int32_t next_slice(call *c, int64_t *slice) {
  if (c->watch && watch_look(c->watch)) return watch_fail(c->watch, c->error);
  if (call_spend(c, -*slice)) return c->error->code;
  *slice = c->fuel < SLICE ? c->fuel : SLICE;
  c->fuel -= *slice;
  return SVM_OK;
}
