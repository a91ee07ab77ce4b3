/* What a host may do wrong with the C API: each ends with an error, nothing is read or written out of bounds.
 * For -DSVM_SANITIZE=address,undefined.
 *
 *   test_misuse CHAIN.svm      (as of test_threads)
 *
 * Exit 0: all is as it should be; otherwise the first line that is not is printed. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "svm.h"

#define EXPECT(condition)                                                                          \
  do {                                                                                             \
    if (!(condition))                                                                              \
      fprintf(stderr, "test_misuse.c:%d: %s: %s\n", __LINE__, #condition, error.message), exit(1); \
  } while (0)
/* The call fails with this code and a sentence. */
#define FAILS(wanted, call) EXPECT((error.message[0] = 0, (call) == (wanted)) && error.message[0])

static svm_error error;
static svm_value result;

/* Values --------------------------------------------------------------------------------------- */

static void misuse_strings(void) {
  svm_value text = {.tag = SVM_TAG_STR, .text = "abc", .length = -1};
  FAILS(SVM_ERROR_ARGUMENT, svm_value_make(SVM_TAG_LIST, &text, 1, &result, &error));
  text.length = INT64_MIN;
  FAILS(SVM_ERROR_ARGUMENT, svm_value_make(SVM_TAG_LIST, &text, 1, &result, &error));
  text.length = INT64_MAX;
  FAILS(SVM_ERROR_LIMIT, svm_value_make(SVM_TAG_LIST, &text, 1, &result, &error));
  text = (svm_value){.tag = SVM_TAG_STR, .length = 3};
  FAILS(SVM_ERROR_ARGUMENT, svm_value_make(SVM_TAG_LIST, &text, 1, &result, &error));
  text.length = 0;
  EXPECT(!svm_value_make(SVM_TAG_LIST, &text, 1, &result, &error) && result.length == 1);
  svm_value_release(&result);
  EXPECT(!svm_value_make(SVM_TAG_LIST, &text, 1, &text, NULL));
  svm_value_release(&text);
}

