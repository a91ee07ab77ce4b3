/* Lists and dicts of any structure as a C host gives them: as columns, which are lists.
 *
 *   test_columns COLUMNS.svm      (tests/runtime_c/test_columns.py)
 *
 * Exit 0: all is as it should be; otherwise the first line that is not is printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "svm.h"

#define EXPECT(condition)                                                                           \
  do {                                                                                              \
    if (!(condition))                                                                               \
      fprintf(stderr, "test_columns.c:%d: %s: %s\n", __LINE__, #condition, error.message), exit(1); \
  } while (0)

enum { LENGTHS, ROW_KEYS, ROW_VALUES, KEYS, VALUES, STEPS, N_INPUTS };
enum { TOTAL, COUNT_KEYS, COUNT_VALUES, N_OUTPUTS, MAX_ITEMS = 8 };

static svm_error error;

static svm_value list_of(const svm_value *items, int64_t n) {
  svm_value made;
  EXPECT(!svm_value_make(SVM_TAG_LIST, items, n, &made, &error));
  return made;
}

static svm_value ints(const int64_t *numbers, int64_t n) {
  svm_value items[MAX_ITEMS] = {{.tag = SVM_TAG_NONE}};
  for (int64_t i = 0; i < n; i++) items[i] = (svm_value){.tag = SVM_TAG_INT, .integer = numbers[i]};
  return list_of(items, n);
}

static svm_value floats(const double *numbers, int64_t n) {
  svm_value items[MAX_ITEMS] = {{.tag = SVM_TAG_NONE}};
  for (int64_t i = 0; i < n; i++) items[i] = (svm_value){.tag = SVM_TAG_FLOAT, .number = numbers[i]};
  return list_of(items, n);
}

static svm_value texts(const char *const *words, int64_t n) {
  svm_value items[MAX_ITEMS] = {{.tag = SVM_TAG_NONE}};
  for (int64_t i = 0; i < n; i++)
    items[i] = (svm_value){.tag = SVM_TAG_STR, .text = words[i], .length = (int64_t)strlen(words[i])};
  return list_of(items, n);
}

/* Tensors of these sizes, of the numbers 1, 2, 3 ... */
static svm_value tensors(const int64_t *sizes, int64_t n, int32_t rank) {
  float data[MAX_ITEMS];
  svm_value items[MAX_ITEMS] = {{.tag = SVM_TAG_NONE}};
  for (int i = 0; i < MAX_ITEMS; i++) data[i] = (float)(i + 1);
  for (int64_t i = 0; i < n; i++) {
    items[i].tag = SVM_TAG_TENSOR;
    items[i].tensor =
        (svm_tensor){.data = data, .dtype = SVM_DTYPE_F32, .rank = rank, .sizes = {sizes[i], 1}};
  }
  return list_of(items, n);
}

static int32_t run(svm_program *p, svm_value *inputs, svm_value *outputs) {
  int32_t code = svm_call(p, 0, inputs, N_INPUTS, NULL, outputs, N_OUTPUTS, &error);
  for (int i = 0; i < N_INPUTS; i++) svm_value_release(&inputs[i]);
  return code;
}

static void check_names(const svm_program *p) {
  static const char *const INPUTS[] = {"rows.lengths", "rows.keys",    "rows.values",
                                       "table.keys",   "table.values", "steps"};
  static const char *const OUTPUTS[] = {"0", "1.keys", "1.values"};
  EXPECT(svm_n_inputs(p) == N_INPUTS && svm_n_outputs(p) == N_OUTPUTS);
  for (int i = 0; i < N_INPUTS; i++) {
    EXPECT(!strcmp(svm_input(p, i)->name, INPUTS[i]) && svm_input(p, i)->kind == SVM_TAG_LIST);
  }
  for (int i = 0; i < N_OUTPUTS; i++) EXPECT(!strcmp(svm_output(p, i)->name, OUTPUTS[i]));
}

/* rows = [{"a": 1, "b": 2}, {}, {"a": 4}], table = {"a": [1, 2], "b": [1, 2, 3]}, steps = [10, 1] */
static void fill(svm_value *inputs) {
  inputs[LENGTHS] = ints((const int64_t[]){2, 0, 1}, 3);
  inputs[ROW_KEYS] = texts((const char *const[]){"a", "b", "a"}, 3);
  inputs[ROW_VALUES] = floats((const double[]){1, 2, 4}, 3);
  inputs[KEYS] = texts((const char *const[]){"a", "b"}, 2);
  inputs[VALUES] = tensors((const int64_t[]){2, 3}, 2, 1);
  inputs[STEPS] = ints((const int64_t[]){10, 1}, 2);
}

