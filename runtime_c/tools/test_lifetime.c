/* A program is replaced and closed all the time while threads call it, some calls of which fail, scrape and
 * record it. For -DSVM_SANITIZE=thread and address.
 *
 *   test_lifetime CHAIN.svm N_LAUNCHES N_CLOSES
 *
 * CHAIN.svm: as of test_threads. Exit 0: every call that was made gave the right results, failed by its own
 * fault, or found the program closed. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "svm.h"

enum { N_CALLERS = 8, N_READERS = 2, MAX_N = 40 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static svm_program *current;
static int n_launches;
static _Atomic int is_over, n_wrong, n_right, n_closed, n_failed;

static svm_program *take(void) {
  pthread_mutex_lock(&lock);
  svm_program *p = svm_retain(current);
  pthread_mutex_unlock(&lock);
  return p;
}

static void call_once(svm_program *p, int64_t n, int is_failing) {
  float x[MAX_N], z[MAX_N + 1];
  svm_error error;
  svm_value inputs[2] = {{.tag = SVM_TAG_TENSOR}, {.tag = SVM_TAG_TENSOR}}, output;
  for (int64_t i = 0; i < n; i++) x[i] = (float)i, z[i] = (float)(n % 7);
  inputs[0].tensor = (svm_tensor){.data = x, .dtype = SVM_DTYPE_F32, .rank = 1, .sizes = {n}};
  inputs[1].tensor = (svm_tensor){.data = z, .dtype = SVM_DTYPE_F32, .rank = 1, .sizes = {n + is_failing}};
  int32_t code = svm_call(p, 0, inputs, 2, NULL, &output, 1, &error);
  if (code == SVM_ERROR_ARGUMENT && strstr(error.message, "the program is closed")) {
    atomic_fetch_add(&n_closed, 1);
  } else if (code) {
    int is_own = is_failing && code == SVM_ERROR_SHAPE && error.source && strlen(error.source) < 1000;
    atomic_fetch_add(is_own ? &n_failed : &n_wrong, 1);
  } else {
    const float *y = output.tensor.data;
    int is_right = !is_failing && output.tensor.sizes[0] == n;
    for (int64_t i = 0; is_right && i < n; i++) is_right = y[i] == x[i] + (float)n_launches * z[i];
    atomic_fetch_add(is_right ? &n_right : &n_wrong, 1);
  }
  svm_value_release(&output);
}

static void *run_calls(void *argument) {
  uint64_t state = (uint64_t)(uintptr_t)argument + 1;
  while (!atomic_load(&is_over)) {
    svm_program *p = take();
    for (int i = 0; i < 8; i++) {
      state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
      call_once(p, 1 + (int64_t)(state >> 33) % MAX_N, (state >> 20) % 4 == 0);
    }
    svm_release(p);
  }
  return NULL;
}

static void read_all(svm_program *p) {
  char *text;
  svm_stats stats;
  svm_site_stats site;
  svm_record(p, 1, NULL);
  svm_time_calls(p, 1);
  if (!svm_metrics(p, "m", &text, NULL)) svm_text_free(text);
  if (!svm_profile(p, &text, NULL)) svm_text_free(text);
  svm_get_stats(p, &stats);
  svm_get_site(p, 0, &site);
  svm_record(p, 0, NULL);
  if (!svm_timeline(p, 1, NULL) && !svm_timeline_text(p, &text, NULL)) svm_text_free(text);
  if (svm_n_inputs(p) != 2 || strcmp(svm_input(p, 0)->name, "x")) atomic_fetch_add(&n_wrong, 1);
}

static void *run_reader(void *argument) {
  while (!atomic_load(&is_over)) {
    svm_program *p = take();
    for (svm_use *use; (use = svm_enter(p, NULL)); svm_leave(use)) {
      read_all(p);
      if (atomic_load(&is_over)) break;
    }
    svm_release(p);
  }
  return argument;
}

static svm_program *open_program(const char *path) {
  svm_error error;
  svm_options options;
  svm_program *p;
  svm_options_init(&options);
  options.strategy = SVM_STRATEGY_GENERIC;
  if (!svm_open_path(path, &options, &p, &error)) return p;
  fprintf(stderr, "test_lifetime: %s\n", error.message);
  exit(1);
}

int main(int n_args, char **args) {
  if (n_args != 4) return fprintf(stderr, "usage: test_lifetime CHAIN.svm N_LAUNCHES N_CLOSES\n"), 2;
  pthread_t threads[N_CALLERS + N_READERS];
  n_launches = atoi(args[2]);
  current = open_program(args[1]);
  for (int i = 0; i < N_CALLERS + N_READERS; i++)
    pthread_create(&threads[i], NULL, i < N_CALLERS ? run_calls : run_reader, (void *)(uintptr_t)i);
  for (int i = 0; i < atoi(args[3]); i++) {
    svm_program *made = open_program(args[1]), *old;
    pthread_mutex_lock(&lock);
    old = current, current = made;
    pthread_mutex_unlock(&lock);
    svm_close(old);
  }
  while (!atomic_load(&n_right) || !atomic_load(&n_failed)) call_once(current, 3, atomic_load(&n_right) > 0);
  atomic_store(&is_over, 1);
  for (int i = 0; i < N_CALLERS + N_READERS; i++) pthread_join(threads[i], NULL);
  svm_close(current);
  fprintf(stderr, "%d right, %d failed, %d closed, %d wrong\n", n_right, n_failed, n_closed, n_wrong);
  return n_wrong != 0;
}
