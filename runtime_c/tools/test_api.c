/* The C API as a C host uses it: strided and misaligned inputs, allocators, containers, host functions,
 * errors; then several threads that interpret one program at once.
 *
 *   test_api LOOKUP.svm DATA.svm      (tests/runtime_c/artifacts.py)
 *
 * Exit 0: all is as it should be; otherwise the first line that is not is printed. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "svm.h"

#define EXPECT(condition)                                                                       \
  do {                                                                                          \
    if (!(condition))                                                                           \
      fprintf(stderr, "test_api.c:%d: %s: %s\n", __LINE__, #condition, error.message), exit(1); \
  } while (0)

static svm_error error;

static svm_value tensor_value(void *data, int32_t dtype, int64_t n, const int64_t *strides) {
  svm_value v = {.tag = SVM_TAG_TENSOR};
  v.tensor = (svm_tensor){.data = data, .dtype = dtype, .rank = 1, .sizes = {n}, .strides = strides};
  return v;
}

static svm_value int_value(int64_t n) { return (svm_value){.tag = SVM_TAG_INT, .integer = n}; }

/* Planned calls -------------------------------------------------------------------------------- */

/* The caller's memory: one block, handed out once. */
typedef struct block {
  float data[8];
  int32_t n_taken, n_released, leaf;
  size_t n_bytes;
} block;

static void *take_block(void *context, int32_t leaf, const svm_tensor *like, size_t n_bytes) {
  block *b = context;
  b->leaf = leaf;
  b->n_bytes = n_bytes;
  return like->rank == 1 && b->n_taken++ == 0 ? b->data : NULL;
}

static void release_block(void *context, int32_t leaf, void *data) {
  block *b = context;
  b->n_released += leaf == b->leaf && data == b->data;
}

static void check_sizes(const svm_value *pair, int64_t n, int64_t times) {
  svm_value key, item, dict;
  EXPECT(pair->tag == SVM_TAG_TUPLE && pair->length == 2);
  EXPECT(!svm_value_item(pair, 0, NULL, &dict) && dict.tag == SVM_TAG_DICT && dict.length == 1);
  EXPECT(!svm_value_item(&dict, 0, &key, &item) && !strcmp(key.text, "n") && item.integer == 2 * n);
  EXPECT(!svm_value_item(pair, 1, &key, &item) && key.integer == 1 && item.integer == times);
  EXPECT(svm_value_item(pair, 2, &key, &item) == SVM_ERROR_ARGUMENT);
  EXPECT(svm_value_item(pair, -1, &key, &item) == SVM_ERROR_ARGUMENT);
}

static void check_strides(svm_program *p) {
  int64_t every_second[1] = {2}, backwards[1] = {-1}, index[6] = {0, 9, 1, 9, 3, 9}, reversed[3] = {3, 1, 0};
  char bytes[3 * sizeof(int64_t) + 1];
  int64_t plain[3] = {0, 1, 3};
  memcpy(bytes + 1, plain, sizeof plain);
  svm_value forms[] = {tensor_value(index, SVM_DTYPE_I64, 3, every_second),
                       tensor_value(&reversed[2], SVM_DTYPE_I64, 3, backwards),
                       tensor_value(bytes + 1, SVM_DTYPE_I64, 3, NULL)};
  for (int i = 0; i < 6; i++) { /* traced, then replayed */
    svm_value inputs[2] = {forms[i % 3], int_value(2)}, outputs[2];
    EXPECT(!svm_call(p, 0, inputs, 2, NULL, outputs, 2, &error));
    const float *sum = outputs[0].tensor.data;
    EXPECT(sum[0] == 2 && sum[1] == 4 && sum[2] == 16);
    check_sizes(&outputs[1], 3, 2);
    svm_value_release(&outputs[0]);
    svm_value_release(&outputs[1]);
    EXPECT(outputs[0].tag == SVM_TAG_NONE);
  }
}

