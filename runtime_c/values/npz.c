/* The .npz format: a ZIP archive of .npy files (PKWARE APPNOTE 6.3, sections 4.3 and 4.5.3), stored, as
 * numpy.savez writes. */
#include "values/npz.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/outfile.h"
#include "base/status.h"

enum { LOCAL_BYTES = 30, CENTRAL_BYTES = 46, END_BYTES = 22, MAX_COMMENT = 65535, ZIP64_ID = 1 };

static uint32_t u16_at(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }
static uint32_t u32_at(const uint8_t *p) { return u16_at(p) | u16_at(p + 2) << 16; }
static uint64_t u64_at(const uint8_t *p) { return u32_at(p) | (uint64_t)u32_at(p + 4) << 32; }

static uint32_t crc32_of(uint32_t crc, const void *data, size_t size) {
  static const uint32_t NIBBLES[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                       0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                       0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
  const uint8_t *bytes = data;
  for (crc = ~crc; size; size--) {
    crc ^= *bytes++;
    crc = crc >> 4 ^ NIBBLES[crc & 15];
    crc = crc >> 4 ^ NIBBLES[crc & 15];
  }
  return ~crc;
}

static int32_t broken(const char *path, const char *why, svm_error *error) {
  return status_fail(error, SVM_ERROR_FILE, "%.500s: this .npz cannot be read: %s; write it with numpy.savez",
                     path, why);
}

/* Reading -------------------------------------------------------------------------------------- */

static const uint8_t *find_end(const uint8_t *bytes, size_t size) {
  for (size_t back = END_BYTES; back <= size && back <= END_BYTES + MAX_COMMENT; back++) {
    if (u32_at(bytes + size - back) == 0x06054b50) return bytes + size - back;
  }
  return NULL;
}

/* One member of the archive by its central record; ZIP64's extra field replaces 0xffffffff. */
typedef struct member {
  const uint8_t *record;
  uint64_t packed, size, offset;
} member;

static void read_zip64(member *m, const uint8_t *extra, size_t n) {
  while (n >= 4 && u16_at(extra + 2) <= n - 4) {
    size_t length = u16_at(extra + 2);
    const uint8_t *at = extra + 4, *end = at + length;
    uint64_t *fields[] = {&m->size, &m->packed, &m->offset};
    for (int i = 0; u16_at(extra) == ZIP64_ID && i < 3; i++) {
      if (*fields[i] == UINT32_MAX && end - at >= 8) *fields[i] = u64_at(at), at += 8;
    }
    extra = end;
    n -= 4 + length;
  }
}

static int32_t parse_member(const char *path, const uint8_t *bytes, size_t size, const member *m,
                            npy_array *out, svm_error *error) {
  uint32_t name_bytes = u16_at(m->record + 28);
  const char *name = (const char *)m->record + CENTRAL_BYTES;
  if (u16_at(m->record + 10) != 0)
    return broken(path, "it is compressed, only stored arrays are supported", error);
  if (m->packed != m->size || size < LOCAL_BYTES || m->offset > size - LOCAL_BYTES)
    return broken(path, "a member is outside of the file", error);
  const uint8_t *local = bytes + m->offset;
  uint64_t begin = m->offset + LOCAL_BYTES + u16_at(local + 26) + u16_at(local + 28);
  if (u32_at(local) != 0x04034b50 || begin > size || m->size > size - begin)
    return broken(path, "a member is outside of the file", error);
  if (crc32_of(0, bytes + begin, m->size) != u32_at(m->record + 16))
    return broken(path, "a checksum does not match", error);
  if (name_bytes < 5 || name_bytes - 4 >= sizeof out->name || memcmp(name + name_bytes - 4, ".npy", 4))
    return broken(path, "a member is no .npy", error);
  memcpy(out->name, name, name_bytes - 4);
  char what[1024];
  snprintf(what, sizeof what, "%.500s: %s", path, out->name);
  return npy_parse(what, bytes + begin, m->size, out, error);
}

int32_t npz_parse(const char *path, const uint8_t *bytes, size_t size, npy_array **out, int32_t *n,
                  svm_error *error) {
  const uint8_t *end = find_end(bytes, size);
  if (!end) return broken(path, "it has no directory", error);
  uint32_t count = u16_at(end + 10);
  uint64_t at = u32_at(end + 16), stop = (uint64_t)(end - bytes);
  *out = calloc(count + 1, sizeof **out);
  if (!*out) return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for reading %.500s", path);
  uint64_t free_bytes = size; /* members do not overlap: together they are no larger than the file */
  for (uint32_t i = 0; i < count; i++) {
    if (at > stop || stop - at < CENTRAL_BYTES || u32_at(bytes + at) != 0x02014b50)
      return broken(path, "its directory is cut", error);
    const uint8_t *r = bytes + at;
    uint64_t names = u16_at(r + 28), extras = u16_at(r + 30), comments = u16_at(r + 32);
    if (names + extras + comments > stop - at - CENTRAL_BYTES)
      return broken(path, "its directory is cut", error);
    member m = {r, u32_at(r + 20), u32_at(r + 24), u32_at(r + 42)};
    read_zip64(&m, r + CENTRAL_BYTES + names, extras);
    if (m.size > free_bytes) return broken(path, "its members overlap", error);
    free_bytes -= m.size;
    (*n)++;
    int32_t code = parse_member(path, bytes, size, &m, &(*out)[i], error);
    if (code) return code;
    at += CENTRAL_BYTES + names + extras + comments;
  }
  return SVM_OK;
}

int32_t npz_read(const char *path, int64_t max_bytes, npy_array **out, int32_t *n, svm_error *error) {
  size_t size;
  uint8_t *bytes = npy_read_file(path, max_bytes, &size, error);
  int32_t code = SVM_OK;
  *out = NULL;
  *n = 0;
  if (!bytes) return error->code;
  if (size >= 4 && !memcmp(bytes, "PK", 2)) {
    code = npz_parse(path, bytes, size, out, n, error);
  } else {
    *out = calloc(1, sizeof **out);
    *n = *out != NULL;
    code = *out ? npy_parse(path, bytes, size, *out, error)
                : status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for reading %.500s", path);
  }
  free(bytes);
  if (!code) return SVM_OK;
  npy_free(*out, *n);
  *out = NULL;
  *n = 0;
  return code;
}

/* Writing -------------------------------------------------------------------------------------- */

static void put(uint8_t **at, uint64_t value, int n_bytes) {
  for (int i = 0; i < n_bytes; i++) *(*at)++ = (uint8_t)(value >> 8 * i);
}

/* The fields that local and central headers share, from "version needed" on. */
static void put_common(uint8_t **at, uint32_t crc, uint64_t size, size_t name_bytes) {
  put(at, 20, 2), put(at, 0x800, 2), put(at, 0, 2); /* version 2.0, UTF-8 names, stored */
  put(at, 0, 2), put(at, 0x21, 2);                  /* 1980-01-01: equal results are equal files */
  put(at, crc, 4), put(at, size, 4), put(at, size, 4);
  put(at, name_bytes, 2), put(at, 0, 2);
}

typedef struct written {
  uint32_t crc;
  uint64_t size, offset;
} written;

static int write_member(FILE *file, const char *name, const svm_tensor *t, uint64_t offset, written *out) {
  char header[MAX_NPY_HEADER];
  uint8_t local[LOCAL_BYTES], *at = local;
  size_t n = npy_header(t, header), n_bytes = npy_data_bytes(t), name_bytes = strlen(name) + 4;
  *out = (written){crc32_of(crc32_of(0, header, n), t->data, n_bytes), n + n_bytes, offset};
  put(&at, 0x04034b50, 4);
  put_common(&at, out->crc, out->size, name_bytes);
  return fwrite(local, 1, LOCAL_BYTES, file) == LOCAL_BYTES &&
         fprintf(file, "%s.npy", name) == (int)name_bytes && fwrite(header, 1, n, file) == n &&
         fwrite(t->data, 1, n_bytes, file) == n_bytes;
}

static int write_directory(FILE *file, const char *const *names, const written *members, int32_t n,
                           uint64_t begin) {
  uint64_t size = 0;
  for (int32_t i = 0; i < n; i++) {
    uint8_t record[CENTRAL_BYTES], *at = record;
    size_t name_bytes = strlen(names[i]) + 4;
    put(&at, 0x02014b50, 4), put(&at, 20, 2);
    put_common(&at, members[i].crc, members[i].size, name_bytes);
    put(&at, 0, 2), put(&at, 0, 2), put(&at, 0, 2), put(&at, 0, 4); /* comment, disk, attributes */
    put(&at, members[i].offset, 4);
    if (fwrite(record, 1, CENTRAL_BYTES, file) != CENTRAL_BYTES ||
        fprintf(file, "%s.npy", names[i]) != (int)name_bytes)
      return 0;
    size += CENTRAL_BYTES + name_bytes;
  }
  uint8_t end[END_BYTES], *at = end;
  put(&at, 0x06054b50, 4), put(&at, 0, 4), put(&at, (uint64_t)n, 2), put(&at, (uint64_t)n, 2),
      put(&at, size, 4), put(&at, begin, 4), put(&at, 0, 2);
  return fwrite(end, 1, END_BYTES, file) == END_BYTES;
}

int32_t npz_write(const char *path, const char *const *names, const svm_tensor *tensors, int32_t n,
                  svm_error *error) {
  uint64_t offset = 0, total = 0;
  for (int32_t i = 0; i < n; i++)
    total += npy_data_bytes(&tensors[i]) + MAX_NPY_HEADER + 2 * strlen(names[i]) + 100;
  if (total > UINT32_MAX || n > 65535)
    return status_fail(error, SVM_ERROR_FILE, "%.500s: the outputs are over 4 GiB; write single ones to .npy",
                       path);
  written *members = calloc((size_t)n + 1, sizeof *members);
  if (!members) return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for writing %.500s", path);
  outfile out;
  int32_t code = outfile_begin(&out, path, error);
  int is_written = !code;
  for (int32_t i = 0; is_written && i < n; i++) {
    is_written = write_member(out.stream, names[i], &tensors[i], offset, &members[i]);
    offset += LOCAL_BYTES + strlen(names[i]) + 4 + members[i].size;
  }
  if (is_written) is_written = write_directory(out.stream, names, members, n, offset);
  if (!code) code = outfile_end(&out, is_written, error);
  free(members);
  return code;
}
