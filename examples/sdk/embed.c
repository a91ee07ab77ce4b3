/* Embed one sentence of token ids: embed minilm.svm 101 7592 2088 102 */
#include <stdio.h>
#include <stdlib.h>

#include "svm.h"

enum { MAX_IDS = 512 };

static svm_value ids_value(int64_t *ids, int64_t n) {
  svm_value value = {.tag = SVM_TAG_TENSOR};
  value.tensor = (svm_tensor){.data = ids, .dtype = SVM_DTYPE_I64, .rank = 2, .sizes = {1, n}};
  return value;
}

int main(int argc, char **argv) {
  int64_t ids[MAX_IDS], mask[MAX_IDS], n = argc - 2;
  if (n < 1 || n > MAX_IDS) return fprintf(stderr, "usage: embed MODEL.svm ID ...\n"), 2;
  for (int64_t i = 0; i < n; i++) {
    ids[i] = strtoll(argv[i + 2], NULL, 10);
    mask[i] = 1;
  }

  svm_program *program;
  svm_error error;
  if (svm_open_path(argv[1], NULL, &program, &error)) return fprintf(stderr, "%s\n", error.message), 1;

  svm_value inputs[2] = {ids_value(ids, n), ids_value(mask, n)}, output; /* inputs in the contract's order */
  int failed = svm_call(program, svm_main_function(program), inputs, 2, NULL, &output, 1, &error);
  if (failed) {
    fprintf(stderr, "%s\n", error.message);
  } else {
    const float *vector = output.tensor.data; /* [1, output.tensor.sizes[1]] */
    for (int64_t i = 0; i < output.tensor.sizes[1]; i++) printf("%.9g\n", vector[i]);
    svm_value_release(&output);
  }
  svm_close(program);
  return failed != 0;
}