static void check_allocator(svm_program *p) {
  int64_t good[2] = {2, 3}, bad[2] = {2, 4};
  for (int i = 0; i < 2; i++) {
    block b = {.n_taken = 0};
    svm_allocator allocator = {&b, take_block, release_block};
    svm_value inputs[2] = {tensor_value(good, SVM_DTYPE_I64, 2, NULL), int_value(1)}, outputs[2];
    EXPECT(!svm_call(p, 0, inputs, 2, &allocator, outputs, 2, &error));
    EXPECT(outputs[0].tensor.data == b.data && !outputs[0].owner && b.data[0] == 4 && b.data[1] == 8);
    EXPECT(b.leaf == 0 && b.n_bytes == 8 && outputs[0].origin == SVM_ORIGIN_NEW);
    svm_value_release(&outputs[1]);
    inputs[0].tensor.data = bad;
    b.n_taken = 0;
    EXPECT(svm_call(p, 0, inputs, 2, &allocator, outputs, 2, &error) == SVM_ERROR_INDEX);
    EXPECT(b.n_released == 1 && outputs[0].tag == SVM_TAG_NONE && !strcmp(error.source, "model.py:7"));
    EXPECT(svm_call(p, 0, inputs, 2, &allocator, outputs, 2, &error) == SVM_ERROR_MEMORY); /* refused */
  }
}

static void check_misuse(svm_program *p) {
  svm_value inputs[2] = {int_value(1), int_value(1)}, outputs[2];
  svm_tensor *t = &inputs[0].tensor;
  EXPECT(svm_call(p, 7, inputs, 2, NULL, outputs, 2, &error) == SVM_ERROR_ARGUMENT);
  EXPECT(svm_call(p, 0, inputs, 2, NULL, outputs, 1, &error) == SVM_ERROR_ARGUMENT);
  EXPECT(svm_call(p, 0, inputs, 1, NULL, outputs, 2, &error) == SVM_ERROR_ARGUMENT);
  EXPECT(svm_call(p, 0, inputs, 2, NULL, outputs, 2, &error) == SVM_ERROR_KIND);
  EXPECT(!strcmp(error.message, "input \"index\" is an int; the program takes a tensor"));
  inputs[0] = tensor_value(NULL, SVM_DTYPE_I64, 3, NULL);
  EXPECT(svm_call(p, 0, inputs, 2, NULL, outputs, 2, &error) == SVM_ERROR_ARGUMENT); /* no data */
  t->data = inputs;
  t->rank = 99;
  EXPECT(svm_call(p, 0, inputs, 2, NULL, outputs, 2, &error) == SVM_ERROR_SHAPE);
  t->rank = 1, t->sizes[0] = -1;
  EXPECT(svm_call(p, 0, inputs, 2, NULL, outputs, 2, &error) == SVM_ERROR_SHAPE);
  t->sizes[0] = 0;
  EXPECT(svm_call(p, 0, inputs, 2, NULL, outputs, 2, NULL) == SVM_OK);
  svm_value_release(&outputs[0]);
  svm_value_release(&outputs[1]);
  t->dtype = 77;
  EXPECT(svm_call(p, 0, inputs, 2, NULL, outputs, 2, &error) == SVM_ERROR_DTYPE);
  EXPECT(svm_register_extern(p, "nothing", NULL, NULL, &error) == SVM_ERROR_ARGUMENT);
  EXPECT(!svm_input(p, 2) && !svm_input(p, -1) && !svm_kernel(p, 2) && svm_find_function(p, "add") == 1);
  EXPECT(svm_set_threads(-1, &error) == SVM_ERROR_ARGUMENT &&
         svm_set_strategy(p, 9, &error) == SVM_ERROR_ARGUMENT &&
         svm_set_function_strategy(p, 0, 9, &error) == SVM_ERROR_ARGUMENT &&
         svm_set_function_strategy(p, 7, -1, &error) == SVM_ERROR_ARGUMENT &&
         svm_set_function_strategy(p, 0, -1, NULL) == SVM_OK);
  EXPECT(svm_generic_code(p, 1, NULL, 0) > 0 && !svm_generic_code(p, 2, NULL, 0) &&
         !svm_generic_code(p, -1, NULL, 0) && !svm_installed_code(p, 2, 0, NULL, 0));
}

