/* Stress of what threads share: several callers of one program at many sizes, a compiler that answers
 * requests, limits so small that plans and code are evicted all the time. Every result is checked. For
 * -DSVM_SANITIZE=thread.
 *
 *   test_threads CHAIN.svm N_LAUNCHES CALLERS CALLS_EACH [SECONDS]
 *
 * CHAIN.svm: f32 inputs x[n], z[n], output y = x + N_LAUNCHES * z. SECONDS: calls end then at the latest.
 * Exit 0: all results are right and code was installed. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/sha256.h"
#include "isa.gen.h"
#include "svm.h"

enum { MAX_N = 40, BIG_N = 300000, MAX_CALLERS = 64 };

static svm_program *program;
static int n_launches, n_calls;
static time_t end; /* of the calls, 0: none */
static _Atomic int n_wrong, n_failed_requests;

static int check(int32_t code, const svm_error *error) {
  if (code) fprintf(stderr, "test_threads: %s\n", error->message);
  return code == SVM_OK;
}

/* Calls ---------------------------------------------------------------------------------------- */

static int call_once(float *x, float *z, int64_t n) {
  svm_error error;
  svm_value inputs[2] = {{.tag = SVM_TAG_TENSOR}, {.tag = SVM_TAG_TENSOR}}, output;
  for (int64_t i = 0; i < n; i++) x[i] = (float)(i % 1000), z[i] = (float)(n % 7);
  inputs[0].tensor = (svm_tensor){.data = x, .dtype = SVM_DTYPE_F32, .rank = 1, .sizes = {n}};
  inputs[1].tensor = (svm_tensor){.data = z, .dtype = SVM_DTYPE_F32, .rank = 1, .sizes = {n}};
  if (!check(svm_call(program, 0, inputs, 2, NULL, &output, 1, &error), &error)) return 0;
  const float *y = output.tensor.data;
  int is_right = output.tensor.sizes[0] == n;
  for (int64_t i = 0; is_right && i < n; i++) is_right = y[i] == x[i] + (float)n_launches * z[i];
  svm_value_release(&output);
  return is_right;
}

static void *caller(void *argument) {
  uint64_t state = (uint64_t)(uintptr_t)argument + 1;
  float *x = malloc(BIG_N * sizeof *x), *z = malloc(BIG_N * sizeof *z);
  for (int i = 0; x && z && i < n_calls && (!end || time(NULL) < end); i++) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    int64_t n = i % 64 == 63 ? BIG_N : 1 + (int64_t)(state >> 33) % MAX_N; /* large ones share their tiles */
    if (!call_once(x, z, n)) atomic_fetch_add(&n_wrong, 1);
  }
  free(x);
  free(z);
  return NULL;
}

/* The compiler: the artifact's generic code, recorded as exact --------------------------------- */

typedef struct record {
  uint8_t *bytes;
  size_t size;
} record;

static record generic; /* of kernel 0, with its code behind it */

static int read_generic(const char *path) {
  FILE *file = fopen(path, "rb");
  static svm_file_section rows[SVM_FILE_N_SECTIONS];
  svm_file_object o;
  if (!file || fseek(file, sizeof(svm_file_header), SEEK_SET) || fread(rows, sizeof rows, 1, file) != 1)
    return 0;
  const svm_file_section *objects = &rows[SVM_SECTION_OBJECTS - 1], *blobs = &rows[SVM_SECTION_BLOBS - 1];
  if (fseek(file, (long)objects->offset, SEEK_SET) || fread(&o, sizeof o, 1, file) != 1) return 0;
  generic.size = o.record_size + o.code_size;
  generic.bytes = malloc(generic.size);
  int is_read = generic.bytes && !fseek(file, (long)objects->offset, SEEK_SET) &&
                fread(generic.bytes, o.record_size, 1, file) == 1 &&
                !fseek(file, (long)(blobs->offset + o.code_offset), SEEK_SET) &&
                fread(generic.bytes + o.record_size, o.code_size, 1, file) == 1;
  fclose(file);
  return is_read;
}

static record make_exact(const svm_request *request) {
  size_t dims_size = (size_t)request->n_dims * sizeof(int64_t), head = sizeof(svm_file_object),
         skipped = offsetof(svm_file_object, spec_hash);
  record made = {malloc(generic.size + dims_size), generic.size + dims_size};
  memcpy(made.bytes, generic.bytes, head);
  memcpy(made.bytes + head, request->dims, dims_size);
  memcpy(made.bytes + head + dims_size, generic.bytes + head, generic.size - head);
  svm_file_object *o = (svm_file_object *)made.bytes;
  o->guard = 1;
  o->code_offset = 0;
  o->record_size += (uint32_t)dims_size;
  sha256 hash;
  sha256_init(&hash);
  sha256_update(&hash, made.bytes + skipped, made.size - skipped);
  sha256_final(&hash, o->sha256);
  return made;
}

