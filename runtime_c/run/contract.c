/* The contract: inputs against the program's table, symbols bound. The messages are those of
 * docs/artifact.md. */
#include "run/contract.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "values/strided.h"

enum { NAME_MAX_BYTES = 100, AXIS_TEXT = 200, LIST_TEXT = 600 };

/* Text ----------------------------------------------------------------------------------------- */

static void write_axis(const svm_program *p, const svm_axis_info *axis, char *out, size_t size) {
  if (axis->symbol < 0) {
    snprintf(out, size, "%" PRId64, axis->offset);
    return;
  }
  int n = axis->scale == 1 ? 0 : snprintf(out, size, "%" PRId64 "*", axis->scale);
  n += snprintf(out + n, size - (size_t)n, "%.*s", NAME_MAX_BYTES, p->io.symbols[axis->symbol].name);
  if (axis->offset) snprintf(out + n, size - (size_t)n, "%+" PRId64, axis->offset);
}

static void append(char *list, const char *item) {
  size_t n = strlen(list);
  if (n + strlen(item) + 3 < LIST_TEXT) snprintf(list + n, LIST_TEXT - n, "%s%s", n > 1 ? ", " : "", item);
}

static int32_t fail_count(const contract *k, int32_t given, svm_error *error) {
  char list[LIST_TEXT] = "(";
  for (int32_t i = 0; i < k->n_inputs; i++) append(list, k->inputs[i].name);
  return status_fail(error, SVM_ERROR_ARGUMENT, "the program takes %d input%s %s), %d given", k->n_inputs,
                     k->n_inputs == 1 ? "" : "s", list, given);
}

static int32_t fail_rank(const svm_program *p, const svm_input_info *input, const svm_tensor *t,
                         svm_error *error) {
  char given[LIST_TEXT] = "[", wanted[LIST_TEXT] = "[", text[AXIS_TEXT];
  for (int32_t i = 0; i < t->rank; i++) {
    snprintf(text, sizeof text, "%" PRId64, t->sizes[i]);
    append(given, text);
  }
  for (int32_t i = 0; i < input->rank; i++) {
    write_axis(p, &input->axes[i], text, sizeof text);
    append(wanted, text);
  }
  return status_fail(error, SVM_ERROR_SHAPE,
                     "input \"%.100s\" has rank %d, sizes %s]; the program takes rank %d: %s]", input->name,
                     t->rank, given, input->rank, wanted);
}

/* "input "x": axis 1 has size 600" or "input "n" is 600". */
static void write_place(const svm_input_info *input, int32_t axis, int64_t given, char *out, size_t size) {
  if (axis < 0) snprintf(out, size, "input \"%.100s\" is %" PRId64, input->name, given);
  else snprintf(out, size, "input \"%.100s\": axis %d has size %" PRId64, input->name, axis, given);
}

/* The inputs of a call, while they give the symbols their values. */
typedef struct binding {
  const svm_program *program;
  const contract *contract;
  const svm_value *inputs;
  int64_t *symbols;
  svm_error *error;
} binding;

/* A symbol's value from an input: from the size `given` of an axis, -1: the input's own value. */
typedef struct giving {
  const svm_input_info *input;
  int32_t axis, symbol;
  int64_t given, value;
} giving;

static int32_t fail_value(const binding *b, const giving *g, const char *rule) {
  const svm_symbol_info *s = &b->program->io.symbols[g->symbol];
  char place[AXIS_TEXT];
  write_place(g->input, g->axis, g->given, place, sizeof place);
  return status_fail(b->error, SVM_ERROR_SHAPE, "%s, so %.100s is %" PRId64 "; %s%s%.200s%s", place, s->name,
                     g->value, rule, *s->why ? " (" : "", s->why, *s->why ? ")" : "");
}

/* Symbols -------------------------------------------------------------------------------------- */

/* The value of the axis's symbol from a size; 0 if there is none. */
static int solve(const svm_axis_info *axis, int64_t size, int64_t *value) {
  int64_t rest;
  if (__builtin_sub_overflow(size, axis->offset, &rest) || rest < 0 ||
      (axis->scale != 1 && rest % axis->scale))
    return 0;
  *value = axis->scale == 1 ? rest : rest / axis->scale;
  return 1;
}

