/* The contract: inputs against the program's table, symbols bound. The messages are those of
 * docs/artifact.md. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "run/run.h"
#include "values/strided.h"

enum { NAME_MAX_BYTES = 100, AXIS_TEXT = 200, LIST_TEXT = 600 };

/* Text ----------------------------------------------------------------------------------------- */

static void write_axis(const svm_program *p, const svm_axis_info *axis, char *out, size_t size) {
  if (axis->symbol < 0) {
    snprintf(out, size, "%" PRId64, axis->offset);
    return;
  }
  int n = axis->scale == 1 ? 0 : snprintf(out, size, "%" PRId64 "*", axis->scale);
  n += snprintf(out + n, size - (size_t)n, "%.*s", NAME_MAX_BYTES, p->symbols[axis->symbol].name);
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

static int32_t fail_value(const svm_program *p, const svm_input_info *input, int32_t axis, int32_t symbol,
                          int64_t given, int64_t value, const char *rule, svm_error *error) {
  const svm_symbol_info *s = &p->symbols[symbol];
  char place[AXIS_TEXT];
  write_place(input, axis, given, place, sizeof place);
  return status_fail(error, SVM_ERROR_SHAPE, "%s, so %.100s is %" PRId64 "; %s%s%.200s%s", place, s->name,
                     value, rule, *s->why ? " (" : "", s->why, *s->why ? ")" : "");
}

/* Symbols -------------------------------------------------------------------------------------- */

/* Value that a size gives the axis's symbol; 0 if none does. */
static int solve(const svm_axis_info *axis, int64_t size, int64_t *value) {
  int64_t rest;
  if (__builtin_sub_overflow(size, axis->offset, &rest) || rest < 0 ||
      (axis->scale != 1 && rest % axis->scale))
    return 0;
  *value = axis->scale == 1 ? rest : rest / axis->scale;
  return 1;
}

/* Another value was bound before: by the first place that has the symbol. */
static int32_t fail_conflict(const svm_program *p, const contract *k, const svm_value *inputs,
                             const svm_input_info *input, int32_t axis, int32_t symbol, int64_t given,
                             int64_t value, svm_error *error) {
  char place[AXIS_TEXT] = "", rule[2 * AXIS_TEXT];
  int64_t before = 0;
  for (int32_t i = 0; i < k->n_inputs && !*place; i++) {
    const svm_input_info *other = &k->inputs[i];
    if (other->symbol == symbol)
      before = inputs[i].integer, write_place(other, -1, before, place, sizeof place);
    for (int32_t a = 0; a < other->rank && !*place; a++) {
      if (other->axes[a].symbol != symbol) continue;
      write_place(other, a, inputs[i].tensor.sizes[a], place, sizeof place);
      solve(&other->axes[a], inputs[i].tensor.sizes[a], &before);
    }
  }
  snprintf(rule, sizeof rule, "but %s, so %.100s is %" PRId64, place, p->symbols[symbol].name, before);
  return fail_value(p, input, axis, symbol, given, value, rule, error);
}

static int32_t fail_bounds(const svm_program *p, const svm_input_info *input, int32_t axis, int32_t symbol,
                           int64_t given, int64_t value, svm_error *error) {
  const svm_symbol_info *s = &p->symbols[symbol];
  char rule[AXIS_TEXT];
  if (value < s->min) snprintf(rule, sizeof rule, "it must be at least %" PRId64, s->min);
  else if (value > s->max) snprintf(rule, sizeof rule, "it must be at most %" PRId64, s->max);
  else snprintf(rule, sizeof rule, "it must be a multiple of %" PRId64, s->multiple_of);
  return fail_value(p, input, axis, symbol, given, value, rule, error);
}

#define UNBOUND INT64_MIN /* a symbol's value before an input gives it: below every symbol's min */

static int32_t bind(const svm_program *p, const contract *k, const svm_value *inputs,
                    const svm_input_info *input, int32_t axis, int32_t symbol, int64_t given, int64_t value,
                    int64_t *symbols, svm_error *error) {
  const svm_symbol_info *s = &p->symbols[symbol];
  if (symbols[symbol] != UNBOUND) {
    return symbols[symbol] == value ? SVM_OK
                                    : fail_conflict(p, k, inputs, input, axis, symbol, given, value, error);
  }
  if (value < s->min || value > s->max || (s->multiple_of != 1 && value % s->multiple_of)) {
    return fail_bounds(p, input, axis, symbol, given, value, error);
  }
  symbols[symbol] = value;
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
                     input->name, a, size, text, p->symbols[input->axes[a].symbol].name);
}

static int32_t check_tensor(const svm_program *p, const contract *k, const svm_value *inputs, int32_t index,
                            int64_t *symbols, svm_error *error) {
  const svm_input_info *input = &k->inputs[index];
  const svm_tensor *t = &inputs[index].tensor;
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
    if (axis->symbol >= 0 && bind(p, k, inputs, input, a, axis->symbol, size, value, symbols, error))
      return error->code;
  }
  return SVM_OK;
}

/* What is written is changed where it lies, so it cannot be copied first. */
static int32_t check_written(const svm_program *p, const svm_input_info *input, const svm_tensor *t,
                             svm_error *error) {
  const section *weights = &p->image.sections[SVM_SECTION_WEIGHTS];
  uintptr_t offset = (uintptr_t)t->data - (uintptr_t)weights->data;
  if (weights->size && offset < weights->size)
    return status_fail(
        error, SVM_ERROR_ARGUMENT,
        "input \"%.100s\" is changed in place, but it is a constant of the program; pass a copy",
        input->name);
  if (tensor_is_usable(t)) return SVM_OK;
  return status_fail(error, SVM_ERROR_ARGUMENT,
                     "input \"%.100s\" is changed in place; pass a contiguous tensor with aligned elements",
                     input->name);
}

static const char *article(int32_t tag) { return tag == SVM_TAG_INT ? "an" : "a"; }

int32_t contract_bind(const svm_program *p, const contract *k, const svm_value *inputs, int32_t n_inputs,
                      int64_t *symbols, svm_error *error) {
  if (n_inputs != k->n_inputs) return fail_count(k, n_inputs, error);
  for (int32_t i = 0; i < p->n_symbols; i++) symbols[i] = UNBOUND;
  for (int32_t i = 0; i < n_inputs; i++) {
    const svm_input_info *input = &k->inputs[i];
    if (inputs[i].tag != input->kind) {
      return status_fail(error, SVM_ERROR_KIND, "input \"%.100s\" is %s %s; the program takes %s %s",
                         input->name, article(inputs[i].tag), tag_name(inputs[i].tag), article(input->kind),
                         tag_name(input->kind));
    }
    int32_t code = SVM_OK;
    if (input->kind == SVM_TAG_TENSOR) code = check_tensor(p, k, inputs, i, symbols, error);
    else if (input->symbol >= 0)
      code =
          bind(p, k, inputs, input, -1, input->symbol, inputs[i].integer, inputs[i].integer, symbols, error);
    if (!code && k->is_written[i]) code = check_written(p, input, &inputs[i].tensor, error);
    if (code) return code;
  }
  for (int32_t i = 0; i < p->n_symbols; i++) symbols[i] = symbols[i] == UNBOUND ? 0 : symbols[i];
  return SVM_OK;
}

int32_t svm_bind_function(const svm_program *p, int32_t function, const svm_value *inputs, int32_t n_inputs,
                          int64_t *symbols, svm_error *error) {
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