static void *compiler(void *argument) {
  (void)argument;
  svm_request request;
  svm_error error;
  for (int32_t got; (got = svm_request_wait(program, 100, &request)) >= 0;) {
    if (!got) continue;
    if (request.dims[0] % 10 == 3) { /* some cannot be compiled */
      atomic_fetch_add(&n_failed_requests, 1);
      svm_compile_failed(program, request.kernel, request.dims, request.n_dims, "no luck", &error);
      continue;
    }
    if (request.dims[0] % 10 == 7 && !request.is_awaited) { /* some do not pay, for now or ever */
      svm_decline_request(program, request.kernel, request.dims, request.n_dims,
                          request.dims[0] % 20 == 7 ? 2 * request.runs : 0, &error);
      svm_is_awaited(program, request.kernel, request.dims, request.n_dims);
      svm_hurry(program, request.dims[0] % 20 == 7);
      continue;
    }
    record made = make_exact(&request);
    if (!check(svm_install_code(program, request.kernel, made.bytes, made.size, &error), &error))
      atomic_fetch_add(&n_wrong, 1);
    free(made.bytes);
  }
  return NULL;
}

/* Timelines and latencies come and go while calls run. */
static void look_at_times(int round) {
  svm_error error;
  char *text = NULL;
  svm_time_calls(program, round % 2);
  if (!check(svm_timeline(program, round % 3 != 2, &error), &error)) atomic_fetch_add(&n_wrong, 1);
  if (!check(round % 2 ? svm_timeline_text(program, &text, &error) : svm_metrics(program, "m", &text, &error),
             &error))
    atomic_fetch_add(&n_wrong, 1);
  svm_text_free(text);
}

static void *observer(void *argument) {
  svm_stats stats;
  svm_site_stats site;
  svm_entry_stats entry;
  for (int round = 0; !atomic_load((_Atomic int *)argument); round++) {
    svm_get_stats(program, &stats);
    svm_get_site(program, 0, &site);
    svm_get_entry(program, 0, (int32_t)(stats.calls % 50), &entry);
    if (round % 16 == 0) look_at_times(round / 16);
  }
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 5 && argc != 6)
    return fprintf(stderr, "usage: test_threads CHAIN.svm N_LAUNCHES CALLERS CALLS_EACH [SECONDS]\n"), 2;
  int n_callers = atoi(argv[3]);
  pthread_t callers[MAX_CALLERS], compilers[2], looker;
  _Atomic int is_done = 0;
  svm_options options;
  svm_error error;
  n_launches = atoi(argv[2]), n_calls = atoi(argv[4]);
  end = argc == 6 ? time(NULL) + atoi(argv[5]) : 0;
  svm_options_init(&options);
  options.plans_max = 8;
  options.code_bytes_max = 8 * 4096;
  options.hot_calls = 1;
  if (n_callers > MAX_CALLERS || !read_generic(argv[1]) ||
      !check(svm_open_path(argv[1], &options, &program, &error), &error))
    return 2;
  svm_set_threads(3, NULL);
  svm_attach_compiler(program, 1);
  for (int i = 0; i < 2; i++) pthread_create(&compilers[i], NULL, compiler, NULL);
  for (int i = 0; i < n_callers; i++) pthread_create(&callers[i], NULL, caller, (void *)(uintptr_t)i);
  pthread_create(&looker, NULL, observer, &is_done);
  for (int i = 0; i < n_callers; i++) pthread_join(callers[i], NULL);
  atomic_store(&is_done, 1);
  pthread_join(looker, NULL);
  svm_attach_compiler(program, 0);
  for (int i = 0; i < 2; i++) pthread_join(compilers[i], NULL);
  svm_stats s;
  svm_get_stats(program, &s);
  printf("%lld calls, %d wrong, %lld plans evicted, %lld installed, %lld evicted, %d failed requests\n",
         (long long)s.calls, n_wrong, (long long)s.plans_evicted, (long long)s.code_installed,
         (long long)s.code_evicted, n_failed_requests);
  svm_close(program);
  free(generic.bytes);
  svm_set_threads(1, NULL); /* ends the pool's threads */
  return n_wrong || !s.code_installed;
}