static void check_count(svm_value *outputs, int64_t i, const char *key, int64_t count) {
  svm_value item;
  EXPECT(!svm_value_item(&outputs[COUNT_KEYS], i, NULL, &item) && !strcmp(item.text, key));
  EXPECT(!svm_value_item(&outputs[COUNT_VALUES], i, NULL, &item) && item.integer == count);
}

static void release(svm_value *outputs) {
  for (int i = 0; i < N_OUTPUTS; i++) svm_value_release(&outputs[i]);
}

static void check_calls(svm_program *p) {
  svm_value inputs[N_INPUTS], outputs[N_OUTPUTS];
  fill(inputs);
  EXPECT(!run(p, inputs, outputs));
  EXPECT(*(const float *)outputs[TOTAL].tensor.data == 1 * 3 + 2 * 6 + 4 * 3 + 11);
  EXPECT(outputs[COUNT_KEYS].length == 2 && outputs[COUNT_VALUES].length == 2);
  check_count(outputs, 0, "a", 2), check_count(outputs, 1, "b", 1);
  release(outputs);
  for (int i = 0; i < N_INPUTS; i++) inputs[i] = list_of(NULL, 0);
  EXPECT(!run(p, inputs, outputs));
  EXPECT(*(const float *)outputs[TOTAL].tensor.data == 0 && outputs[COUNT_KEYS].length == 0);
  release(outputs);
  fill(inputs);
  for (int i = 0; i < 3; i++) svm_value_release(&inputs[i]);
  inputs[LENGTHS] = ints((const int64_t[]){1, 1, 1, 1}, 4);
  inputs[ROW_KEYS] = texts((const char *const[]){"b", "b", "b", "a"}, 4);
  inputs[ROW_VALUES] = floats((const double[]){1, 1, 1, 0.5}, 4);
  EXPECT(!run(p, inputs, outputs));
  EXPECT(*(const float *)outputs[TOTAL].tensor.data == 3 * 6 + 1.5f + 11);
  check_count(outputs, 0, "b", 3), check_count(outputs, 1, "a", 1);
  release(outputs);
}

/* A call with another column fails with a sentence. */
static void refuses(svm_program *p, int which, svm_value column, const char *message) {
  svm_value inputs[N_INPUTS], outputs[N_OUTPUTS];
  fill(inputs);
  svm_value_release(&inputs[which]);
  inputs[which] = column;
  EXPECT(run(p, inputs, outputs) && strstr(error.message, message));
}

static void check_refusals(svm_program *p) {
  const char *fit = "input \"rows.lengths\" must have numbers from 0 on, in all as many as \"rows.keys\" has";
  refuses(p, LENGTHS, ints((const int64_t[]){2, 0}, 2), fit);
  refuses(p, LENGTHS, ints((const int64_t[]){-1, 4}, 2), fit);
  refuses(p, LENGTHS, ints((const int64_t[]){3, 0}, 2),
          "input \"rows.keys\" has a key twice; the keys of a dict must be different ones");
  refuses(p, ROW_VALUES, floats((const double[]){1}, 1),
          "input \"rows.values\" must have as many elements as \"rows.keys\"");
  refuses(p, ROW_KEYS, ints((const int64_t[]){1, 2, 3}, 3),
          "input \"rows.keys\": element 0 is an int; it must be a str");
  refuses(p, KEYS, texts((const char *const[]){"a", "a"}, 2), "input \"table.keys\" has a key twice");
  refuses(p, KEYS, texts((const char *const[]){"b", "c"}, 2), "the dict lacks the key");
  refuses(p, VALUES, tensors((const int64_t[]){2, 3}, 2, 2),
          "input \"table.values\": element 0 has rank 2; it must have rank 1");
  refuses(p, STEPS, (svm_value){.tag = SVM_TAG_INT, .integer = 1},
          "input \"steps\" is an int; the program takes a list");
}

int main(int argc, char **argv) {
  svm_program *p;
  svm_options options;
  if (argc != 2) return fprintf(stderr, "usage: test_columns COLUMNS.svm\n"), 2;
  svm_options_init(&options);
  EXPECT(!svm_open_path(argv[1], &options, &p, &error));
  check_names(p);
  check_calls(p);
  check_refusals(p);
  check_calls(p);
  svm_close(p);
  return 0;
}
