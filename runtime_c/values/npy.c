/* The .npy format: numpy.org, "NEP 1" and numpy.lib.format. */
#include "values/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/outfile.h"
#include "base/status.h"
#include "values/value.h"

/* bf16 has no numpy name: it travels as uint16. */
static const struct {
  const char *descr;
  int32_t dtype;
} DESCRS[] = {{"|b1", SVM_DTYPE_BOOL}, {"|u1", SVM_DTYPE_U8},   {"|i1", SVM_DTYPE_I8},
              {"<i2", SVM_DTYPE_I16},  {"<i4", SVM_DTYPE_I32},  {"<i8", SVM_DTYPE_I64},
              {"<f2", SVM_DTYPE_F16},  {"<u2", SVM_DTYPE_BF16}, {"<f4", SVM_DTYPE_F32},
              {"<f8", SVM_DTYPE_F64}};

enum { N_DESCRS = sizeof DESCRS / sizeof *DESCRS };

static const char MAGIC[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

/* Reading -------------------------------------------------------------------------------------- */

static int32_t broken(const char *what, const char *why, svm_error *error) {
  return status_fail(error, SVM_ERROR_FILE,
                     "%.500s: this is no array that can be read: %s; write it with numpy.save", what, why);
}

/* The text after 'key': in the header's dict. */
static const char *find_key(const char *header, const char *key) {
  const char *found = strstr(header, key);
  found = found ? strchr(found + strlen(key), ':') : NULL;
  return found ? found + 1 + strspn(found + 1, " ") : NULL;
}

static int32_t parse_dtype(const char *what, const char *text, int32_t *out, svm_error *error) {
  char descr[32] = "";
  if (!text || sscanf(text, "'%31[^']'", descr) != 1)
    return broken(what, "its dtype is a structure or missing", error);
  for (int i = 0; i < N_DESCRS; i++) {
    if (!strcmp(DESCRS[i].descr, descr)) return *out = DESCRS[i].dtype, SVM_OK;
  }
  return status_fail(error, SVM_ERROR_DTYPE,
                     "%.500s: numpy dtype \"%s\" is not supported; convert it with astype", what, descr);
}

static int32_t parse_shape(const char *what, const char *text, svm_tensor *out, svm_error *error) {
  if (!text || *text++ != '(') return broken(what, "its shape is missing", error);
  for (out->rank = 0;;) {
    text += strspn(text, " ,");
    if (*text == ')') return SVM_OK;
    char *end;
    errno = 0;
    long long size = strtoll(text, &end, 10);
    if (end == text || errno || size < 0) return broken(what, "a size is no number", error);
    if (out->rank == SVM_MAX_RANK) return broken(what, "it has over 16 axes", error);
    out->sizes[out->rank++] = size;
    text = end;
  }
}

static int32_t parse_header(const char *what, const char *header, npy_array *out, svm_error *error) {
  const char *order = find_key(header, "'fortran_order'");
  if (parse_dtype(what, find_key(header, "'descr'"), &out->tensor.dtype, error)) return error->code;
  if (parse_shape(what, find_key(header, "'shape'"), &out->tensor, error)) return error->code;
  if (!order) return broken(what, "fortran_order is missing", error);
  if (!strncmp(order, "False", 5)) return SVM_OK;
  int64_t stride = 1;
  for (int32_t i = 0; i < out->tensor.rank; i++) {
    out->strides[i] = stride;
    if (__builtin_mul_overflow(stride, out->tensor.sizes[i], &stride))
      return broken(what, "its sizes are too large", error);
  }
  out->tensor.strides = out->strides;
  return SVM_OK;
}

int32_t npy_parse(const char *what, const uint8_t *bytes, size_t size, npy_array *out, svm_error *error) {
  if (size < 12 || memcmp(bytes, MAGIC, sizeof MAGIC) || bytes[6] < 1 || bytes[6] > 3)
    return broken(what, "its first bytes are not those of numpy", error);
  size_t length = bytes[8] | (size_t)bytes[9] << 8, begin = 10;
  if (bytes[6] > 1) length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24, begin = 12;
  if (length > size - begin || length > 65536) return broken(what, "its header is cut", error);
  char *header = strndup((const char *)bytes + begin, length);
  if (!header) return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for reading %.500s", what);
  int32_t code = parse_header(what, header, out, error);
  free(header);
  if (code) return code;
  int64_t n_bytes = checked_bytes(out->tensor.dtype, checked_elements(out->tensor.rank, out->tensor.sizes));
  if (n_bytes < 0 || (size_t)n_bytes != size - begin - length)
    return broken(what, "its shape does not fit its number of bytes", error);
  out->memory = out->tensor.data = aligned_alloc(64, ((size_t)n_bytes + 64) / 64 * 64);
  if (!out->memory)
    return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for %" PRId64 " bytes of %.500s",
                       n_bytes, what);
  memcpy(out->memory, bytes + begin + length, (size_t)n_bytes);
  return SVM_OK;
}

