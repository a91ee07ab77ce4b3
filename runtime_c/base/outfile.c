/* See outfile.h. */
#include "base/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

static int32_t fail(const char *path, int number, svm_error *error) {
  return status_fail(error, SVM_ERROR_FILE, "%.500s: cannot write it: %s", path,
                     strerror(number ? number : EIO));
}

/* Bytes of `path` up to its last slash. */
static size_t folder_bytes(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? (size_t)(slash - path) + 1 : 0;
}

/* A new file in the folder of `path`, its name in *beside; -1 and errno. */
static int create_beside(const char *path, char **beside) {
  static _Atomic int counter;
  enum { NAME_BYTES = 64 };
  size_t n = folder_bytes(path);
  *beside = malloc(n + NAME_BYTES);
  if (!*beside) return errno = ENOMEM, -1;
  memcpy(*beside, path, n);
  for (int tries = 0; tries < 100; tries++) {
    snprintf(*beside + n, NAME_BYTES, ".shapevm-%ld-%d.part", (long)getpid(), atomic_fetch_add(&counter, 1));
    int file = open(*beside, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

int32_t outfile_begin(outfile *out, const char *path, svm_error *error) {
  struct stat status;
  *out = (outfile){.path = path};
  int is_special = !stat(path, &status) && !S_ISREG(status.st_mode);
  int file = is_special ? open(path, O_WRONLY | O_CLOEXEC) : create_beside(path, &out->beside);
  out->stream = file < 0 ? NULL : fdopen(file, "wb");
  if (out->stream) return SVM_OK;
  int number = errno;
  if (file >= 0) {
    close(file);
    if (out->beside) unlink(out->beside);
  }
  free(out->beside);
  return fail(path, number, error);
}

/* Not every file system syncs folders: what it says is not asked for. */
static void sync_folder(char *beside) {
  beside[folder_bytes(beside)] = 0;
  int folder = open(*beside ? beside : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  fsync(folder);
  close(folder);
}

int32_t outfile_end(outfile *out, int is_written, svm_error *error) {
  int number = is_written ? 0 : errno;
  if (is_written && (fflush(out->stream) || (out->beside && fsync(fileno(out->stream)))))
    is_written = 0, number = errno;
  if (fclose(out->stream) && is_written) is_written = 0, number = errno;
  if (is_written && out->beside && rename(out->beside, out->path)) is_written = 0, number = errno;
  if (out->beside && is_written) sync_folder(out->beside);
  else if (out->beside) unlink(out->beside);
  free(out->beside);
  return is_written ? SVM_OK : fail(out->path, number, error);
}
