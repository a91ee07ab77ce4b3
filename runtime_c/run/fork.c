/* fork: only the forking thread exists in the child, and locks held by others would stay locked there. So all
 * locks are taken before the fork, when no operation is in progress, and renewed in the child. The compiling
 * thread is gone: its jobs are queued again, to be answered by a thread of the child. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include "run/fork.h"

#include <dlfcn.h>

#include "base/timeline.h"
#include "run/compile_queue.h"

static struct {
  pthread_mutex_t lock;
  svm_program *first;
  void (*restart)(svm_program *p);
  int is_registered;
} open_programs = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum { MAX_RESTS = 4000 };
static int32_t (*_Atomic rest_before_forks)(void);

void svm_rest_before_forks(int32_t (*rest)(void)) { atomic_store(&rest_before_forks, rest); }

/* Pause all compilers, and say whether all wait: they are not to hold locks of the host, like Python's. */
static int pause_compilers(void) {
  int are_all = 1;
  for (svm_program *p = open_programs.first; p; p = p->life.next_open) are_all &= queue_pause(p, 1);
  return are_all;
}

static void lock_all(void) {
  pthread_mutex_lock(&open_programs.lock);
  for (svm_program *p = open_programs.first; p; p = p->life.next_open) pthread_mutex_lock(&p->lock);
}

static void unlock_all(void) {
  for (svm_program *p = open_programs.first; p; p = p->life.next_open) pthread_mutex_unlock(&p->lock);
  pthread_mutex_unlock(&open_programs.lock);
}

static void before(void) {
  int32_t (*rest)(void) = atomic_load(&rest_before_forks);
  lock_all();
  for (int32_t n_rests = 0; rest && n_rests < MAX_RESTS && !pause_compilers(); n_rests++) {
    unlock_all();
    if (!rest()) rest = NULL;
    lock_all();
  }
  image_lock();
  mapping_lock();
}

static void after_in_parent(void) {
  mapping_unlock();
  image_unlock();
  for (svm_program *p = open_programs.first; p; p = p->life.next_open) queue_pause(p, 0);
  unlock_all();
}

static void after_in_child(void) {
  mapping_unlock();
  image_unlock();
  timeline_forget_thread();
  threads_forget_calls();
  for (svm_program *p = open_programs.first; p; p = p->life.next_open) open_programs.restart(p);
  pthread_mutex_init(&open_programs.lock, NULL);
}

/* Threads, the handler of a signal and those of forks outlive programs: the shared library that has this code
 * stays when the host unloads it. Code of an executable stays anyway. */
static void stay_loaded(void) {
#if defined(__PIC__) && !defined(__PIE__)
  Dl_info own;
  if (dladdr(&open_programs, &own) && own.dli_fname)
    dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
#endif
}

void program_enlist(svm_program *p, void (*restart)(svm_program *p)) {
  pthread_mutex_lock(&open_programs.lock);
  if (!open_programs.is_registered) {
    stay_loaded();
    open_programs.restart = restart;
    open_programs.is_registered = !pthread_atfork(before, after_in_parent, after_in_child);
  }
  p->life.next_open = open_programs.first;
  open_programs.first = p;
  pthread_mutex_unlock(&open_programs.lock);
}

void program_delist(svm_program *p) {
  pthread_mutex_lock(&open_programs.lock);
  svm_program **link = &open_programs.first;
  while (*link && *link != p) link = &(*link)->life.next_open;
  if (*link) *link = p->life.next_open;
  pthread_mutex_unlock(&open_programs.lock);
}
