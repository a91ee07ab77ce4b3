/* Damages an artifact in every way that a disk or a copy might, and demands that each is refused.
 *
 *   test_damage FILE.svm [STEP [SCRATCH]]
 *
 * Flips every STEP-th bit (default 1: every bit) and cuts the file at every STEP-th length, in memory:
 * nothing loads. With SCRATCH, a path to write to, flips and cuts that file too while a program maps it:
 * every call fails from then on. Exit 0: all is as it must be. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "svm.h"

enum { MAX_INPUTS = 16, MAX_SYMBOLS = 16 };

typedef struct bytes {
  uint8_t *data;
  size_t size;
} bytes;

static bytes read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  bytes b = {NULL, 0};
  if (!file || fseek(file, 0, SEEK_END)) return b;
  b.size = (size_t)ftell(file);
  rewind(file);
  b.data = malloc(b.size + 1);
  if (!b.data || fread(b.data, 1, b.size, file) != b.size) b.size = 0;
  fclose(file);
  return b;
}

/* Whether the first `size` bytes are refused, from memory of exactly that size. */
static int is_refused(const uint8_t *data, size_t size) {
  svm_options options;
  svm_program *p;
  svm_error error;
  uint8_t *exact = malloc(size ? size : 1);
  if (!exact) return 0;
  memcpy(exact, data, size);
  svm_options_init(&options);
  options.verify = SVM_VERIFY_FULL;
  int32_t code = svm_open_memory(exact, size, &options, &p, &error);
  if (!code) svm_close(p);
  free(exact);
  return code && *error.message;
}

static int damage_memory(bytes b, size_t step, int64_t *n) {
  for (size_t bit = 0; bit < 8 * b.size; bit += step, ++*n) {
    b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    if (!is_refused(b.data, b.size))
      return printf("bit %zu of byte %zu makes no difference\n", bit % 8, bit / 8);
    b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  for (size_t size = 0; size < b.size; size += step, ++*n) {
    if (!is_refused(b.data, size)) return printf("the first %zu bytes of %zu load\n", size, b.size);
  }
  return 0;
}

/* Calls --------------------------------------------------------------------------------------- */

static int32_t no_host(void *context, const svm_value *args, int32_t n_args, svm_value *results,
                       int32_t n_results, svm_error *error) {
  (void)context, (void)args, (void)n_args, (void)error;
  for (int32_t i = 0; i < n_results; i++) results[i].tag = SVM_TAG_INT;
  return SVM_OK;
}

static int32_t no_writer(void *context, const svm_value *args, int32_t n_args, const svm_tensor *outputs,
                         int32_t n_outputs, svm_error *error) {
  (void)context, (void)args, (void)n_args, (void)outputs, (void)n_outputs, (void)error;
  return SVM_OK;
}

static int64_t least_symbol(const svm_program *p, int32_t i) {
  const svm_symbol_info *s = svm_symbol(p, i);
  if (s->min < 0) return 0;
  return (s->min + s->multiple_of - 1) / s->multiple_of * s->multiple_of;
}

/* Calls main with zeros of the least sizes. */
static int32_t call_main(svm_program *p) {
  static int64_t zeros[1024];
  svm_value values[MAX_INPUTS], results[MAX_INPUTS];
  svm_error error;
  int32_t n = svm_n_inputs(p), n_results = svm_n_outputs(p);
  if (n > MAX_INPUTS || n_results > MAX_INPUTS) return -1;
  memset(values, 0, sizeof values);
  for (int32_t i = 0; i < n; i++) {
    const svm_input_info *row = svm_input(p, i);
    values[i].tag = row->kind;
    values[i].text = "";
    values[i].integer = row->symbol >= 0 ? least_symbol(p, row->symbol) : 0;
    values[i].tensor = (svm_tensor){.data = zeros, .dtype = row->dtype, .rank = row->rank};
    for (int32_t a = 0; a < row->rank; a++) {
      const svm_axis_info *axis = &row->axes[a];
      values[i].tensor.sizes[a] =
          axis->symbol < 0 ? axis->offset : axis->scale * least_symbol(p, axis->symbol) + axis->offset;
    }
  }
  for (int32_t i = 0; i < svm_n_externs(p); i++) {
    if (svm_extern_kind(p, i) == SVM_EXTERN_DPS)
      svm_register_dps(p, svm_extern_name(p, i), no_writer, NULL, &error);
    else svm_register_extern(p, svm_extern_name(p, i), no_host, NULL, &error);
  }
  int32_t code = svm_call(p, svm_main_function(p), values, n, NULL, results, n_results, &error);
  for (int32_t i = 0; i < n_results; i++) svm_value_release(&results[i]);
  return code;
}

/* Mapped files -------------------------------------------------------------------------------- */

/* The file as it was, an hour ago: a change now has another time. */
static int restore(int file, bytes b) {
  const struct timespec times[2] = {{0, UTIME_OMIT}, {1000000000, 0}};
  return pwrite(file, b.data, b.size, 0) != (ssize_t)b.size || ftruncate(file, (off_t)b.size) ||
         futimens(file, times);
}

static int cut_or_flip(int file, bytes b, size_t at, int is_cut) {
  uint8_t changed = (uint8_t)(b.data[at / 8] ^ 1 << at % 8);
  return is_cut ? ftruncate(file, (off_t)at) : pwrite(file, &changed, 1, (off_t)(at / 8)) != 1;
}

/* Whether every call fails after the change, and none of them before for that reason. */
static int is_noticed(int file, const char *path, bytes b, size_t at, int is_cut) {
  svm_options options;
  svm_program *p;
  svm_error error;
  svm_options_init(&options);
  options.copy = SVM_COPY_NEVER;
  options.verify = SVM_VERIFY_FULL;
  if (restore(file, b) || svm_open_path(path, &options, &p, &error)) return 0;
  int is_fine = call_main(p) != SVM_ERROR_FILE && !cut_or_flip(file, b, at, is_cut) &&
                call_main(p) == SVM_ERROR_FILE && call_main(p) == SVM_ERROR_FILE &&
                svm_check_weights(p, &error);
  svm_close(p);
  return is_fine;
}

static int damage_mapped(const char *path, bytes b, size_t step, int64_t *n) {
  int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return printf("%s cannot be written\n", path);
  for (size_t bit = 0; bit < 8 * b.size; bit += step, ++*n) {
    if (!is_noticed(file, path, b, bit, 0)) return printf("bit %zu is flipped unnoticed\n", bit);
  }
  for (size_t size = 0; size < b.size; size += step, ++*n) {
    if (!is_noticed(file, path, b, size, 1)) return printf("a cut to %zu bytes is not noticed\n", size);
  }
  close(file);
  return 0;
}

int main(int argc, char **argv) {
  int64_t n = 0;
  bytes b = argc > 1 ? read_file(argv[1]) : (bytes){NULL, 0};
  size_t step = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  if (!b.size || !step) return fprintf(stderr, "usage: test_damage FILE.svm [STEP [SCRATCH]]\n"), 2;
  svm_set_threads(1, NULL);
  if (is_refused(b.data, b.size)) return fprintf(stderr, "test_damage: %s does not load\n", argv[1]), 2;
  int is_bad = damage_memory(b, step, &n) || (argc > 3 && damage_mapped(argv[3], b, step, &n));
  if (!is_bad) printf("%" PRId64 " damages of %zu bytes, all refused\n", n, b.size);
  free(b.data);
  return is_bad;
}