/* A profile that is still recorded when the program is closed. */
static void check_profile(svm_program *p) {
  char *text;
  EXPECT(!svm_record(p, 1, &error));
  check_strides(p);
  EXPECT(!svm_profile(p, &text, &error) && strstr(text, "6"));
  svm_text_free(text);
}

/* A rank that no tensor has is refused before the sizes are read. */
static void check_ranks(void) {
  int64_t sizes[SVM_MAX_RANK + 1] = {0};
  svm_value made;
  EXPECT(svm_value_tensor(SVM_DTYPE_F32, SVM_MAX_RANK + 1, sizes, &made, &error) &&
         strstr(error.message, "rank"));
  EXPECT(svm_value_tensor(SVM_DTYPE_F32, -1, sizes, &made, &error) && strstr(error.message, "rank"));
}

/* What the program says of its outputs. */
static void check_outputs(svm_program *p) {
  int64_t symbols[2] = {7, 2};
  const svm_output_info *sum = svm_output(p, 0), *sizes = svm_output(p, 1);
  EXPECT(!strcmp(sum->name, "sum") && sum->kind == SVM_TAG_TENSOR && sum->dtype == SVM_DTYPE_F32 &&
         sum->rank == 1);
  EXPECT(sum->axes[0].symbol == 0 && sum->axes[0].scale == 1 && !*sum->axes[0].expression);
  EXPECT(sizes->kind == SVM_TAG_TUPLE && !sizes->rank && !sizes->axes && !svm_output(p, 2) &&
         !svm_output(p, -1));
  EXPECT(svm_output_size(p, 0, 0, symbols) == 7);
  EXPECT(svm_output_size(p, 0, 1, symbols) == -1 && svm_output_size(p, 1, 0, symbols) == -1);
}

/* Interpreted calls ---------------------------------------------------------------------------- */

/* twice(x) = {"doubled": [x + x]}, made of new values. */
static int32_t twice(void *context, const svm_value *args, int32_t n_args, svm_value *results,
                     int32_t n_results, svm_error *problem) {
  svm_value made, list, pair[2] = {{.tag = SVM_TAG_STR, .text = "doubled", .length = 7}};
  (void)context;
  if (n_args != 1 || n_results != 1) return SVM_ERROR_EXTERN;
  if (svm_value_tensor(args[0].tensor.dtype, args[0].tensor.rank, args[0].tensor.sizes, &made, problem))
    return problem->code;
  const float *x = args[0].tensor.data;
  for (int64_t i = 0; i < made.tensor.sizes[0]; i++) ((float *)made.tensor.data)[i] = x[i] + x[i];
  int32_t code = svm_value_make(SVM_TAG_LIST, &made, 1, &list, problem);
  svm_value_release(&made);
  pair[1] = list;
  if (!code) code = svm_value_make(SVM_TAG_DICT, pair, 2, results, problem);
  svm_value_release(&list);
  return code;
}

/* An output is zeros that nothing else has; it may be filled. */
static int32_t fill(void *context, const svm_value *args, int32_t n_args, const svm_tensor *outputs,
                    int32_t n_outputs, svm_error *problem) {
  (void)context, (void)args, (void)problem;
  if (n_args != 3 || n_outputs != 1) return SVM_ERROR_EXTERN;
  float *y = outputs[0].data;
  for (int64_t i = 0; i < outputs[0].sizes[0]; i++) {
    if (y[i] != 0) return SVM_ERROR_EXTERN;
    y[i] = 1;
  }
  return SVM_OK;
}

