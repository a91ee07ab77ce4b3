/* Reading the container (docs/artifact.md). Every number of the file is checked before it is used. */
#include "program/image.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/sha256.h"
#include "base/status.h"
#include "base/xxh3.h"

#define NAME(id) [SVM_SECTION_##id] = #id
static const char *const NAMES[] = {NAME(STRINGS),   NAME(SYMBOLS),   NAME(INPUTS), NAME(OUTPUTS),
                                    NAME(CONSTANTS), NAME(FUNCTIONS), NAME(CODE),   NAME(KERNELS),
                                    NAME(OBJECTS),   NAME(BLOBS),     NAME(LINES),  NAME(META),
                                    NAME(CHUNKS),    NAME(WEIGHTS)};
_Static_assert(sizeof NAMES / sizeof *NAMES == SVM_FILE_N_SECTIONS + 1, "every section has a name");

enum {
  TABLE_BYTES = SVM_FILE_N_SECTIONS * sizeof(svm_file_section),
  HEAD_BYTES = sizeof(svm_file_header) + TABLE_BYTES
};

const char *section_name(int32_t id) { return NAMES[id]; }

/* Sections whose hashes CHUNKS holds. */
static int is_chunked(int32_t id) { return id == SVM_SECTION_BLOBS || id == SVM_SECTION_WEIGHTS; }

/* Header and table ----------------------------------------------------------------------------- */

