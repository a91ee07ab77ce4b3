/* How the pool shares out the tiles of a launch, with a kernel that notes its blocks and whose workers are
 * slow.
 *
 *   test_sharing N_TILES N_THREADS [N_CALLS]
 *
 * N_CALLS: threads that are in calls, this one included; then there is no second launch. A worker holds its
 * block until all tiles are taken. Prints the blocks in the order in which they were taken, "BEGIN END
 * is-the-caller's", then "cpu MS", the processor time that the caller took for a second launch in which it
 * waited WAIT_MS for a worker. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/threads.h"

enum { MAX_BLOCKS = 4096, WAIT_MS = 200, PAUSE_MS = 300 };

static struct {
  int64_t begin, end;
  int is_caller;
} blocks[MAX_BLOCKS];
static _Atomic int n_blocks, is_worker_in;
static _Atomic int64_t n_taken;
static int64_t n_tiles;
static pthread_t caller;

static void sleep_ms(int ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL); }

static void note(void *const *buffers, const int64_t *dims, svm_rt *rt, int64_t begin, int64_t end) {
  (void)buffers, (void)dims, (void)rt;
  int i = atomic_fetch_add(&n_blocks, 1);
  if (i >= MAX_BLOCKS) abort();
  blocks[i].begin = begin, blocks[i].end = end;
  blocks[i].is_caller = pthread_equal(pthread_self(), caller);
  atomic_fetch_add(&n_taken, end - begin);
  sleep_ms(1);
  while (!blocks[i].is_caller && atomic_load(&n_taken) < n_tiles) sleep_ms(1);
}

/* The caller's block ends as soon as a worker has one, which takes long. */
static void wait(void *const *buffers, const int64_t *dims, svm_rt *rt, int64_t begin, int64_t end) {
  (void)buffers, (void)dims, (void)rt, (void)begin, (void)end;
  if (!pthread_equal(pthread_self(), caller)) atomic_store(&is_worker_in, 1), sleep_ms(WAIT_MS);
  while (!atomic_load(&is_worker_in)) sleep_ms(1);
}

static void *stay_in_call(void *has_entered) {
  threads_enter_call();
  atomic_store((atomic_int *)has_entered, 1);
  pause();
  return NULL;
}

static void enter_call_elsewhere(void) {
  pthread_t thread;
  atomic_int has_entered = 0;
  if (pthread_create(&thread, NULL, stay_in_call, &has_entered)) abort();
  while (!atomic_load(&has_entered)) sleep_ms(1);
}

static double cpu_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
  svm_rt rt = {0};
  if (argc < 3 || argc > 4 || svm_set_threads(atoi(argv[2]), NULL)) return 2;
  threads_enter_call();
  for (int i = 1; argc > 3 && i < atoi(argv[3]); i++) enter_call_elsewhere();
  caller = pthread_self();
  n_tiles = atoll(argv[1]);
  threads_run(note, NULL, NULL, &rt, n_tiles, INT64_MAX, 0);
  int n = atomic_load(&n_blocks);
  for (int i = 0; i < n; i++)
    printf("%" PRId64 " %" PRId64 " %d\n", blocks[i].begin, blocks[i].end, blocks[i].is_caller);
  sleep_ms(PAUSE_MS); /* after such a launch the next ones run alone for a while */
  double begin = cpu_ms();
  if (argc == 3) threads_run(wait, NULL, NULL, &rt, 2, INT64_MAX, 0);
  printf("cpu %.3f\n", cpu_ms() - begin);
  rt_free(&rt);
  return 0;
}
