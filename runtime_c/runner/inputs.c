/* Inputs: from numpy files, from the command line, from the first values of state. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "runner/runner.h"

int32_t n_inputs_of(const invocation *call) { return svm_function_n_inputs(call->program, call->function); }

const svm_input_info *input_of(const invocation *call, int32_t i) {
  return svm_function_input(call->program, call->function, i);
}

int32_t find_input(const invocation *call, const char *name, size_t n) {
  for (int32_t i = 0; i < n_inputs_of(call); i++) {
    if (strlen(input_of(call, i)->name) == n && !strncmp(input_of(call, i)->name, name, n)) return i;
  }
  return -1;
}

/* A 0-d array of a matching dtype is also good for an int, float or bool input. */
static int set_array(const invocation *call, int32_t index, const npy_array *array, svm_value *value) {
  int32_t kind = input_of(call, index)->kind;
  const svm_tensor *t = &array->tensor;
  value->tag = SVM_TAG_TENSOR;
  value->tensor = *t;
  if (t->strides) value->tensor.strides = array->strides;
  if (kind == SVM_TAG_TENSOR || t->rank) return 0;
  if (kind == SVM_TAG_INT && t->dtype == SVM_DTYPE_I64)
    value->tag = kind, value->integer = *(int64_t *)t->data;
  if (kind == SVM_TAG_FLOAT && t->dtype == SVM_DTYPE_F64)
    value->tag = kind, value->number = *(double *)t->data;
  if (kind == SVM_TAG_BOOL && t->dtype == SVM_DTYPE_BOOL)
    value->tag = kind, value->integer = *(uint8_t *)t->data;
  return 0;
}

static int set_scalar(const invocation *call, int32_t index, const char *text, svm_value *value) {
  int32_t kind = input_of(call, index)->kind;
  char *end = NULL;
  value->tag = kind;
  if (kind == SVM_TAG_INT)
    return parse_number(text, INT64_MIN, INT64_MAX, &value->integer) ? 0 : usage("not an int", text);
  if (kind == SVM_TAG_LIST) return parse_list(text, value);
  if (kind == SVM_TAG_STR) return value->text = text, value->length = (int64_t)strlen(text), 0;
  if (kind == SVM_TAG_BOOL) {
    value->integer = !strcmp(text, "true");
    return value->integer || !strcmp(text, "false") ? 0 : usage("not true or false", text);
  }
  value->number = text_number(text, &end);
  return end == text || *end ? usage("not a float", text) : 0;
}

/* The arrays of a file in their order are a list of tensors, which stay the file's. */
static int set_list(const batch *b, svm_value *value) {
  svm_error error;
  svm_value *items = calloc((size_t)b->n + 1, sizeof *items);
  if (!items) return out_of_memory("a list");
  for (int32_t i = 0; i < b->n; i++) {
    items[i].tag = SVM_TAG_TENSOR, items[i].tensor = b->arrays[i].tensor;
    if (b->arrays[i].tensor.strides) items[i].tensor.strides = b->arrays[i].strides;
  }
  int code = svm_value_make(SVM_TAG_LIST, items, b->n, value, &error) ? report(EXIT_RUN, &error) : 0;
  free(items);
  return code;
}

static int read_arrays(const invocation *call, const char *path, const char *name, size_t name_bytes,
                       room *room, batch *b, svm_value *values) {
  svm_error error;
  if (npz_read(path, room->left, &b->arrays, &b->n, &error))
    return report(error.code == SVM_ERROR_MEMORY || error.code == SVM_ERROR_LIMIT ? EXIT_RUN : EXIT_USAGE,
                  &error);
  int32_t given = name_bytes ? find_input(call, name, name_bytes) : -1;
  int is_list = given >= 0 && input_of(call, given)->kind == SVM_TAG_LIST;
  for (int32_t i = 0; i < b->n; i++) {
    room->left -= room->max ? (int64_t)npy_data_bytes(&b->arrays[i].tensor) : 0;
    if (is_list) continue;
    const char *own = b->arrays[i].name;
    int32_t index = name_bytes ? given : find_input(call, own, strlen(own));
    if (name_bytes && b->n > 1) return usage("an .npz with several arrays takes no name before it", path);
    if (index < 0)
      return usage("the model has no input of that name (--list shows them)", name_bytes ? name
                                                                              : *own     ? own
                                                                                         : path);
    set_array(call, index, &b->arrays[i], &values[index]);
  }
  return is_list ? set_list(b, &values[given]) : 0;
}

/* "NAME=FILE", "NAME=NUMBER", "NAME=[NUMBER, ...]" or "FILE.npz". */
int read_input(const invocation *call, const char *text, room *room, batch *b, svm_value *values) {
  const char *equals = strchr(text, '=');
  int32_t index = equals ? find_input(call, text, (size_t)(equals - text)) : -1;
  if (equals && index < 0) return usage("the model has no input of that name (--list shows them)", text);
  if (room->max && room->left <= 0) return usage("the inputs are over the limit of --memory", text);
  if (!equals) return read_arrays(call, text, "", 0, room, b, values);
  size_t n = strlen(equals + 1);
  int is_file =
      equals[1] != '[' && n > 4 && (!strcmp(equals + n - 3, ".npy") || !strcmp(equals + n - 3, ".npz"));
  if (!is_file && input_of(call, index)->kind != SVM_TAG_TENSOR)
    return set_scalar(call, index, equals + 1, &values[index]);
  return read_arrays(call, equals + 1, text, (size_t)(equals - text), room, b, values);
}

/* Memory of one's own for a tensor that calls write to. */
static int copy_state(svm_value *value) {
  svm_value made;
  svm_error error;
  const svm_tensor *t = &value->tensor;
  if (svm_value_tensor(t->dtype, t->rank, t->sizes, &made, &error)) return report(EXIT_RUN, &error);
  memcpy(made.tensor.data, t->data, npy_data_bytes(t));
  *value = made;
  return 0;
}

/* State without an --input has the artifact's initial values: constants of the program, and new zeros. */
int fill_state(const invocation *call, svm_value *values) {
  int32_t function = svm_find_function(call->program, "initial_state");
  int32_t n = function < 0 ? 0 : svm_function(call->program, function)->n_results,
          first = n_inputs_of(call) - n;
  if (!n || first < 0) return 0;
  svm_error error;
  svm_value *initial = calloc((size_t)n, sizeof *initial);
  int code = initial ? 0 : out_of_memory("the initial state");
  if (!code && svm_call(call->program, function, NULL, 0, NULL, initial, n, &error))
    code = report(EXIT_RUN, &error);
  for (int32_t i = 0; !code && i < n; i++) {
    if (values[first + i].tag != SVM_TAG_NONE) continue;
    values[first + i] = initial[i];
    int is_constant = initial[i].origin == SVM_ORIGIN_CONSTANT;
    if (is_constant && svm_function_writes(call->program, call->function, first + i))
      code = copy_state(&values[first + i]);
  }
  free(initial);
  return code;
}