static int32_t check_header(const svm_file_header *h, uint64_t size, svm_error *error) {
  static const uint8_t magic[8] = SVM_FILE_MAGIC;
  if (size < HEAD_BYTES || memcmp(h->magic, magic, sizeof magic)) {
    return status_fail(
        error, SVM_ERROR_ARTIFACT,
        "artifact: this is no .svm file (its first bytes are not the magic number); compile a model "
        "with shapevm compile");
  }
  if (h->format_version < SVM_FILE_FIRST_VERSION || h->format_version > SVM_FILE_VERSION) {
    return status_fail(error, SVM_ERROR_ARTIFACT,
                       "artifact: format version %" PRIu32 ", this runtime reads %d to %d; export it again",
                       h->format_version, SVM_FILE_FIRST_VERSION, SVM_FILE_VERSION);
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

static uint64_t aligned(uint64_t offset, uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

static int32_t check_row(const svm_file_section *row, int32_t id, uint64_t begin, uint64_t size,
                         svm_error *error) {
  static const uint8_t zeros[SHA256_BYTES];
  if (row->id != (uint32_t)id || row->reserved) {
    return status_fail(error, SVM_ERROR_ARTIFACT, "artifact: section %d of the table is not %s", id,
                       NAMES[id]);
  }
  if (row->offset != aligned(begin, is_chunked(id) ? SVM_FILE_PAGE : SVM_FILE_ALIGN) || row->offset > size ||
      row->size > size - row->offset) {
    return status_fail(error, SVM_ERROR_ARTIFACT,
                       "artifact: section %s at %" PRIu64 " with %" PRIu64
                       " bytes does not follow the one before or leaves the file of %" PRIu64 " bytes",
                       NAMES[id], row->offset, row->size, size);
  }
  if (!is_chunked(id)) return SVM_OK;
  if (row->size % SVM_FILE_CHUNKED_ALIGN)
    return status_fail(error, SVM_ERROR_ARTIFACT,
                       "artifact: section %s has %" PRIu64 " bytes, which is no multiple of %d", NAMES[id],
                       row->size, SVM_FILE_CHUNKED_ALIGN);
  if (memcmp(row->sha256, zeros, sizeof zeros))
    return status_fail(error, SVM_ERROR_ARTIFACT, "artifact: section %s has a hash, it must be zeros",
                       NAMES[id]);
  return SVM_OK;
}

static int32_t check_table(const svm_file_section *rows, uint64_t size, svm_error *error) {
  uint64_t begin = HEAD_BYTES;
  for (int32_t id = 1; id <= SVM_FILE_N_SECTIONS; id++) {
    int32_t code = check_row(&rows[id - 1], id, begin, size, error);
    if (code) return code;
    begin = rows[id - 1].offset + rows[id - 1].size;
  }
  return begin == size ? SVM_OK
                       : status_fail(error, SVM_ERROR_ARTIFACT,
                                     "artifact: %" PRIu64 " bytes follow the last section", size - begin);
}

/* Hashes and gaps ------------------------------------------------------------------------------ */

static int32_t check_hash(const image *image, int32_t id, svm_error *error) {
  const section *s = &image->sections[id];
  if (sha256_matches(s->data, s->size, s->row->sha256)) return SVM_OK;
  return status_fail(error, SVM_ERROR_ARTIFACT,
                     "artifact: section %s does not match its SHA-256; copy the file again", NAMES[id]);
}

/* The gaps between the sections, the last of which is the one before WEIGHTS, hold zeros. */
static int32_t check_gaps(const image *image, const uint8_t *base, svm_error *error) {
  uint64_t at = HEAD_BYTES;
  for (int32_t id = 1; id <= SVM_FILE_N_SECTIONS; id++) {
    const svm_file_section *row = image->sections[id].row;
    for (; at < row->offset; at++) {
      if (base[at])
        return status_fail(error, SVM_ERROR_ARTIFACT,
                           "artifact: byte %" PRIu64 " before section %s is not 0; copy the file again", at,
                           NAMES[id]);
    }
    at += row->size;
  }
  return SVM_OK;
}

uint64_t image_n_chunks(const image *image, int32_t id) {
  return aligned(image->sections[id].size, SVM_FILE_CHUNK) / SVM_FILE_CHUNK;
}

int image_is_chunk_sound(const image *image, int32_t id, uint64_t index, void *room) {
  const section *s = &image->sections[id];
  const svm_file_chunk *rows = (const svm_file_chunk *)image->sections[SVM_SECTION_CHUNKS].data;
  if (id == SVM_SECTION_WEIGHTS) rows += image_n_chunks(image, SVM_SECTION_BLOBS);
  uint64_t begin = index * SVM_FILE_CHUNK, left = s->size - begin;
  size_t size = left < SVM_FILE_CHUNK ? left : SVM_FILE_CHUNK;
  const void *data = s->data + begin;
  if (room && image->weights.data) {
    if (mapping_read(image->weights.file, room, size, s->row->offset + begin)) return 0;
    data = room;
  }
  xxh3_hash found = xxh3_128(data, size);
  return found.low == rows[index].low && found.high == rows[index].high;
}

static int32_t check_code_chunks(const image *image, svm_error *error) {
  const section *s = &image->sections[SVM_SECTION_CHUNKS];
  uint64_t n = image_n_chunks(image, SVM_SECTION_BLOBS);
  if (s->count != n + image_n_chunks(image, SVM_SECTION_WEIGHTS) ||
      s->size != s->count * sizeof(svm_file_chunk))
    return status_fail(error, SVM_ERROR_ARTIFACT,
                       "artifact: CHUNKS holds %" PRIu64 " hashes, there must be %" PRIu64, s->count,
                       n + image_n_chunks(image, SVM_SECTION_WEIGHTS));
  for (uint64_t i = 0; i < n; i++) {
    if (!image_is_chunk_sound(image, SVM_SECTION_BLOBS, i, NULL))
      return status_fail(
          error, SVM_ERROR_ARTIFACT,
          "artifact: MiB %" PRIu64 " of the machine code does not match its hash; copy the file again", i);
  }
  return SVM_OK;
}

/* Point the sections into `base`, which holds the whole file except perhaps WEIGHTS. */
static int32_t set_sections(image *out, const uint8_t *base, svm_error *error) {
  const svm_file_section *rows = (const svm_file_section *)(base + sizeof(svm_file_header));
  for (int32_t id = 1; id <= SVM_FILE_N_SECTIONS; id++) {
    const svm_file_section *row = &rows[id - 1];
    out->sections[id] = (section){base + row->offset, row->size, row->count, row};
    out->version = ((const svm_file_header *)base)->format_version;
    int32_t code = is_chunked(id) ? SVM_OK : check_hash(out, id, error);
    if (code) return code;
  }
  int32_t code = check_gaps(out, base, error);
  return code ? code : check_code_chunks(out, error);
}

/* All of the file is in memory. */
static int32_t check_digest(const void *data, size_t size, const char *path, const uint8_t *wanted,
                            svm_error *error) {
  if (!wanted || sha256_matches(data, size, wanted)) return SVM_OK;
  return status_fail(error, SVM_ERROR_ARTIFACT, "%.500s: its SHA-256 is not the digest that was asked for",
                     path);
}

static int32_t set_path(image *out, const char *path, svm_error *error) {
  memset(out, 0, sizeof *out);
  out->copy.file = out->weights.file = -1;
  out->path = strdup(path);
  return out->path ? SVM_OK
                   : status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for opening %.500s", path);
}

/* From memory ---------------------------------------------------------------------------------- */

int32_t image_open_memory(image *out, const void *data, size_t size, const svm_options *options,
                          svm_error *error) {
  if (set_path(out, "artifact", error)) return error->code;
  int32_t code = (uintptr_t)data % 8
                     ? status_fail(error, SVM_ERROR_ARGUMENT, "artifact: data is not 8-byte aligned; copy it")
                     : check_digest(data, size, out->path, options->sha256, error);
  if (!code) code = check_header(data, size, error);
  if (!code) code = check_table((const svm_file_section *)((const svm_file_header *)data + 1), size, error);
  if (!code) code = set_sections(out, data, error);
  if (code) image_close(out);
  return code;
}

/* From a file ---------------------------------------------------------------------------------- */

static int is_copied(const svm_options *options, uint64_t size) {
  if (options->copy != SVM_COPY_AUTO) return options->copy == SVM_COPY_ALWAYS;
  if (options->huge_pages == SVM_HUGE_PAGES_ALWAYS) return 1;
  return options->sha256 || size <= SVM_DEFAULT_COPY_BYTES;
}

/* Check header and table in the file, which give the bytes to read. */
static int32_t check_head(int file, const char *path, uint64_t size, uint8_t head[HEAD_BYTES],
                          uint64_t *weights, svm_error *error) {
  if (mapping_read(file, head, size < HEAD_BYTES ? size : HEAD_BYTES, 0))
    return mapping_fail(path, "reading failed", error);
  const svm_file_section *rows = (const svm_file_section *)(head + sizeof(svm_file_header));
  int32_t code = check_header((const svm_file_header *)head, size, error);
  if (!code) code = check_table(rows, size, error);
  *weights = code ? 0 : rows[SVM_SECTION_WEIGHTS - 1].offset; /* WEIGHTS is the last section */
  return code;
}

static int32_t check_file_digest(int file, const char *path, uint64_t size, const uint8_t *wanted,
                                 svm_error *error) {
  mapping whole;
  if (!wanted) return SVM_OK;
  if (mapping_make(&whole, file, path, 0, size, 0, error)) return error->code;
  int32_t code = check_digest(whole.data, size, path, wanted, error);
  int64_t modified;
  if (!code && mapping_state(&whole, &modified)) code = mapping_fail_changed(path, error);
  mapping_free(&whole);
  return code;
}

static int32_t read_image(image *out, int file, const svm_options *options, svm_error *error) {
  struct stat status;
  uint64_t begin = 0;
  _Alignas(8) uint8_t head[HEAD_BYTES] = {0};
  if (fstat(file, &status)) return mapping_fail(out->path, "stat failed", error);
  if (!S_ISREG(status.st_mode))
    return status_fail(error, SVM_ERROR_FILE, "%.500s: it is no regular file", out->path);
  uint64_t size = (uint64_t)status.st_size;
  if (check_head(file, out->path, size, head, &begin, error)) return error->code;
  int is_whole = is_copied(options, size) || begin == size;
  int is_huge = options->huge_pages != SVM_HUGE_PAGES_NEVER;
  /* Mapped first: a change from here on is noticed. */
  if (!is_whole && mapping_make(&out->weights, file, out->path, begin, size - begin, is_huge, error))
    return error->code;
  if (mapping_copy(&out->copy, file, out->path, is_whole ? size : begin, is_huge && is_whole, error))
    return error->code;
  const uint8_t *base = out->copy.data;
  int32_t code = is_whole ? check_digest(base, size, out->path, options->sha256, error)
                          : check_file_digest(file, out->path, size, options->sha256, error);
  if (!code && memcmp(base, head, sizeof head))
    code = status_fail(error, SVM_ERROR_FILE, "%.500s: the file was changed while it was read; load it again",
                       out->path);
  if (!code) code = set_sections(out, base, error);
  if (!code && !is_whole) out->sections[SVM_SECTION_WEIGHTS].data = out->weights.data;
  int was_touched;
  return code ? code : image_check_file(out, &was_touched, error);
}

int32_t image_open_file(image *out, int file, const char *path, const svm_options *options,
                        svm_error *error) {
  if (set_path(out, path, error)) return error->code;
  int32_t code = read_image(out, file, options, error);
  if (code) image_close(out);
  return code;
}

/* A file whose time is another one is read once, by one thread. */
static pthread_mutex_t comparing = PTHREAD_MUTEX_INITIALIZER;

void image_lock(void) { pthread_mutex_lock(&comparing); }
void image_unlock(void) { pthread_mutex_unlock(&comparing); }

/* Whether the file has the bytes that were loaded from it. */
static int is_as_loaded(const image *image) {
  enum { PIECE = 1 << 16 };
  const mapping *copy = &image->copy;
  size_t size = (size_t)(image->sections[SVM_SECTION_WEIGHTS].row->offset);
  char *piece = malloc(PIECE);
  int is_same = piece != NULL;
  for (size_t at = 0; is_same && at < size; at += PIECE) {
    size_t n = size - at < PIECE ? size - at : PIECE;
    is_same =
        !mapping_read(image->weights.file, piece, n, at) && !memcmp((const char *)copy->data + at, piece, n);
  }
  free(piece);
  int was_blocked = mapping_arm(&image->weights);
  uint64_t n_chunks = image_n_chunks(image, SVM_SECTION_WEIGHTS);
  for (uint64_t i = 0; is_same && i < n_chunks; i++)
    is_same = image_is_chunk_sound(image, SVM_SECTION_WEIGHTS, i, NULL);
  mapping_disarm(was_blocked);
  return is_same;
}

/* Look at a file that had another time just now. */
static int32_t check_touched(image *image, svm_error *error) {
  enum { TRIES = 3 }; /* it may be changing now */
  int64_t modified, later;
  for (int i = 0; i < TRIES; i++) {
    int state = mapping_state(&image->weights, &modified);
    if (state == MAPPING_SAME) return SVM_OK;
    if (state == MAPPING_CHANGED || modified == image->refused) break;
    mapping_wait_for_clock(modified);
    int is_same = is_as_loaded(image);
    if (mapping_state(&image->weights, &later) == MAPPING_CHANGED) break;
    if (later != modified) continue;
    if (is_same) return atomic_store(&image->weights.modified, modified), SVM_OK;
    image->refused = modified;
  }
  return mapping_fail_changed(image->path, error);
}

int32_t image_check_file(image *image, int *was_touched, svm_error *error) {
  int64_t modified;
  int state = mapping_state(&image->weights, &modified);
  *was_touched = state == MAPPING_TOUCHED;
  if (state == MAPPING_SAME) return SVM_OK;
  if (state == MAPPING_CHANGED) return mapping_fail_changed(image->path, error);
  image_lock();
  int32_t code = check_touched(image, error);
  image_unlock();
  return code;
}

void image_close(image *image) {
  if (!image->path) return; /* never opened */
  mapping_free(&image->weights);
  mapping_free(&image->copy);
  free(image->path);
  memset(image, 0, sizeof *image);
}
