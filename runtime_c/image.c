/* Reading the container (docs/artifact.md). Every number of the file is checked before it is used. */
#include "image.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sha256.h"
#include "status.h"

#define NAME(id) [SVM_SECTION_##id] = #id
static const char *const NAMES[] = {
    NAME(STRINGS), NAME(SYMBOLS), NAME(INPUTS), NAME(OUTPUTS), NAME(CONSTANTS), NAME(FUNCTIONS), NAME(CODE),
    NAME(KERNELS), NAME(OBJECTS), NAME(BLOBS),  NAME(LINES),   NAME(META),      NAME(WEIGHTS)};
_Static_assert(sizeof NAMES / sizeof *NAMES == SVM_FILE_N_SECTIONS + 1, "every section has a name");

enum {
  TABLE_BYTES = SVM_FILE_N_SECTIONS * sizeof(svm_file_section),
  HEAD_BYTES = sizeof(svm_file_header) + TABLE_BYTES
};

const char *section_name(int32_t id) { return NAMES[id]; }

static int is_unhashed(int32_t id) { return id == SVM_SECTION_BLOBS || id == SVM_SECTION_WEIGHTS; }

/* Header and table ----------------------------------------------------------------------------- */

static int32_t check_header(const svm_file_header *h, uint64_t size, svm_error *error) {
  static const uint8_t magic[8] = SVM_FILE_MAGIC;
  if (size < HEAD_BYTES || memcmp(h->magic, magic, sizeof magic)) {
    return status_fail(error, SVM_ERROR_ARTIFACT,
                       "artifact: this is no .svm file (its first bytes are not the magic number)");
  }
  if (h->format_version != SVM_FILE_VERSION) {
    return status_fail(error, SVM_ERROR_ARTIFACT,
                       "artifact: format version %" PRIu32 ", this runtime reads %d; export it again",
                       h->format_version, SVM_FILE_VERSION);
  }
  if (h->isa_hash != SVM_ISA_HASH) {
    return status_fail(error, SVM_ERROR_ARTIFACT,
                       "artifact: instruction set %016" PRIx64 ", this runtime runs %016" PRIx64
                       "; export it with the same version of shapevm",
                       h->isa_hash, SVM_ISA_HASH);
  }
  if (h->file_size != size) {
    return status_fail(error, SVM_ERROR_ARTIFACT,
                       "artifact: it has %" PRIu64 " bytes, its header says %" PRIu64 "; copy it again", size,
                       h->file_size);
  }
  if (h->n_sections != SVM_FILE_N_SECTIONS) {
    return status_fail(error, SVM_ERROR_ARTIFACT, "artifact: %" PRIu32 " sections, there must be %d",
                       h->n_sections, SVM_FILE_N_SECTIONS);
  }
  if (!sha256_matches(h + 1, TABLE_BYTES, h->table_sha256)) {
    return status_fail(error, SVM_ERROR_ARTIFACT,
                       "artifact: the section table does not match its SHA-256; copy it again");
  }
  return SVM_OK;
}

static int32_t check_row(const svm_file_section *row, int32_t id, uint64_t begin, uint64_t size,
                         svm_error *error) {
  static const uint8_t zeros[SHA256_BYTES];
  uint64_t alignment = is_unhashed(id) ? SVM_FILE_PAGE : SVM_FILE_ALIGN;
  if (row->id != (uint32_t)id || row->reserved) {
    return status_fail(error, SVM_ERROR_ARTIFACT, "artifact: section %d of the table is not %s", id,
                       NAMES[id]);
  }
  if (row->offset % alignment || row->offset < begin || row->offset > size ||
      row->size > size - row->offset) {
    return status_fail(error, SVM_ERROR_ARTIFACT,
                       "artifact: section %s at %" PRIu64 " with %" PRIu64
                       " bytes is misaligned, overlaps another or leaves the file of %" PRIu64 " bytes",
                       NAMES[id], row->offset, row->size, size);
  }
  if (is_unhashed(id) && memcmp(row->sha256, zeros, sizeof zeros)) {
    return status_fail(error, SVM_ERROR_ARTIFACT, "artifact: section %s has a hash, it must be zeros",
                       NAMES[id]);
  }
  return SVM_OK;
}

static int32_t check_table(const svm_file_section *rows, uint64_t size, svm_error *error) {
  uint64_t begin = HEAD_BYTES;
  for (int32_t id = 1; id <= SVM_FILE_N_SECTIONS; id++) {
    int32_t code = check_row(&rows[id - 1], id, begin, size, error);
    if (code) return code;
    begin = rows[id - 1].offset + rows[id - 1].size;
  }
  return SVM_OK;
}

