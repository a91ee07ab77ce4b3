/* Reading and mapping files, and the SIGBUS handler that outlives a mapped file which is cut short. */
#include "base/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

int32_t mapping_fail(const char *path, const char *what, svm_error *error) {
  int32_t code = errno == ENOMEM ? SVM_ERROR_MEMORY : SVM_ERROR_FILE;
  return status_fail(error, code, "%.500s: %s: %s", path, what, strerror(errno));
}

int mapping_read(int file, void *to, size_t size, size_t offset) {
  for (size_t done = 0; done < size;) {
    ssize_t n = pread(file, (char *)to + done, size - done, (off_t)(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return errno = n ? errno : EIO, -1;
    done += (size_t)n;
  }
  return 0;
}

/* Guards --------------------------------------------------------------------------------------- */

/* A range of addresses whose pages a file backs. The handler walks the list without a lock: guards are never
 * freed, one that is free (size 0) is used again. */
typedef struct guard {
  struct guard *next;
  _Atomic uintptr_t begin, size;
  _Atomic int is_lost; /* a page could not be read */
} guard;

/* A handler that was there when ours was installed: one record for each, which is never freed. */
typedef struct other_handler {
  struct other_handler *next;
  struct sigaction action;
} other_handler;

static struct {
  pthread_mutex_t lock;
  _Atomic(guard *) first;
  _Atomic(other_handler *) previous; /* where a signal goes that is not for a guard */
  other_handler *others;
  size_t page;
} guards = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* This thread is in a handler that ours has called. */
static _Thread_local volatile int is_passed_on __attribute__((tls_model("initial-exec")));

void mapping_lock(void) { pthread_mutex_lock(&guards.lock); }
void mapping_unlock(void) { pthread_mutex_unlock(&guards.lock); }

static guard *find_guard(uintptr_t address) {
  for (guard *g = atomic_load(&guards.first); g; g = g->next) {
    uintptr_t begin = atomic_load(&g->begin);
    if (address >= begin && address - begin < atomic_load(&g->size)) return g;
  }
  return NULL;
}

/* From the page that cannot be read to the mapping's end there are zeros from now on, so that the call ends;
 * its results are refused (mapping_state). */
static int fill_with_zeros(guard *g, uintptr_t address) {
  uintptr_t page = address & ~(uintptr_t)(guards.page - 1);
  size_t size = atomic_load(&g->size) - (page - atomic_load(&g->begin));
  atomic_store(&g->is_lost, 1);
  return mmap((void *)page, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
  int saved = errno;
  guard *g = find_guard((uintptr_t)info->si_addr);
  if (g && fill_with_zeros(g, (uintptr_t)info->si_addr)) {
    errno = saved;
    return;
  }
  const struct sigaction *previous = &atomic_load(&guards.previous)->action;
  int is_default = previous->sa_handler == SIG_DFL || previous->sa_handler == SIG_IGN;
  if (is_default || is_passed_on) { /* a handler raises the signal again to pass it to ours */
    signal(number, SIG_DFL);        /* the instruction runs again and ends the process, as it would have */
  } else {
    is_passed_on = 1;
    if (previous->sa_flags & SA_SIGINFO) previous->sa_sigaction(number, info, context);
    else previous->sa_handler(number);
    is_passed_on = 0;
  }
  errno = saved;
}

/* The record of a handler, NULL without memory. */
static other_handler *find_other(const struct sigaction *action) {
  other_handler *o = guards.others;
  while (o && o->action.sa_sigaction != action->sa_sigaction) o = o->next;
  if (o || !(o = calloc(1, sizeof *o))) return o;
  o->action = *action;
  o->next = guards.others;
  return guards.others = o;
}

/* Make sure that ours is the handler: others install theirs at any time. Under the lock. */
static int install_handler(void) {
  struct sigaction now,
      ours = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  sigemptyset(&ours.sa_mask);
  guards.page = (size_t)sysconf(_SC_PAGESIZE);
  if (sigaction(SIGBUS, NULL, &now)) return 0;
  if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_bus_error) return 1;
  other_handler *previous = find_other(&now);
  if (!previous) return 0;
  atomic_store(&guards.previous, previous);
  return !sigaction(SIGBUS, &ours, NULL);
}

int mapping_arm_guarded(void) {
  struct sigaction now;
  sigset_t bus, before;
  if (!sigaction(SIGBUS, NULL, &now) && now.sa_sigaction != on_bus_error) {
    pthread_mutex_lock(&guards.lock);
    install_handler();
    pthread_mutex_unlock(&guards.lock);
  }
  sigemptyset(&bus);
  sigaddset(&bus, SIGBUS);
  return !pthread_sigmask(SIG_UNBLOCK, &bus, &before) && sigismember(&before, SIGBUS);
}

void mapping_block(void) {
  sigset_t bus;
  sigemptyset(&bus);
  sigaddset(&bus, SIGBUS);
  pthread_sigmask(SIG_BLOCK, &bus, NULL);
}

/* NULL: out of memory, or no handler. */
static guard *guard_add(void *data, size_t size) {
  pthread_mutex_lock(&guards.lock);
  guard *g = atomic_load(&guards.first);
  while (g && atomic_load(&g->size)) g = g->next;
  if (!install_handler()) g = NULL;
  else if (!g && (g = calloc(1, sizeof *g))) {
    g->next = atomic_load(&guards.first);
    atomic_store(&guards.first, g);
  }
  if (g) {
    atomic_store(&g->is_lost, 0);
    atomic_store(&g->begin, (uintptr_t)data);
    atomic_store(&g->size, size);
  }
  pthread_mutex_unlock(&guards.lock);
  return g;
}

static void guard_remove(guard *g) {
  pthread_mutex_lock(&guards.lock);
  atomic_store(&g->size, 0);
  pthread_mutex_unlock(&guards.lock);
}

/* Mappings ------------------------------------------------------------------------------------- */

/* Reserved addresses for `size` bytes, which begin `offset` bytes after the start of a huge page. */
static void *reserve(size_t size, size_t offset) {
  size_t room = size + MAPPING_HUGE_PAGE, page = (size_t)sysconf(_SC_PAGESIZE);
  char *data = room > size ? mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                           : MAP_FAILED;
  if (data == MAP_FAILED) return NULL;
  size_t before = (offset - (uintptr_t)data) % MAPPING_HUGE_PAGE;
  if (before) munmap(data, before);
  size_t end = (before + size + page - 1) / page * page;
  if (end < room) munmap(data + end, room - end);
  return data + before;
}

/* mmap, on huge pages where `is_huge` and the system wants it so; it may not: then small pages it is. */
static void *map(size_t size, int is_huge, int protection, int flags, int file, size_t offset) {
  void *place = NULL;
  is_huge = is_huge && size >= MAPPING_HUGE_PAGE;
  if (is_huge && (place = reserve(size, offset))) flags |= MAP_FIXED;
  void *data = mmap(place, size, protection, flags, file, (off_t)offset);
  if (data == MAP_FAILED && place) munmap(place, size);
  if (data != MAP_FAILED && is_huge) madvise(data, size, MADV_HUGEPAGE);
  return data;
}

/* The bytes of memory for a copy of `size`: to the end of the last huge page, if that is at most a quarter
 * more. The rest after the last whole one would be on small pages, which are a fifth slower to read. */
static size_t room_for(size_t size, int is_huge) {
  size_t room = (size + MAPPING_HUGE_PAGE - 1) / MAPPING_HUGE_PAGE * MAPPING_HUGE_PAGE;
  return is_huge && room - size <= size / 4 ? room : size;
}

int32_t mapping_copy(mapping *out, int file, const char *path, size_t size, int is_huge, svm_error *error) {
  *out = (mapping){.file = -1};
  size_t room = room_for(size, is_huge);
  void *data = map(room, is_huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for %zu bytes, a copy of %.500s", size,
                       path);
  out->data = data;
  out->size = room;
  if (mapping_read(file, data, size, 0) || mprotect(data, room, PROT_READ)) {
    int32_t code = mapping_fail(path, "reading failed", error);
    mapping_free(out);
    return code;
  }
  return SVM_OK;
}

static int64_t nanoseconds(const struct timespec *t) {
  return (int64_t)((uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec);
}

static int64_t time_of(const struct stat *status) { return nanoseconds(&status->st_mtim); }

/* Clocks of file systems tick every few milliseconds: a file that was written just now is mapped when a later
 * change will have a later time. */
void mapping_wait_for_clock(int64_t modified) {
  enum { TICK_NS = 10 * 1000 * 1000 };
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  int64_t age = nanoseconds(&now) - modified;
  if (age < 0 || age >= TICK_NS) return;
  nanosleep(&(struct timespec){0, (long)(TICK_NS - age)}, NULL);
}

int32_t mapping_make(mapping *out, int file, const char *path, size_t offset, size_t size, int is_huge,
                     svm_error *error) {
  struct stat status;
  *out = (mapping){.file = fcntl(file, F_DUPFD_CLOEXEC, 0)};
  if (out->file < 0 || fstat(out->file, &status)) {
    int32_t code = mapping_fail(path, "stat failed", error);
    mapping_free(out);
    return code;
  }
  mapping_wait_for_clock(time_of(&status));
  out->file_size = (uint64_t)status.st_size;
  atomic_store(&out->modified, time_of(&status));
  void *data = map(size, is_huge, PROT_READ, MAP_PRIVATE, file, offset);
  int is_mapped = data != MAP_FAILED;
  if (is_mapped) out->data = data, out->size = size;
  if (!is_mapped || !(out->guard = guard_add(data, size))) {
    int32_t code = mapping_fail(path, "mapping the weights failed", error);
    mapping_free(out);
    return code;
  }
  madvise(data, size, MADV_WILLNEED); /* starts reading, waits for nothing */
  return SVM_OK;
}

int mapping_state(const mapping *m, int64_t *modified) {
  struct stat now;
  if (!m->guard) return MAPPING_SAME;
  int is_whole =
      !atomic_load(&m->guard->is_lost) && !fstat(m->file, &now) && (uint64_t)now.st_size == m->file_size;
  if (!is_whole) return MAPPING_CHANGED;
  *modified = time_of(&now);
  return *modified == atomic_load_explicit(&m->modified, memory_order_relaxed) ? MAPPING_SAME
                                                                               : MAPPING_TOUCHED;
}

int32_t mapping_fail_changed(const char *path, svm_error *error) {
  return status_fail(
      error, SVM_ERROR_FILE,
      "%.500s: the file was changed while its program was loaded, whose weights it holds; load it "
      "again, and replace it by renaming another file over it",
      path);
}

void mapping_free(mapping *m) {
  if (m->guard) guard_remove(m->guard);
  if (m->data) munmap(m->data, m->size);
  if (m->file >= 0) close(m->file);
  *m = (mapping){.file = -1};
}