/* Another value was bound before: by the first place that has the symbol. */
static int32_t fail_conflict(const binding *b, const giving *g) {
  char place[AXIS_TEXT] = "", rule[2 * AXIS_TEXT];
  int64_t before = 0;
  for (int32_t i = 0; i < b->contract->n_inputs && !*place; i++) {
    const svm_input_info *other = &b->contract->inputs[i];
    const svm_value *input = &b->inputs[i];
    if (other->symbol == g->symbol)
      before = input->integer, write_place(other, -1, before, place, sizeof place);
    for (int32_t a = 0; a < other->rank && !*place; a++) {
      if (other->axes[a].symbol != g->symbol) continue;
      write_place(other, a, input->tensor.sizes[a], place, sizeof place);
      solve(&other->axes[a], input->tensor.sizes[a], &before);
    }
  }
  const char *name = b->program->io.symbols[g->symbol].name;
  snprintf(rule, sizeof rule, "but %s, so %.100s is %" PRId64, place, name, before);
  return fail_value(b, g, rule);
}

static int32_t fail_bounds(const binding *b, const giving *g) {
  const svm_symbol_info *s = &b->program->io.symbols[g->symbol];
  char rule[AXIS_TEXT];
  if (g->value < s->min) snprintf(rule, sizeof rule, "it must be at least %" PRId64, s->min);
  else if (g->value > s->max) snprintf(rule, sizeof rule, "it must be at most %" PRId64, s->max);
  else snprintf(rule, sizeof rule, "it must be a multiple of %" PRId64, s->multiple_of);
  return fail_value(b, g, rule);
}

#define UNBOUND INT64_MIN /* a symbol's value before an input gives it: below every symbol's min */

static int32_t bind(const binding *b, giving g) {
  const svm_symbol_info *s = &b->program->io.symbols[g.symbol];
  int64_t *bound = &b->symbols[g.symbol];
  if (*bound != UNBOUND) return *bound == g.value ? SVM_OK : fail_conflict(b, &g);
  if (g.value < s->min || g.value > s->max || (s->multiple_of != 1 && g.value % s->multiple_of))
    return fail_bounds(b, &g);
  *bound = g.value;
  return SVM_OK;
}

/* Inputs --------------------------------------------------------------------------------------- */

static int32_t fail_axis(const svm_program *p, const svm_input_info *input, int32_t a, int64_t size,
                         svm_error *error) {
  char text[AXIS_TEXT];
  write_axis(p, &input->axes[a], text, sizeof text);
  if (input->axes[a].symbol < 0) {
    return status_fail(error, SVM_ERROR_SHAPE,
                       "input \"%.100s\": axis %d has size %" PRId64 "; it must be %s", input->name, a, size,
                       text);
  }
  return status_fail(error, SVM_ERROR_SHAPE,
                     "input \"%.100s\": axis %d has size %" PRId64 "; it must be %s with a whole %.100s >= 0",
                     input->name, a, size, text, p->io.symbols[input->axes[a].symbol].name);
}

static int32_t check_tensor(const binding *b, int32_t index) {
  const svm_input_info *input = &b->contract->inputs[index];
  const svm_tensor *t = &b->inputs[index].tensor;
  const svm_program *p = b->program;
  svm_error *error = b->error;
  char name[AXIS_TEXT];
  if (t->dtype != input->dtype) {
    const char *given = t->dtype >= 0 && t->dtype < N_DTYPES ? DTYPE_NAMES[t->dtype] : "of an unknown dtype";
    return status_fail(error, SVM_ERROR_DTYPE,
                       "input \"%.100s\" is %s; the program takes %s: convert it first", input->name, given,
                       DTYPE_NAMES[input->dtype]);
  }
  int is_plain = t->data && t->rank >= 0 && t->rank <= SVM_MAX_RANK;
  if (!is_plain) snprintf(name, sizeof name, "input \"%.100s\"", input->name);
  if (!is_plain && strided_check(name, t, error)) return error->code;
  if (t->rank != input->rank) return fail_rank(p, input, t, error);
  for (int32_t a = 0; a < t->rank; a++) {
    const svm_axis_info *axis = &input->axes[a];
    int64_t size = t->sizes[a], value;
    if (axis->symbol < 0 ? size != axis->offset : !solve(axis, size, &value))
      return fail_axis(p, input, a, size, error);
    if (axis->symbol >= 0 && bind(b, (giving){input, a, axis->symbol, size, value})) return error->code;
  }
  return SVM_OK;
}