static void misuse_containers(void) {
  svm_value item = {.tag = SVM_TAG_INT};
  FAILS(SVM_ERROR_ARGUMENT, svm_value_make(SVM_TAG_LIST, NULL, 2, &result, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_value_make(SVM_TAG_LIST, &item, -1, &result, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_value_make(SVM_TAG_DICT, &item, 1, &result, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_value_make(SVM_TAG_INT, &item, 1, &result, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_value_make(SVM_TAG_LIST, &item, 1, NULL, &error));
  item.tag = SVM_TAG_LIST;
  FAILS(SVM_ERROR_ARGUMENT, svm_value_make(SVM_TAG_LIST, &item, 1, &result, &error));
  item.tag = 12345;
  FAILS(SVM_ERROR_ARGUMENT, svm_value_make(SVM_TAG_LIST, &item, 1, &result, &error));
  EXPECT(svm_value_item(NULL, 0, NULL, &item) == SVM_ERROR_ARGUMENT);
  EXPECT(svm_value_item(&result, 0, NULL, NULL) == SVM_ERROR_ARGUMENT);
  EXPECT(svm_value_item(&result, INT64_MIN, NULL, &item) == SVM_ERROR_ARGUMENT);
  svm_value_release(NULL);
}

static void misuse_tensors(void) {
  int64_t sizes[17] = {1, 1};
  FAILS(SVM_ERROR_SHAPE, svm_value_tensor(SVM_DTYPE_F32, 17, sizes, &result, &error));
  FAILS(SVM_ERROR_SHAPE, svm_value_tensor(SVM_DTYPE_F32, -1, sizes, &result, &error));
  FAILS(SVM_ERROR_SHAPE, svm_value_tensor(SVM_DTYPE_F32, INT32_MAX, sizes, &result, &error));
  FAILS(SVM_ERROR_DTYPE, svm_value_tensor(-1, 1, sizes, &result, &error));
  FAILS(SVM_ERROR_DTYPE, svm_value_tensor(INT32_MAX, 1, sizes, &result, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_value_tensor(SVM_DTYPE_F32, 1, NULL, &result, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_value_tensor(SVM_DTYPE_F32, 1, sizes, NULL, &error));
  sizes[0] = -1;
  FAILS(SVM_ERROR_SHAPE, svm_value_tensor(SVM_DTYPE_F32, 2, sizes, &result, &error));
  sizes[0] = sizes[1] = INT64_C(1) << 40;
  FAILS(SVM_ERROR_SHAPE, svm_value_tensor(SVM_DTYPE_F32, 2, sizes, &result, &error));
  EXPECT(!svm_value_tensor(SVM_DTYPE_F32, 0, NULL, &result, &error));
  svm_value_release(&result);
}

static void count_release(void *context) { ++*(int *)context; }

static void misuse_lent_memory(void) {
  float data[8] = {0};
  int n_released = 0;
  int64_t strides[2] = {1, 2};
  svm_tensor t = {.data = data, .dtype = SVM_DTYPE_F32, .rank = 17};
  FAILS(SVM_ERROR_SHAPE, svm_value_over(&t, NULL, NULL, &result, &error));
  FAILS(SVM_ERROR_SHAPE, svm_value_over(&t, count_release, &n_released, &result, &error));
  t = (svm_tensor){.data = data, .dtype = SVM_DTYPE_F32, .rank = 2, .sizes = {2, 4}, .strides = strides};
  FAILS(SVM_ERROR_ARGUMENT, svm_value_over(&t, count_release, &n_released, &result, &error));
  t.strides = NULL;
  t.data = (char *)data + 1;
  FAILS(SVM_ERROR_ARGUMENT, svm_value_over(&t, count_release, &n_released, &result, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_value_over(NULL, count_release, &n_released, &result, &error));
  t.data = data;
  FAILS(SVM_ERROR_ARGUMENT, svm_value_over(&t, count_release, &n_released, NULL, &error));
  EXPECT(n_released == 5);
  EXPECT(!svm_value_over(&t, NULL, NULL, &result, NULL));
  svm_value_release(&result);
  EXPECT(!svm_value_over(&t, count_release, &n_released, &result, NULL));
  svm_value_release(&result);
  EXPECT(n_released == 6);
}

/* Programs ------------------------------------------------------------------------------------- */

static void misuse_opening(const char *path) {
  svm_program *p = NULL;
  FAILS(SVM_ERROR_ARGUMENT, svm_open_path(NULL, NULL, &p, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_open_path(path, NULL, NULL, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_open_file(0, NULL, NULL, &p, &error));
  FAILS(SVM_ERROR_FILE, svm_open_file(-1, path, NULL, &p, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_open_memory(NULL, 100, NULL, &p, &error));
  FAILS(SVM_ERROR_ARTIFACT, svm_open_memory("12345678", 0, NULL, &p, &error));
  EXPECT(svm_open_path("/nowhere", NULL, &p, NULL) == SVM_ERROR_FILE && !p);
  svm_options_init(NULL);
  svm_call_options_init(NULL);
}

static void misuse_nothing(void) {
  char *text;
  svm_stats stats;
  svm_request request;
  FAILS(SVM_ERROR_ARGUMENT, svm_call(NULL, 0, NULL, 0, NULL, NULL, 0, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_bind(NULL, NULL, 0, NULL, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_metrics(NULL, NULL, &text, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_profile(NULL, &text, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_timeline_text(NULL, &text, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_set_strategy(NULL, 0, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_load_plugin(NULL, "x", &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_install_code(NULL, 0, "x", 1, &error));
  EXPECT(!svm_enter(NULL, &error));
  EXPECT(!svm_n_inputs(NULL) && !svm_n_symbols(NULL) && !svm_n_kernels(NULL) && !svm_input(NULL, 0));
  EXPECT(!svm_function(NULL, 0) && !svm_symbol(NULL, 0) && svm_find_function(NULL, "main") == -1);
  EXPECT(svm_request_wait(NULL, 0, &request) == -1 && !svm_compiler_is_busy(NULL));
  svm_rest_before_forks(NULL);
  svm_get_stats(NULL, &stats);
  EXPECT(!stats.calls);
  svm_close(NULL), svm_release(NULL), svm_leave(NULL), svm_retain(NULL);
  svm_attach_compiler(NULL, 1), svm_hurry(NULL, 1), svm_time_calls(NULL, 1), svm_text_free(NULL);
}

static void misuse_calls(svm_program *p) {
  float data[4] = {1, 2, 3, 4};
  int64_t huge[2] = {INT64_C(1) << 40, 1}, symbol;
  svm_value x = {.tag = SVM_TAG_TENSOR}, inputs[2], output;
  x.tensor = (svm_tensor){.data = data, .dtype = SVM_DTYPE_F32, .rank = 1, .sizes = {4}};
  inputs[0] = inputs[1] = x;
  svm_allocator nothing = {NULL, NULL, NULL};
  FAILS(SVM_ERROR_ARGUMENT, svm_call(p, 0, inputs, 2, &nothing, &output, 1, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_call(p, 0, NULL, 2, NULL, &output, 1, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_call(p, 0, inputs, 2, NULL, NULL, 1, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_call(p, 0, inputs, -1, NULL, &output, 1, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_call(p, 0, inputs, INT32_MIN, NULL, &output, 1, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_call(p, 0, inputs, 2, NULL, &output, -1, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_call(p, INT32_MIN, inputs, 2, NULL, &output, 1, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_bind(p, NULL, 2, &symbol, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_bind(p, inputs, 2, NULL, &error));
  EXPECT(svm_output_size(p, 0, 0, NULL) == -1);
  inputs[0].tensor.rank = 17;
  EXPECT(svm_call(p, 0, inputs, 2, NULL, &output, 1, &error));
  inputs[0].tensor.rank = INT32_MIN;
  EXPECT(svm_call(p, 0, inputs, 2, NULL, &output, 1, &error));
  inputs[0] = inputs[1] = x;
  for (int i = 0; i < 2; i++) inputs[i].tensor.sizes[0] = INT64_MAX, inputs[i].tensor.strides = huge;
  EXPECT(svm_call(p, 0, inputs, 2, NULL, &output, 1, &error));
  for (int i = 0; i < 2; i++) inputs[i].tensor.sizes[0] = INT64_MIN;
  EXPECT(svm_call(p, 0, inputs, 2, NULL, &output, 1, &error));
  inputs[0] = inputs[1] = x;
  inputs[1].tensor.data = NULL;
  FAILS(SVM_ERROR_ARGUMENT, svm_call(p, 0, inputs, 2, NULL, &output, 1, &error));
  inputs[1] = x;
  EXPECT(!svm_call(p, 0, inputs, 2, NULL, &output, 1, NULL));
  svm_value_release(&output);
}

static void misuse_compiling(svm_program *p) {
  int64_t dims[SVM_MAX_DIMS + 1] = {0};
  svm_price price = {-1, 0, 0};
  FAILS(SVM_ERROR_ARGUMENT, svm_compile_failed(p, 0, NULL, 1, NULL, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_compile_failed(p, 0, dims, SVM_MAX_DIMS + 1, "", &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_decline_request(p, 0, dims, -1, 0, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_decline_request(p, INT32_MAX, dims, 1, 0, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_set_price(p, 0, NULL, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_set_price(p, 0, &price, &error));
  EXPECT(svm_set_price(p, -1, &price, NULL) == SVM_ERROR_ARGUMENT);
  FAILS(SVM_ERROR_ARGUMENT, svm_install_code(p, 0, NULL, 10, &error));
  FAILS(SVM_ERROR_ARTIFACT, svm_install_code(p, 0, dims, 0, &error));
  FAILS(SVM_ERROR_ARTIFACT, svm_install_code(p, 0, dims, sizeof dims, &error));
  EXPECT(!svm_is_awaited(p, 0, NULL, 1) && svm_request_wait(p, INT32_MIN, NULL) == -1);
  EXPECT(svm_get_site(p, 0, NULL) == SVM_ERROR_ARGUMENT &&
         svm_get_entry(p, 0, 0, NULL) == SVM_ERROR_ARGUMENT);
  svm_get_stats(p, NULL);
}

static void misuse_the_rest(svm_program *p) {
  uint64_t hash[2];
  FAILS(SVM_ERROR_ARGUMENT, svm_register_extern(p, NULL, NULL, NULL, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_register_extern(p, "x", NULL, NULL, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_register_dps(p, "x", NULL, NULL, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_load_plugin(p, NULL, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_meta(p, NULL, NULL, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_metrics(p, NULL, NULL, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_limit_depth(p, INT32_MIN, INT32_MAX, &error));
  FAILS(SVM_ERROR_ARGUMENT, svm_set_threads(INT32_MIN, &error));
  EXPECT(svm_set_threads(INT32_MAX, NULL) == SVM_ERROR_ARGUMENT);
  EXPECT(svm_find_function(p, NULL) == -1 && !svm_input(p, -1) && !svm_symbol(p, INT32_MAX));
  svm_hash_chunk("short", 5, hash);
  svm_hash_chunk(NULL, 1000, hash);
  svm_hash_chunk("short", 5, NULL);
  EXPECT(!strcmp(svm_error_name(INT32_MIN), "unknown"));
}

int main(int n_args, char **args) {
  svm_program *p;
  if (n_args != 2) return fprintf(stderr, "usage: test_misuse CHAIN.svm\n"), 2;
  misuse_strings();
  misuse_containers();
  misuse_tensors();
  misuse_lent_memory();
  misuse_opening(args[1]);
  misuse_nothing();
  EXPECT(!svm_open_path(args[1], NULL, &p, &error));
  misuse_calls(p);
  misuse_compiling(p);
  misuse_the_rest(p);
  svm_retain(p);
  svm_close(p), svm_close(p);
  FAILS(SVM_ERROR_ARGUMENT, svm_call(p, 0, NULL, 0, NULL, NULL, 0, &error));
  EXPECT(!svm_enter(p, &error));
  svm_release(p);
  return 0;
}
