/* Hashes of WEIGHTS, chunk by chunk: any number of threads take chunks from a counter. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* SCHED_IDLE */
#endif
#include "program/weights.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/status.h"
#include "base/threads.h"

enum { STATE_SOUND, STATE_WAITING, STATE_CHECKING, STATE_DAMAGED }; /* WAITING: for a thread */
enum { BEGIN_MS = 100 };

static uint64_t n_chunks(const svm_program *p) { return image_n_chunks(&p->image, SVM_SECTION_WEIGHTS); }

/* The first tensor in the chunk and the number of the others that lie in it. */
static const char *find_tensor(const svm_program *p, uint64_t chunk, int64_t *n_others) {
  const section *s = &p->image.sections[SVM_SECTION_CONSTANTS];
  uint64_t begin = chunk * SVM_FILE_CHUNK, end = begin + SVM_FILE_CHUNK;
  const uint8_t *at = s->data;
  const char *name = NULL;
  *n_others = -1;
  for (int32_t i = 0; i < p->n_constants; i++) {
    const svm_file_constant *row = (const svm_file_constant *)at;
    int is_inside =
        row->tag == SVM_TAG_TENSOR && row->size && row->offset < end && row->offset + row->size > begin;
    if (is_inside && !name) name = p->strings[row->name];
    *n_others += is_inside;
    at += sizeof *row + row->rank * sizeof(int64_t);
  }
  return name;
}

static void describe(const svm_program *p, uint64_t chunk, svm_error *error) {
  int64_t n_others;
  char others[64] = "";
  const char *name = find_tensor(p, chunk, &n_others);
  if (n_others > 0) snprintf(others, sizeof others, ", or one of %" PRId64 " others there,", n_others);
  status_fail(error, SVM_ERROR_ARTIFACT,
              "%.500s: MiB %" PRIu64
              " of the weights does not match its hash: constant \"%.200s\"%s was changed; "
              "copy the file again",
              p->image.path, chunk, name ? name : "", others);
}

static void report(svm_program *p, uint64_t chunk) {
  weights_check *w = &p->weights;
  svm_error damage;
  describe(p, chunk, &damage);
  pthread_mutex_lock(&p->lock);
  int is_first = atomic_load(&w->state) != STATE_DAMAGED;
  if (is_first) {
    w->damage = damage;
    atomic_store(&w->state, STATE_DAMAGED);
    pthread_cond_broadcast(&p->changed);
  }
  pthread_mutex_unlock(&p->lock);
  if (is_first && p->options.damaged && !atomic_load(&w->is_stopped))
    p->options.damaged(p->options.damaged_context, damage.message);
}

static void check_chunks(svm_program *p) {
  weights_check *w = &p->weights;
  uint64_t n = n_chunks(p);
  void *room = mmap(NULL, SVM_FILE_CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  room = room == MAP_FAILED ? NULL : room; /* then the mapping of the file is read */
  int was_blocked = mapping_arm(&p->image.weights);
  while (!atomic_load(&w->is_stopped)) {
    uint64_t i = atomic_fetch_add(&w->next, 1);
    if (i >= n) break;
    if (!image_is_chunk_sound(&p->image, SVM_SECTION_WEIGHTS, i, room)) report(p, i);
    if (atomic_fetch_add(&w->n_done, 1) + 1 < n) continue;
    pthread_mutex_lock(&p->lock);
    int32_t checking = STATE_CHECKING;
    atomic_compare_exchange_strong(&w->state, &checking, STATE_SOUND);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
  }
  mapping_disarm(was_blocked);
  if (room) munmap(room, SVM_FILE_CHUNK);
}

/* Leave the machine to the load and to the first call, which most often ends within this time. */
static void wait_for_others(svm_program *p) {
  struct timespec begin = threads_deadline(BEGIN_MS);
  pthread_mutex_lock(&p->lock);
  while (!atomic_load(&p->weights.is_stopped))
    if (pthread_cond_timedwait(&p->changed, &p->lock, &begin) == ETIMEDOUT) break;
  pthread_mutex_unlock(&p->lock);
}

static void *run_thread(void *program) {
  pthread_setschedparam(pthread_self(), SCHED_IDLE, &(struct sched_param){0});
  wait_for_others(program);
  check_chunks(program);
  return NULL;
}

/* Under the program's lock: whether there is a thread now. */
static int start_thread(svm_program *p) {
  atomic_store(&p->weights.state, STATE_CHECKING);
  p->weights.has_thread = !threads_start(&p->weights.thread, run_thread, p);
  return p->weights.has_thread;
}

int32_t weights_begin(svm_program *p, svm_error *error) {
  int32_t verify = p->options.verify;
  uint64_t size = p->image.sections[SVM_SECTION_WEIGHTS].size;
  if (verify == SVM_VERIFY_NONE || !size) return SVM_OK;
  if (verify == SVM_VERIFY_AUTO)
    verify = size <= SVM_DEFAULT_VERIFY_BYTES ? SVM_VERIFY_FULL : SVM_VERIFY_LAZY;
  atomic_store(&p->weights.state, verify == SVM_VERIFY_FULL ? STATE_CHECKING : STATE_WAITING);
  return verify == SVM_VERIFY_FULL ? weights_finish(p, error) : weights_status(p, error);
}

static int32_t status_slow(svm_program *p, svm_error *error) {
  int32_t code = SVM_OK;
  int has_thread = 1;
  pthread_mutex_lock(&p->lock);
  int32_t state = atomic_load(&p->weights.state);
  if (state == STATE_WAITING) has_thread = start_thread(p);
  else if (state == STATE_DAMAGED) *error = p->weights.damage, code = error->code;
  pthread_mutex_unlock(&p->lock);
  return has_thread ? code : weights_finish(p, error); /* no thread was started: this one checks all */
}

int32_t weights_status(svm_program *p, svm_error *error) {
  int32_t state = atomic_load_explicit(&p->weights.state, memory_order_acquire);
  return state == STATE_SOUND || state == STATE_CHECKING ? SVM_OK : status_slow(p, error);
}

int32_t weights_finish(svm_program *p, svm_error *error) {
  weights_check *w = &p->weights;
  int32_t waiting = STATE_WAITING;
  atomic_compare_exchange_strong(&w->state, &waiting, STATE_CHECKING);
  if (atomic_load(&w->state) == STATE_CHECKING) check_chunks(p);
  pthread_mutex_lock(&p->lock);
  while (atomic_load(&w->state) == STATE_CHECKING) pthread_cond_wait(&p->changed, &p->lock);
  pthread_mutex_unlock(&p->lock);
  return weights_status(p, error);
}

void weights_end(svm_program *p) {
  pthread_mutex_lock(&p->lock);
  atomic_store(&p->weights.is_stopped, 1);
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
  if (p->weights.has_thread) pthread_join(p->weights.thread, NULL);
  p->weights.has_thread = 0;
}

void weights_restart(svm_program *p) {
  weights_check *w = &p->weights;
  w->has_thread = 0;
  if (atomic_load(&w->state) != STATE_CHECKING) return;
  atomic_store(&w->next, 0);
  atomic_store(&w->n_done, 0);
  atomic_store(&w->state, STATE_WAITING);
}
