/* Preloaded into a program: lets its n-th call of one function fail.
 *
 *   FAIL_CALL=malloc FAIL_AT=17 FAIL_REPORT=count.txt LD_PRELOAD=failures.so program ...
 *
 * FAIL_CALL: malloc (aligned_alloc and strdup too), calloc, realloc, mmap, pthread_create, write (fwrite, fputs,
 * fclose too), fsync, rename. FAIL_AT counts from 1, 0: none fails. FAIL_REPORT gets the number of calls at the
 * program's end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static const char *call = ""; /* "" until the program begins */
static long fail_at;
static _Atomic long count;

__attribute__((constructor)) static void begin(void) {
  const char *at = getenv("FAIL_AT"), *name = getenv("FAIL_CALL");
  fail_at = at ? atol(at) : 0;
  call = name ? name : "";
}

__attribute__((destructor)) static void end(void) {
  char text[32];
  const char *path = getenv("FAIL_REPORT");
  int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
  if (file < 0) return;
  int n = snprintf(text, sizeof text, "%ld", atomic_load(&count));
  syscall(SYS_write, file, text, (size_t)n);
  syscall(SYS_close, file);
}

static int fails(const char *name, int number) {
  if (strcmp(call, name)) return 0;
  if (atomic_fetch_add(&count, 1) + 1 != fail_at) return 0;
  errno = number;
  return 1;
}

void *malloc(size_t size) { return fails("malloc", ENOMEM) ? NULL : __libc_malloc(size); }

void *aligned_alloc(size_t alignment, size_t size) {
  return fails("malloc", ENOMEM) ? NULL : __libc_memalign(alignment, size);
}

void *calloc(size_t n, size_t size) { return fails("calloc", ENOMEM) ? NULL : __libc_calloc(n, size); }

void *realloc(void *old, size_t size) { return fails("realloc", ENOMEM) ? NULL : __libc_realloc(old, size); }

void *mmap(void *at, size_t size, int access, int flags, int file, off_t offset) {
  if (fails("mmap", ENOMEM)) return MAP_FAILED;
  return (void *)syscall(SYS_mmap, at, size, access, flags, file, offset);
}

ssize_t write(int file, const void *bytes, size_t n) {
  return fails("write", ENOSPC) ? -1 : syscall(SYS_write, file, bytes, n);
}

int fsync(int file) { return fails("fsync", EIO) ? -1 : (int)syscall(SYS_fsync, file); }

int rename(const char *from, const char *to) {
  return fails("rename", EACCES) ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *argument) {
  int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
      dlsym(RTLD_NEXT, "pthread_create");
  return fails("pthread_create", EAGAIN) ? EAGAIN : real(thread, attributes, run, argument);
}

static int is_own(FILE *file) { return file != stdout && file != stderr; }

size_t fwrite(const void *bytes, size_t size, size_t n, FILE *file) {
  size_t (*real)(const void *, size_t, size_t, FILE *) = dlsym(RTLD_NEXT, "fwrite");
  return is_own(file) && fails("write", ENOSPC) ? 0 : real(bytes, size, n, file);
}

int fputs(const char *text, FILE *file) {
  int (*real)(const char *, FILE *) = dlsym(RTLD_NEXT, "fputs");
  return is_own(file) && fails("write", ENOSPC) ? EOF : real(text, file);
}

int fclose(FILE *file) {
  int (*real)(FILE *) = dlsym(RTLD_NEXT, "fclose");
  int is_failing = is_own(file) && fails("write", ENOSPC);
  int code = real(file);
  if (is_failing) errno = ENOSPC;
  return is_failing ? EOF : code;
}
