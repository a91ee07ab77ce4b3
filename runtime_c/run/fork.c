/* fork: only the forking thread lives on in the child, and what others held or waited for stays so there. All
 * locks are taken before, so that nothing is half done, and made anew in the child. Whoever compiled is gone:
 * what it was at is queued again, for the host to answer from a thread of the child. */
#include "base/timeline.h"
#include "run/run.h"

static struct {
  pthread_mutex_t lock;
  svm_program *first;
  int is_registered;
} open_programs = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void before(void) {
  pthread_mutex_lock(&open_programs.lock);
  for (svm_program *p = open_programs.first; p; p = p->next_open) pthread_mutex_lock(&p->lock);
  mapping_lock();
}

static void after_in_parent(void) {
  mapping_unlock();
  for (svm_program *p = open_programs.first; p; p = p->next_open) pthread_mutex_unlock(&p->lock);
  pthread_mutex_unlock(&open_programs.lock);
}

static void after_in_child(void) {
  mapping_unlock();
  timeline_forget_thread();
  for (svm_program *p = open_programs.first; p; p = p->next_open) {
    program_init_lock(p);
    contexts_forget(p);
    queue_restore(p);
    weights_restart(p);
  }
  pthread_mutex_init(&open_programs.lock, NULL);
}

void program_enlist(svm_program *p) {
  pthread_mutex_lock(&open_programs.lock);
  if (!open_programs.is_registered)
    open_programs.is_registered = !pthread_atfork(before, after_in_parent, after_in_child);
  p->next_open = open_programs.first;
  open_programs.first = p;
  pthread_mutex_unlock(&open_programs.lock);
}

void program_delist(svm_program *p) {
  pthread_mutex_lock(&open_programs.lock);
  svm_program **link = &open_programs.first;
  while (*link && *link != p) link = &(*link)->next_open;
  if (*link) *link = p->next_open;
  pthread_mutex_unlock(&open_programs.lock);
}
