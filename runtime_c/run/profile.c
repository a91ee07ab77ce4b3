/* Profiles: which sizes main was called with, how often and how long. Sizes only, never data. */
#include "run/profile.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/sha256.h"
#include "base/status.h"
#include "base/text.h"
#include "run/contract.h"

enum { FIRST_ROWS = 64, MAX_ROWS = 1 << 16 };

/* A row: the symbols' values, then these. */
enum { COUNT = 0, TOTAL_NS = 1, LEAST_NS = 2, N_NUMBERS = 3 };

struct profile {
  int64_t n_symbols, n_rows, mask;
  int64_t dropped; /* calls at sizes beyond MAX_ROWS */
  int64_t *rows;   /* mask + 1; count 0: free */
};

static int64_t row_size(const profile *x) { return x->n_symbols + N_NUMBERS; }

static int64_t *find_row(const profile *x, const int64_t *symbols) {
  for (uint64_t i = hash_row(symbols, x->n_symbols);; i++) {
    int64_t *row = x->rows + (int64_t)(i & (uint64_t)x->mask) * row_size(x);
    if (!row[x->n_symbols + COUNT] || !memcmp(row, symbols, (size_t)x->n_symbols * sizeof *row)) return row;
  }
}

static int grow(profile *x) {
  profile old = *x;
  int64_t n = x->mask ? 2 * (x->mask + 1) : FIRST_ROWS;
  int64_t *rows = calloc((size_t)(n * row_size(x)), sizeof *rows);
  if (!rows) return 0;
  x->rows = rows;
  x->mask = n - 1;
  for (int64_t i = 0; old.rows && i <= old.mask; i++) {
    const int64_t *row = old.rows + i * row_size(x);
    if (row[x->n_symbols + COUNT]) memcpy(find_row(x, row), row, (size_t)row_size(x) * sizeof *row);
  }
  free(old.rows);
  return 1;
}

static void count_call(profile *x, const int64_t *symbols, int64_t ns) {
  if (2 * (x->n_rows + 1) > x->mask && x->n_rows < MAX_ROWS && !grow(x)) {
    x->dropped++;
    return;
  }
  int64_t *row = find_row(x, symbols), *numbers = row + x->n_symbols;
  if (!numbers[COUNT] && x->n_rows >= MAX_ROWS) {
    x->dropped++;
    return;
  }
  if (!numbers[COUNT]) {
    memcpy(row, symbols, (size_t)x->n_symbols * sizeof *row);
    numbers[LEAST_NS] = ns;
    x->n_rows++;
  }
  numbers[COUNT]++;
  numbers[TOTAL_NS] += ns;
  if (ns < numbers[LEAST_NS]) numbers[LEAST_NS] = ns;
}

int64_t profile_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void profile_count(svm_program *p, const int64_t *symbols, int64_t ns) {
  pthread_mutex_lock(&p->lock);
  if (p->observers.profile) count_call(p->observers.profile, symbols, ns);
  pthread_mutex_unlock(&p->lock);
}

void profile_free(profile *x) {
  if (x) free(x->rows);
  free(x);
}

int32_t svm_record(svm_program *p, int32_t is_recording, svm_error *error) {
  if (status_need(p, "svm_record: program", error)) return SVM_ERROR_ARGUMENT;
  svm_error unasked;
  pthread_mutex_lock(&p->lock);
  if (is_recording && !p->observers.profile &&
      (p->observers.profile = calloc(1, sizeof *p->observers.profile)))
    p->observers.profile->n_symbols = p->io.n_symbols;
  int is_made = p->observers.profile || !is_recording;
  if (is_made && is_recording) atomic_fetch_or(&p->observers.counted, COUNT_SIZES);
  if (is_made && !is_recording) atomic_fetch_and(&p->observers.counted, ~COUNT_SIZES);
  pthread_mutex_unlock(&p->lock);
  return is_made
             ? SVM_OK
             : status_fail(error ? error : &unasked, SVM_ERROR_MEMORY, "memory: there is none for a profile");
}

/* Names the program whatever code it carries: the hash of its kernels' specs. */
static void add_identity(const svm_program *p, text_buffer *t) {
  sha256 hash;
  uint8_t found[SHA256_BYTES];
  sha256_init(&hash);
  for (int32_t i = 0; i < p->n_kernels; i++)
    sha256_update(&hash, p->kernels[i].signature.spec_hash, sizeof p->kernels[i].signature.spec_hash);
  sha256_final(&hash, found);
  for (int i = 0; i < SHA256_BYTES; i++) text_add(t, "%02x", found[i]);
}

static void add_rows(const profile *x, text_buffer *t) {
  const char *between = "";
  for (int64_t i = 0; x && x->rows && i <= x->mask; i++) {
    const int64_t *row = x->rows + i * row_size(x), *numbers = row + x->n_symbols;
    if (!numbers[COUNT]) continue;
    text_add(t, "%s\n  {\"values\": [", between);
    for (int64_t s = 0; s < x->n_symbols; s++) text_add(t, s ? ", %" PRId64 : "%" PRId64, row[s]);
    text_add(t, "], \"count\": %" PRId64 ", \"total_ns\": %" PRId64 ", \"least_ns\": %" PRId64 "}",
             numbers[COUNT], numbers[TOTAL_NS], numbers[LEAST_NS]);
    between = ",";
  }
}

int32_t svm_profile(svm_program *p, char **out, svm_error *error) {
  if (status_need(p, "svm_profile: program", error) || status_need(out, "svm_profile: text", error))
    return SVM_ERROR_ARGUMENT;
  svm_error unasked;
  text_buffer t = {0};
  pthread_mutex_lock(&p->lock);
  text_add(&t, "{\"format\": \"shapevm-profile\", \"version\": 1, \"program\": \"");
  add_identity(p, &t);
  text_add(&t, "\",\n \"symbols\": [");
  for (int32_t i = 0; i < p->io.n_symbols; i++) {
    if (i) text_add(&t, ", ");
    text_add_quoted(&t, p->io.symbols[i].name);
  }
  text_add(&t, "], \"dropped\": %" PRId64 ", \"sizes\": [",
           p->observers.profile ? p->observers.profile->dropped : 0);
  add_rows(p->observers.profile, &t);
  text_add(&t, "]}\n");
  pthread_mutex_unlock(&p->lock);
  *out = t.bytes;
  return t.bytes
             ? SVM_OK
             : status_fail(error ? error : &unasked, SVM_ERROR_MEMORY, "memory: there is none for a profile");
}

void svm_text_free(char *string) { free(string); }