/* A written input is changed in place, so it cannot be copied first. */
static int32_t check_written(const svm_program *p, const svm_input_info *input, const svm_tensor *t,
                             svm_error *error) {
  const section *weights = &p->image.sections[SVM_SECTION_WEIGHTS];
  uintptr_t offset = (uintptr_t)t->data - (uintptr_t)weights->data;
  if (weights->size && offset < weights->size)
    return status_fail(
        error, SVM_ERROR_ARGUMENT,
        "input \"%.100s\" is changed in place, but it is a constant of the program; pass a copy",
        input->name);
  if (strided_is_usable(t)) return SVM_OK;
  return status_fail(error, SVM_ERROR_ARGUMENT,
                     "input \"%.100s\" is changed in place; pass a contiguous tensor with aligned elements",
                     input->name);
}

/* An input whose memory is read directly: a row-major copy would have other elements at its positions. */
static int32_t check_in_rows(const svm_input_info *input, const svm_tensor *t, svm_error *error) {
  if (strided_is_contiguous(t)) return SVM_OK;
  return status_fail(error, SVM_ERROR_ARGUMENT,
                     "input \"%.100s\" is read as it lies in memory (as_strided, stride, is_contiguous); "
                     "pass a contiguous copy",
                     input->name);
}

int32_t contract_bind(const svm_program *p, const contract *k, const svm_value *inputs, int32_t n_inputs,
                      int64_t *symbols, svm_error *error) {
  if (n_inputs != k->n_inputs) return fail_count(k, n_inputs, error);
  if (n_inputs && status_need(inputs, "inputs", error)) return SVM_ERROR_ARGUMENT;
  binding b = {p, k, inputs, symbols, error};
  for (int32_t i = 0; i < p->io.n_symbols; i++) symbols[i] = UNBOUND;
  for (int32_t i = 0; i < n_inputs; i++) {
    const svm_input_info *input = &k->inputs[i];
    if (inputs[i].tag != input->kind) {
      return status_fail(error, SVM_ERROR_KIND, "input \"%.100s\" is %s; the program takes %s", input->name,
                         tag_with_article(inputs[i].tag), tag_with_article(input->kind));
    }
    int32_t code = SVM_OK;
    if (input->kind == SVM_TAG_TENSOR) code = check_tensor(&b, i);
    else if (input->symbol >= 0)
      code = bind(&b, (giving){input, -1, input->symbol, inputs[i].integer, inputs[i].integer});
    if (!code && k->memory[i] & IN_ROWS) code = check_in_rows(input, &inputs[i].tensor, error);
    if (!code && k->memory[i] & WRITTEN) code = check_written(p, input, &inputs[i].tensor, error);
    if (code) return code;
  }
  for (int32_t i = 0; i < p->io.n_symbols; i++) symbols[i] = symbols[i] == UNBOUND ? 0 : symbols[i];
  return SVM_OK;
}

int32_t svm_bind_function(const svm_program *p, int32_t function, const svm_value *inputs, int32_t n_inputs,
                          int64_t *symbols, svm_error *error) {
  if (status_need(p, "svm_bind_function: program", error)) return SVM_ERROR_ARGUMENT;
  if (p->io.n_symbols && status_need(symbols, "svm_bind_function: symbols", error)) return SVM_ERROR_ARGUMENT;
  svm_error unasked;
  error = error ? error : &unasked;
  const contract *k = contract_of(p, function);
  if (!k)
    return status_fail(error, SVM_ERROR_ARGUMENT, "svm_bind_function: function %d is no entry point",
                       function);
  return contract_bind(p, k, inputs, n_inputs, symbols, error);
}

int32_t svm_bind(const svm_program *p, const svm_value *inputs, int32_t n_inputs, int64_t *symbols,
                 svm_error *error) {
  return svm_bind_function(p, 0, inputs, n_inputs, symbols, error);
}