int32_t image_check_hash(const image *image, int32_t id, svm_error *error) {
  const section *s = &image->sections[id];
  if (sha256_matches(s->data, s->size, s->row->sha256)) return SVM_OK;
  return status_fail(error, SVM_ERROR_ARTIFACT,
                     "artifact: section %s does not match its SHA-256; copy the file again", NAMES[id]);
}

/* Point the sections into `base`, where the whole file but WEIGHTS lies. */
static int32_t set_sections(image *out, const uint8_t *base, svm_error *error) {
  const svm_file_section *rows = (const svm_file_section *)(base + sizeof(svm_file_header));
  for (int32_t id = 1; id <= SVM_FILE_N_SECTIONS; id++) {
    const svm_file_section *row = &rows[id - 1];
    out->sections[id] = (section){base + row->offset, row->size, row->count, row};
    if (is_unhashed(id) || id == SVM_SECTION_META) continue;
    int32_t code = image_check_hash(out, id, error);
    if (code) return code;
  }
  return SVM_OK;
}

/* From memory ---------------------------------------------------------------------------------- */

int32_t image_open_memory(image *out, const void *data, size_t size, svm_error *error) {
  memset(out, 0, sizeof *out);
  if ((uintptr_t)data % 8)
    return status_fail(error, SVM_ERROR_ARGUMENT, "artifact: data is not 8-byte aligned; copy it");
  int32_t code = check_header(data, size, error);
  if (!code) code = check_table((const svm_file_section *)((const svm_file_header *)data + 1), size, error);
  return code ? code : set_sections(out, data, error);
}

/* From a file ---------------------------------------------------------------------------------- */

static int32_t fail_file(const char *path, const char *what, svm_error *error) {
  return status_fail(error, SVM_ERROR_FILE, "%.500s: %s: %s", path, what, strerror(errno));
}

static int read_at(int file, void *to, size_t size, size_t offset) {
  for (size_t done = 0; done < size;) {
    ssize_t n = pread(file, (char *)to + done, size - done, (off_t)(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return errno = n ? errno : EIO, -1;
    done += (size_t)n;
  }
  return 0;
}

static int32_t map_weights(image *out, const char *path, int file, const svm_file_section *row,
                           svm_error *error) {
  if (!row->size) return SVM_OK;
  out->mapping = mmap(NULL, row->size, PROT_READ, MAP_PRIVATE, file, (off_t)row->offset);
  if (out->mapping == MAP_FAILED) {
    out->mapping = NULL;
    return fail_file(path, "mapping the weights failed", error);
  }
  out->mapping_size = row->size;
  out->sections[SVM_SECTION_WEIGHTS].data = out->mapping;
  madvise(out->mapping, row->size, MADV_WILLNEED); /* starts reading, waits for nothing */
  return SVM_OK;
}

static int32_t read_image(image *out, const char *path, int file, svm_error *error) {
  struct stat info;
  _Alignas(8) uint8_t head[HEAD_BYTES];
  if (fstat(file, &info)) return fail_file(path, "stat failed", error);
  if (!S_ISREG(info.st_mode))
    return status_fail(error, SVM_ERROR_FILE, "%.500s: it is no regular file", path);
  uint64_t size = (uint64_t)info.st_size;
  memset(head, 0, sizeof head);
  if (read_at(file, head, size < sizeof head ? size : sizeof head, 0))
    return fail_file(path, "reading failed", error);
  const svm_file_section *rows = (const svm_file_section *)(head + sizeof(svm_file_header));
  int32_t code = check_header((const svm_file_header *)head, size, error);
  if (!code) code = check_table(rows, size, error);
  if (code) return code;
  const svm_file_section *weights = &rows[SVM_SECTION_WEIGHTS - 1];
  size_t n_bytes = weights->offset; /* WEIGHTS is the last section */
  out->copy = aligned_alloc(64, (n_bytes + 63) / 64 * 64);
  if (!out->copy)
    return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for %zu bytes for the artifact's tables", n_bytes);
  memcpy(out->copy, head, sizeof head); /* not read again: these bytes are the checked ones */
  if (read_at(file, (char *)out->copy + sizeof head, n_bytes - sizeof head, sizeof head)) {
    return fail_file(path, "reading failed", error);
  }
  code = set_sections(out, out->copy, error);
  return code ? code : map_weights(out, path, file, weights, error);
}

int32_t image_open_path(image *out, const char *path, svm_error *error) {
  memset(out, 0, sizeof *out);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return fail_file(path, "cannot open it", error);
  int32_t code = read_image(out, path, file, error);
  close(file);
  if (code) image_close(out);
  return code;
}

void image_close(image *image) {
  if (image->mapping) munmap(image->mapping, image->mapping_size);
  free(image->copy);
  memset(image, 0, sizeof *image);
}
