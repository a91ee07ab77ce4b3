/* Packed inputs: tokens of several texts, one after the other, become the rows of a padded batch. */
#include <string.h>

#include "runner/runner.h"

/* The rows of a batch: row r has the tokens starts[r] .. starts[r + 1] - 1. */
typedef struct rows {
  const int64_t *starts;
  int64_t n, longest;
} rows;

/* The rows of an array of offsets: from 0 up, no row empty. */
static int read_rows(const char *path, const svm_tensor *t, rows *out) {
  if (t->dtype != SVM_DTYPE_I64 || t->rank != 1 || t->sizes[0] < 1)
    return usage("the offsets are not an array i64[texts + 1]", path);
  *out = (rows){t->data, t->sizes[0] - 1, 0};
  if (out->starts[0]) return usage("the first offset is not 0", path);
  for (int64_t r = 0; r < out->n; r++) {
    int64_t length = out->starts[r + 1] - out->starts[r];
    if (out->starts[r + 1] <= out->starts[r]) return usage("the offsets do not go up: a text is empty", path);
    if (length > out->longest) out->longest = length;
  }
  return 0;
}

/* A tensor [rows, longest, ..] of zeros like one of [tokens, ..], or a mask, within the memory that is left.
 */
static int make_padded(const rows *in, const svm_tensor *like, int64_t row_bytes, room *room,
                       svm_value *out) {
  int64_t sizes[SVM_LIMIT_RANK] = {in->n, in->longest}, n_bytes;
  svm_error error;
  for (int32_t a = 1; a < like->rank; a++) sizes[a + 1] = like->sizes[a];
  if (__builtin_mul_overflow(in->n, in->longest, &n_bytes) ||
      __builtin_mul_overflow(n_bytes, row_bytes, &n_bytes))
    return out_of_memory("a padded input");
  if (room->max && n_bytes > room->left) return usage("the inputs are over the limit of --memory", "");
  room->left -= room->max ? n_bytes : 0;
  if (svm_value_tensor(like->dtype, like->rank + 1, sizes, out, &error)) return report(EXIT_RUN, &error);
  memset(out->tensor.data, 0, (size_t)n_bytes);
  return 0;
}

/* The tokens of an input as rows, the rest 0. */
static int pad_input(const rows *in, const char *name, svm_value *value, room *room) {
  const svm_tensor *t = &value->tensor;
  int64_t n_tokens = in->n ? in->starts[in->n] : 0;
  if (t->sizes[0] != n_tokens) return usage("an input has not as many tokens as the last offset", name);
  if (t->strides || !n_tokens)
    return usage("packed inputs have rows in C order, and at least one token", name);
  int64_t row_bytes = (int64_t)npy_data_bytes(t) / n_tokens;
  svm_value made;
  int code = make_padded(in, t, row_bytes, room, &made);
  if (code) return code;
  for (int64_t r = 0; r < in->n; r++)
    memcpy((char *)made.tensor.data + r * in->longest * row_bytes,
           (const char *)t->data + in->starts[r] * row_bytes,
           (size_t)((in->starts[r + 1] - in->starts[r]) * row_bytes));
  *value = made;
  return 0;
}

/* An input that is not given, [batch, length] of integers or bools, is the mask: 1 at tokens. */
static int make_mask(const rows *in, int32_t dtype, room *room, svm_value *value) {
  static const int64_t BYTES[] = {
      [SVM_DTYPE_I64] = 8, [SVM_DTYPE_I32] = 4, [SVM_DTYPE_BOOL] = 1, [SVM_DTYPE_U8] = 1};
  int64_t one = dtype >= 0 && dtype < (int32_t)(sizeof BYTES / sizeof *BYTES) ? BYTES[dtype] : 0;
  if (!one) return 0; /* it is missing, which is said later */
  const svm_tensor like = {.dtype = dtype, .rank = 1};
  int code = make_padded(in, &like, one, room, value);
  for (int64_t r = 0; !code && r < in->n; r++) {
    char *row = (char *)value->tensor.data + r * in->longest * one;
    for (int64_t i = 0; i < in->starts[r + 1] - in->starts[r]; i++) row[i * one] = 1; /* little-endian */
  }
  return code;
}

int pad_inputs(const invocation *call, const char *path, room *room, batch *b, svm_value *values) {
  svm_error error;
  rows in = {0};
  if (room->max && room->left <= 0) return usage("the inputs are over the limit of --memory", path);
  if (npz_read(path, room->left, &b->arrays, &b->n, &error)) return report(EXIT_USAGE, &error);
  int code =
      b->n == 1 ? read_rows(path, &b->arrays[0].tensor, &in) : usage("the offsets are one array", path);
  for (int32_t i = 0; !code && i < n_inputs_of(call); i++) {
    const svm_input_info *input = input_of(call, i);
    int is_given = values[i].tag == SVM_TAG_TENSOR;
    if (input->kind != SVM_TAG_TENSOR || input->rank < 2) continue;
    if (is_given && values[i].tensor.rank == input->rank - 1)
      code = pad_input(&in, input->name, &values[i], room);
    else if (!is_given && input->rank == 2) code = make_mask(&in, input->dtype, room, &values[i]);
  }
  return code;
}