static void check_interpreted(svm_program *p, int64_t n, int64_t count) {
  float x[64];
  svm_value inputs[5] = {tensor_value(x, SVM_DTYPE_F32, n, NULL),
                         tensor_value(&count, SVM_DTYPE_I64, 1, NULL)},
            outputs[3], list, item;
  svm_error problem;
  for (int64_t i = 0; i < n; i++) x[i] = (float)i;
  inputs[1].tensor.rank = 0;
  inputs[2] = (svm_value){.tag = SVM_TAG_STR, .text = "name", .length = 4};
  inputs[3] = (svm_value){.tag = SVM_TAG_FLOAT, .number = 0.5};
  inputs[4] = (svm_value){.tag = SVM_TAG_BOOL, .integer = 1};
  EXPECT(!svm_call(p, 0, inputs, 5, NULL, outputs, 3, &problem));
  EXPECT(outputs[0].tag == SVM_TAG_TUPLE && outputs[2].number == 0);
  EXPECT(!svm_value_item(&outputs[0], 0, NULL, &list) && list.tag == SVM_TAG_LIST && list.length == count);
  EXPECT(!svm_value_item(&outputs[1], 0, NULL, &list) && !svm_value_item(&list, 0, NULL, &item));
  for (int64_t i = 0; i < n; i++) EXPECT(((float *)item.tensor.data)[i] == 4 * x[i]);
  for (int i = 0; i < 3; i++) svm_value_release(&outputs[i]);
}

static void *interpret_often(void *p) {
  for (int64_t i = 0; i < 200; i++) check_interpreted(p, 1 + i % 64, i % 7);
  return NULL;
}

static svm_program *open_artifact(const char *path) {
  svm_program *p;
  svm_options options;
  svm_options_init(&options);
  options.fuel = 100000;
  options.memory_max = 1 << 24;
  EXPECT(!svm_open_path(path, &options, &p, &error));
  return p;
}

static void check_externs(svm_program *p) {
  svm_value inputs[5] = {{.tag = SVM_TAG_NONE}}, outputs[3];
  EXPECT(svm_call(p, 0, inputs, 5, NULL, outputs, 3, &error) == SVM_ERROR_EXTERN);
  EXPECT(!strncmp(error.message, "host function \"", 15) &&
         strstr(error.message, " is missing; register it, or load the plug-in"));
  EXPECT(svm_n_externs(p) == 2 && svm_extern_is_missing(p, 0) && svm_extern_is_missing(p, 1));
  EXPECT(svm_register_dps(p, "twice", fill, NULL, &error) == SVM_ERROR_ARGUMENT);
  EXPECT(svm_register_extern(p, "fill", twice, NULL, &error) == SVM_ERROR_ARGUMENT);
  EXPECT(!svm_register_extern(p, "twice", twice, NULL, &error) &&
         !svm_register_dps(p, "fill", fill, NULL, &error));
  EXPECT(!svm_extern_is_missing(p, 0) && !svm_extern_is_missing(p, 1));
}

int main(int argc, char **argv) {
  enum { N_THREADS = 4 };
  pthread_t threads[N_THREADS];
  if (argc != 3) return fprintf(stderr, "usage: test_api LOOKUP.svm DATA.svm\n"), 2;
  svm_program *lookup = open_artifact(argv[1]), *data = open_artifact(argv[2]);
  check_strides(lookup);
  check_outputs(lookup);
  check_allocator(lookup);
  check_misuse(lookup);
  check_profile(lookup);
  check_ranks();
  check_externs(data);
  check_interpreted(data, 5, 3);
  for (int i = 0; i < N_THREADS; i++) pthread_create(&threads[i], NULL, interpret_often, data);
  for (int i = 0; i < N_THREADS; i++) pthread_join(threads[i], NULL);
  svm_close(lookup);
  svm_close(data);
  return 0;
}
