/* See outfile.h. */
#include "base/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

enum { MAX_LINKS = 40, IN_PLACE = O_WRONLY | O_TRUNC | O_NOCTTY | O_CLOEXEC };

static int32_t fail(const char *path, int number, svm_error *error) {
  return status_fail(error, SVM_ERROR_FILE, "%.500s: cannot write it: %s", path,
                     strerror(number ? number : EIO));
}

/* Bytes of `path` up to its last slash. */
static size_t folder_bytes(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? (size_t)(slash - path) + 1 : 0;
}

/* `name` in the folder of `path`, or `name` itself where it begins at the root; NULL without memory. */
static char *in_folder_of(const char *path, const char *name) {
  size_t n = *name == '/' ? 0 : folder_bytes(path), n_name = strlen(name) + 1;
  char *made = malloc(n + n_name);
  if (!made) return NULL;
  memcpy(made, path, n);
  memcpy(made + n, name, n_name);
  return made;
}

/* The number of an open file of this process, for a path in the system's folder of these; else -1. */
static int number_of(const char *path) {
  char own[PATH_MAX], found[PATH_MAX], *folder = in_folder_of(path, ".");
  int is_own = folder && realpath("/proc/self/fd", own) && realpath(folder, found) && !strcmp(own, found);
  free(folder);
  const char *name = path + folder_bytes(path);
  size_t n = strlen(name);
  return is_own && n && n < 10 && strspn(name, "0123456789") == n ? atoi(name) : -1;
}

/* Follow the links at the end of a path, whose target need not exist: **target is NULL, with errno, if that
 * fails. Returns the number of the open file that it denotes, or -1. */
static int follow(const char *path, char **target) {
  char link[PATH_MAX];
  *target = strdup(path);
  for (int i = 0; *target && i < MAX_LINKS; i++) {
    int number = number_of(*target);
    if (number >= 0) return number;
    ssize_t n = readlink(*target, link, sizeof link - 1);
    if (n < 0) return -1;
    link[n] = 0;
    char *next = in_folder_of(*target, link);
    free(*target);
    *target = next;
  }
  if (*target) errno = ELOOP;
  free(*target);
  *target = NULL;
  return -1;
}

int outfile_descriptor(const char *path) {
  char *target;
  int number = follow(path, &target);
  free(target);
  return number;
}

/* A new file in the folder of `target`, its name in *beside; -1 and errno. */
static int create_beside(const char *target, char **beside) {
  static _Atomic int counter;
  char name[64];
  for (int tries = 0; tries < 100; tries++) {
    snprintf(name, sizeof name, ".shapevm-%ld-%d.part", (long)getpid(), atomic_fetch_add(&counter, 1));
    *beside = in_folder_of(target, name);
    if (!*beside) return errno = ENOMEM, -1;
    int file = open(*beside, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (file >= 0) return file;
    free(*beside);
    *beside = NULL;
    if (errno != EEXIST) return -1;
  }
  return -1;
}

/* Give a file the owner and mode of another; -1 and errno. */
static int make_alike(int file, const struct stat *other) {
  struct stat own;
  if (fstat(file, &own)) return -1;
  int is_owned = own.st_uid == other->st_uid && own.st_gid == other->st_gid;
  if (!is_owned && fchown(file, other->st_uid, other->st_gid)) return -1;
  return fchmod(file, other->st_mode & 07777);
}

/* Open the file to write: the temporary file if it can replace `target`, else `target` itself.
 */
static int open_target(outfile *out) {
  struct stat status;
  int is_there = !stat(out->target, &status);
  if (is_there && !S_ISREG(status.st_mode)) return open(out->target, IN_PLACE);
  int file = create_beside(out->target, &out->beside);
  if (!is_there || (file >= 0 && !make_alike(file, &status))) return file;
  if (file >= 0) {
    close(file);
    unlink(out->beside);
    free(out->beside);
    out->beside = NULL;
  }
  return open(out->target, IN_PLACE);
}

static void forget(outfile *out) {
  if (out->beside) unlink(out->beside);
  free(out->beside);
  free(out->target);
}

int32_t outfile_begin(outfile *out, const char *path, svm_error *error) {
  *out = (outfile){.path = path};
  int number = follow(path, &out->target), file = -1;
  if (out->target) file = number >= 0 ? fcntl(number, F_DUPFD_CLOEXEC, 0) : open_target(out);
  out->stream = file < 0 ? NULL : fdopen(file, "wb");
  if (out->stream) return SVM_OK;
  number = errno;
  if (file >= 0) close(file);
  forget(out);
  return fail(path, number, error);
}

/* Not every file system syncs folders, so the result is ignored. */
static void sync_folder(const char *target) {
  char *name = in_folder_of(target, ".");
  int folder = name ? open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  free(name);
  if (folder < 0) return;
  fsync(folder);
  close(folder);
}

/* Copy the temporary file over the target; 0 and errno if that fails. */
static int copy_over(const outfile *out) {
  char bytes[1 << 14];
  size_t n;
  FILE *from = fopen(out->beside, "rbe");
  int file = from ? open(out->target, IN_PLACE) : -1;
  FILE *to = file < 0 ? NULL : fdopen(file, "wb");
  int is_written = to != NULL;
  while (is_written && (n = fread(bytes, 1, sizeof bytes, from))) is_written = fwrite(bytes, 1, n, to) == n;
  is_written = is_written && !ferror(from) && !fflush(to) && !fsync(file);
  int number = errno;
  if (from) fclose(from);
  if (to) fclose(to);
  else if (file >= 0) close(file);
  errno = number;
  return is_written;
}

/* Rename a whole temporary file to its place, or copy it there: a mounted file cannot be replaced. */
static int put_in_place(outfile *out) {
  if (rename(out->beside, out->target)) return copy_over(out);
  free(out->beside);
  out->beside = NULL;
  sync_folder(out->target);
  return 1;
}

int32_t outfile_end(outfile *out, int is_written, svm_error *error) {
  int number = is_written ? 0 : errno;
  if (is_written && (fflush(out->stream) || (out->beside && fsync(fileno(out->stream)))))
    is_written = 0, number = errno;
  if (fclose(out->stream) && is_written) is_written = 0, number = errno;
  if (is_written && out->beside && !put_in_place(out)) is_written = 0, number = errno;
  forget(out);
  return is_written ? SVM_OK : fail(out->path, number, error);
}
