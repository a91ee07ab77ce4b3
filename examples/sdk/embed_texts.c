/* Embed texts of token ids, a text a line, in one call: embed_texts minilm.svm < ids.txt
 *
 * Compile the model with pack="attention_mask" (`shapevm compile --pack attention_mask`, or a text model of
 * shapevm.SentenceEncoder): padding then costs nothing, and each embedding has the bits that it has alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "svm.h"

enum { MAX_TEXTS = 256, MAX_IDS = 512 };

/* Read a line's ids; returns their number. */
static int64_t read_ids(char *line, int64_t *ids) {
  int64_t n = 0;
  for (char *word = strtok(line, " \n"); word && n < MAX_IDS; word = strtok(NULL, " \n"))
    ids[n++] = strtoll(word, NULL, 10);
  return n;
}

static svm_value matrix(int64_t *data, int64_t rows, int64_t columns) {
  svm_value value = {.tag = SVM_TAG_TENSOR};
  value.tensor = (svm_tensor){.data = data, .dtype = SVM_DTYPE_I64, .rank = 2, .sizes = {rows, columns}};
  return value;
}

int main(int argc, char **argv) {
  static int64_t read[MAX_TEXTS][MAX_IDS], ids[MAX_TEXTS * MAX_IDS], mask[MAX_TEXTS * MAX_IDS];
  static char line[1 << 14];
  int64_t lengths[MAX_TEXTS], n = 0, longest = 0;
  if (argc != 2) return fprintf(stderr, "usage: embed_texts MODEL.svm < IDS\n"), 2;
  while (n < MAX_TEXTS && fgets(line, sizeof line, stdin)) {
    lengths[n] = read_ids(line, read[n]);
    if (lengths[n] > longest) longest = lengths[n];
    n += lengths[n] > 0;
  }
  for (int64_t row = 0; row < n; row++) { /* rows of the longest text's length, 0 behind a text's end */
    for (int64_t i = 0; i < lengths[row]; i++) {
      ids[row * longest + i] = read[row][i];
      mask[row * longest + i] = 1;
    }
  }

  svm_program *program;
  svm_error error;
  if (svm_open_path(argv[1], NULL, &program, &error)) return fprintf(stderr, "%s\n", error.message), 1;
  svm_value inputs[2] = {matrix(ids, n, longest), matrix(mask, n, longest)}, output;
  int failed = svm_call(program, svm_main_function(program), inputs, 2, NULL, &output, 1, &error);
  if (failed) {
    fprintf(stderr, "%s\n", error.message);
  } else {
    const float *vectors = output.tensor.data; /* [n, width] */
    int64_t width = output.tensor.sizes[1];
    for (int64_t i = 0; i < n * width; i++) printf("%.9g%c", vectors[i], i % width == width - 1 ? '\n' : ' ');
    svm_value_release(&output);
  }
  svm_close(program);
  return failed != 0;
}