/* 0, or an errno. */
static int read_all(int file, uint8_t *bytes, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t n = read(file, bytes + done, size - done);
    if (n < 0 && errno != EINTR) return errno;
    if (n == 0) return EIO; /* it has become shorter */
    done += n > 0 ? (size_t)n : 0;
  }
  return 0;
}

static int32_t fail_file(const char *path, int number, svm_error *error) {
  return status_fail(error, SVM_ERROR_FILE, "%.500s: cannot read it: %s", path, strerror(number));
}

/* A regular file's bytes; *out NULL on an error. A FIFO is not waited for. */
static int32_t read_open(int file, const char *path, int64_t max_bytes, uint8_t **out, size_t *size,
                         svm_error *error) {
  struct stat about;
  if (fstat(file, &about)) return fail_file(path, errno, error);
  if (!S_ISREG(about.st_mode))
    return status_fail(error, SVM_ERROR_FILE, "%.500s: cannot read it: it is no regular file", path);
  if (max_bytes && about.st_size > max_bytes)
    return status_fail(error, SVM_ERROR_LIMIT,
                       "%.500s: its %lld bytes are over the %lld that are left of the memory limit; raise it",
                       path, (long long)about.st_size, (long long)max_bytes);
  *size = (size_t)about.st_size;
  *out = malloc(*size + 1);
  if (!*out) return fail_file(path, ENOMEM, error);
  int number = read_all(file, *out, *size);
  if (!number) return SVM_OK;
  free(*out);
  *out = NULL;
  return fail_file(path, number, error);
}

uint8_t *npy_read_file(const char *path, int64_t max_bytes, size_t *size, svm_error *error) {
  uint8_t *bytes = NULL;
  int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return fail_file(path, errno, error), NULL;
  read_open(file, path, max_bytes, &bytes, size, error);
  close(file);
  return bytes;
}

void npy_free(npy_array *arrays, int32_t n) {
  for (int32_t i = 0; i < n; i++) free(arrays[i].memory);
  free(arrays);
}

/* Writing -------------------------------------------------------------------------------------- */

int64_t npy_code_points(const char *text, int64_t length, uint32_t *out) {
  const uint8_t *s = (const uint8_t *)text;
  int64_t n = 0;
  for (int64_t i = 0; i < length; n++) {
    int n_more = s[i] < 0x80 ? 0 : s[i] >= 0xF0 ? 3 : s[i] >= 0xE0 ? 2 : 1;
    uint32_t point = n_more == 0 ? s[i] : s[i] & (0x3Fu >> n_more);
    int is_whole = (s[i] < 0x80 || s[i] >= 0xC2) && s[i] < 0xF5 && i + n_more < length;
    for (int k = 1; is_whole && k <= n_more; k++) {
      is_whole = (s[i + k] & 0xC0) == 0x80;
      point = point << 6 | (s[i + k] & 0x3Fu);
    }
    out[n] = is_whole ? point : 0xFFFD;
    i += is_whole ? 1 + n_more : 1;
  }
  return n;
}

size_t npy_data_bytes(const svm_tensor *t) {
  if (t->dtype == NPY_TEXT) return 4 * (size_t)t->sizes[0];
  return (size_t)checked_bytes(t->dtype, checked_elements(t->rank, t->sizes));
}

size_t npy_header(const svm_tensor *t, char header[MAX_NPY_HEADER]) {
  char of_text[32];
  const char *descr = "";
  if (t->dtype == NPY_TEXT) snprintf(of_text, sizeof of_text, "<U%" PRId64, t->sizes[0]), descr = of_text;
  for (int i = 0; i < N_DESCRS; i++) {
    if (DESCRS[i].dtype == t->dtype) descr = DESCRS[i].descr;
  }
  char *text = header + 10;
  int n = sprintf(text, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
  for (int32_t i = 0; i < t->rank; i++)
    n += sprintf(text + n, "%" PRId64 "%s", t->sizes[i], t->rank == 1 ? "," : i + 1 < t->rank ? ", " : "");
  n += sprintf(text + n, "), }");
  while ((n + 11) % 64) text[n++] = ' ';
  text[n++] = '\n';
  memcpy(header, MAGIC, sizeof MAGIC);
  header[6] = 1, header[7] = 0, header[8] = (char)(n & 255), header[9] = (char)(n >> 8);
  return (size_t)n + 10;
}

int32_t npy_write(const char *path, const svm_tensor *t, svm_error *error) {
  char header[MAX_NPY_HEADER];
  size_t n = npy_header(t, header), n_bytes = npy_data_bytes(t);
  outfile out;
  if (outfile_begin(&out, path, error)) return error->code;
  int is_written =
      fwrite(header, 1, n, out.stream) == n && fwrite(t->data, 1, n_bytes, out.stream) == n_bytes;
  return outfile_end(&out, is_written, error);
}
