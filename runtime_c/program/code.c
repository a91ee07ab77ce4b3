/* Records of code objects: parsing, checks, and the numbers that they compute from a launch's dims. */
#include "program/code.h"

#include <inttypes.h>
#include <string.h>

#include "base/sha256.h"
#include "base/status.h"
#include "base/utf8.h"

/* Reading records ------------------------------------------------------------------------------ */

typedef struct reader {
  const char *label; /* of the kernel, for errors */
  const uint8_t *at, *end;
  uint32_t n_dims;
  svm_error *error;
} reader;

static int32_t bad(reader *r, const char *what) {
  return status_fail(r->error, SVM_ERROR_ARTIFACT,
                     "artifact: a code record of kernel \"%.100s\" is broken: %s; export it again", r->label,
                     what);
}

static const void *take(reader *r, size_t n, size_t size) {
  if (n > (size_t)(r->end - r->at) / size) return bad(r, "it ends too early"), NULL;
  const void *found = r->at;
  r->at += n * size;
  return found;
}

static int is_size(const reader *r, const svm_file_size *s, int may_be_negative) {
  if (s->reserved || s->is_dim > 1) return 0;
  return s->is_dim ? s->value >= 0 && s->value < r->n_dims : may_be_negative || s->value >= 0;
}

static const svm_file_size *take_sizes(reader *r, uint32_t n) {
  const svm_file_size *sizes = take(r, n, sizeof *sizes);
  for (uint32_t i = 0; sizes && i < n; i++) {
    if (!is_size(r, &sizes[i], 0)) return bad(r, "a size is negative or names no dim"), NULL;
  }
  return sizes;
}

static const int64_t *take_dims(reader *r, uint32_t n) {
  const int64_t *dims = take(r, n, sizeof *dims);
  for (uint32_t i = 0; dims && i < n; i++) {
    if (dims[i] < 0) return bad(r, "an exact dim is negative"), NULL;
  }
  return dims;
}

static const svm_file_range *take_ranges(reader *r, uint32_t n) {
  const svm_file_range *ranges = take(r, n, sizeof *ranges);
  for (uint32_t i = 0; ranges && i < n; i++) {
    const svm_file_range *x = &ranges[i];
    if (x->min < 0 || (x->max != NO_MAX && x->max < x->min) || x->multiple_of < 1)
      return bad(r, "a range of dims"), NULL;
  }
  return ranges;
}

static const svm_file_term *take_terms(reader *r, uint32_t n) {
  const void *first = r->at;
  if (n > SVM_LIMIT_TERMS) return bad(r, "it has over 64 terms"), NULL;
  for (uint32_t i = 0; i < n; i++) {
    const svm_file_term *term = take(r, 1, sizeof *term);
    if (!term) return NULL;
    if (term->factor < 0 || term->reserved || term->n_sizes > SVM_LIMIT_TERMS) return bad(r, "a term"), NULL;
    if (!take_sizes(r, term->n_sizes)) return NULL;
  }
  return first;
}

static const svm_file_tile *take_tiles(reader *r, uint32_t n) {
  if (n > SVM_LIMIT_TERMS) return bad(r, "it has over 64 tiles"), NULL;
  const svm_file_tile *tiles = take(r, n, sizeof *tiles);
  for (uint32_t i = 0; tiles && i < n; i++) {
    svm_file_size size = {tiles[i].is_dim, tiles[i].reserved, tiles[i].value};
    if (!is_size(r, &size, 0) || tiles[i].divisor < 1) return bad(r, "a tile"), NULL;
  }
  return tiles;
}

static const svm_file_bound *take_bounds(reader *r, uint32_t n) {
  if (n > SVM_LIMIT_TERMS) return bad(r, "it has over 64 bounds"), NULL;
  const svm_file_bound *bounds = take(r, n, sizeof *bounds);
  for (uint32_t i = 0; bounds && i < n; i++) {
    const svm_file_bound *b = &bounds[i];
    if (!is_size(r, &b->loop, 0) || !is_size(r, &b->offset, 1) || !is_size(r, &b->axis, 0))
      return bad(r, "a bound"), NULL;
  }
  return bounds;
}

/* Whether buffer number `index` of a signature, which was parsed already, is an output. */
static int is_output(const void *buffers, uint32_t index) {
  const uint8_t *at = buffers;
  for (;; index--) {
    const svm_file_buffer *b = (const svm_file_buffer *)at;
    if (!index) return (int)b->is_output;
    at += sizeof *b + b->rank * sizeof(svm_file_size);
  }
}

static const svm_file_lines *take_lines(reader *r, const svm_file_object *o, const void *buffers) {
  if (o->n_lines > SVM_LIMIT_BUFFERS) return bad(r, "it has over 64 lines"), NULL;
  const svm_file_lines *lines = take(r, o->n_lines, sizeof *lines);
  uint64_t known = 0;
  for (uint32_t i = 0; lines && i < o->n_lines; i++) {
    const svm_file_lines *x = &lines[i];
    svm_file_size size = {x->is_dim, x->reserved, x->value};
    int is_fit = x->stride >= 1 && x->stride <= SVM_LIMIT_LINES && x->low >= -SVM_LIMIT_LINES &&
                 x->low <= SVM_LIMIT_LINES && x->reach >= 1 && x->reach <= SVM_LIMIT_LINES;
    if (!is_size(r, &size, 0) || x->buffer >= o->n_buffers || known >> x->buffer & 1 ||
        x->tile >= o->n_tiles || x->tile != lines->tile || !is_fit)
      return bad(r, "lines"), NULL;
    if (is_output(buffers, x->buffer) && (x->stride != 1 || x->low || x->reach != 1))
      return bad(r, "lines of an output"), NULL;
    known |= UINT64_C(1) << x->buffer;
  }
  return lines;
}

int32_t code_parse_buffers(const char *label, const void *bytes, size_t size, uint32_t n_dims, uint32_t n,
                           buffer_type *rows, size_t *out_size, svm_error *error) {
  reader r = {label, bytes, (const uint8_t *)bytes + size, n_dims, error};
  for (uint32_t i = 0; i < n; i++) {
    const svm_file_buffer *b = take(&r, 1, sizeof *b);
    if (!b) return error->code;
    if (b->dtype >= SVM_DTYPE_COUNT || b->is_output > 1 || b->rank > SVM_LIMIT_RANK || b->reserved) {
      return bad(&r, "a buffer's dtype, rank or direction");
    }
    const svm_file_size *sizes = take_sizes(&r, b->rank);
    if (!sizes) return error->code;
    rows[i] = (buffer_type){(int32_t)b->dtype, (int32_t)b->is_output, (int32_t)b->rank, sizes};
  }
  *out_size = (size_t)(r.at - (const uint8_t *)bytes);
  return SVM_OK;
}

/* Objects -------------------------------------------------------------------------------------- */

/* Whether a field is UTF-8 and then zeros to its end, at least one. */
static int is_padded_text(const char *field, size_t size) {
  size_t n = strnlen(field, size);
  for (size_t i = n; i < size; i++) {
    if (field[i]) return 0;
  }
  return n < size && utf8_is_valid((const uint8_t *)field, n);
}

static int32_t check_record(reader *r, const code_signature *kernel, const svm_file_object *o, size_t size) {
  if (o->record_size < sizeof *o || o->record_size > size) return bad(r, "its record_size");
  if (o->n_dims != kernel->n_dims || o->n_buffers != kernel->n_buffers)
    return bad(r, "it has other dims or buffers than the kernel");
  if (memcmp(o->spec_hash, kernel->spec_hash, sizeof o->spec_hash))
    return bad(r, "it was compiled from another kernel spec");
  if (o->guard > SVM_GUARD_BUCKET) return bad(r, "its guard");
  if (o->code_size < 1 || o->entry >= o->code_size) return bad(r, "its code size or entry");
  if (o->alignment < SVM_FILE_ALIGN || o->alignment > SVM_FILE_PAGE || (o->alignment & (o->alignment - 1)))
    return bad(r, "its alignment is no power of two from 64 to 4096");
  if (!is_padded_text(o->target, sizeof o->target) || !is_padded_text(o->schedule, sizeof o->schedule))
    return bad(r, "its target or schedule");
  return SVM_OK;
}

int32_t code_parse(const char *label, const code_signature *kernel, const void *bytes, size_t size,
                   code_object *out, svm_error *error) {
  reader r = {label, bytes, (const uint8_t *)bytes + size, kernel->n_dims, error};
  const svm_file_object *o = take(&r, 1, sizeof *o);
  if (!o || check_record(&r, kernel, o, size)) return error->code;
  r.end = (const uint8_t *)bytes + o->record_size;
  *out = (code_object){.record = o};
  if (o->guard == SVM_GUARD_EXACT && !(out->exact_dims = take_dims(&r, o->n_dims))) return error->code;
  if (o->guard == SVM_GUARD_BUCKET && !(out->ranges = take_ranges(&r, o->n_dims))) return error->code;
  const void *buffers = take(&r, kernel->buffers_size, 1);
  if (!buffers) return error->code;
  if (memcmp(buffers, kernel->buffers, kernel->buffers_size))
    return bad(&r, "its buffers are not the kernel's");
  if (!(out->tiles = take_tiles(&r, o->n_tiles)) || !(out->scratch = take_terms(&r, o->n_scratch)) ||
      !(out->cost = take_terms(&r, o->n_cost)) || !(out->bounds = take_bounds(&r, o->n_bounds)) ||
      !(out->lines = take_lines(&r, o, buffers))) {
    return error->code;
  }
  return r.at == r.end ? SVM_OK : bad(&r, "it is longer than what it holds");
}

int32_t code_check_hash(const char *label, const code_object *object, const void *code, svm_error *error) {
  const svm_file_object *o = object->record;
  const size_t skipped = offsetof(svm_file_object, spec_hash);
  sha256 hash;
  uint8_t found[SHA256_BYTES];
  sha256_init(&hash);
  sha256_update(&hash, (const uint8_t *)o + skipped, o->record_size - skipped);
  sha256_update(&hash, code, o->code_size);
  sha256_final(&hash, found);
  if (!memcmp(found, o->sha256, sizeof found)) return SVM_OK;
  return status_fail(
      error, SVM_ERROR_ARTIFACT,
      "artifact: the machine code of kernel \"%.100s\" (%s) does not match its SHA-256; export it again",
      label, o->target);
}

/* Numbers -------------------------------------------------------------------------------------- */

static int is_in_range(const svm_file_range *r, int64_t size) {
  return size >= r->min && (r->max == NO_MAX || size <= r->max) && size % r->multiple_of == 0;
}

int code_fits(const code_object *object, const int64_t *dims) {
  for (uint32_t i = 0; i < object->record->n_dims; i++) {
    if (object->exact_dims && object->exact_dims[i] != dims[i]) return 0;
    if (object->ranges && !is_in_range(&object->ranges[i], dims[i])) return 0;
  }
  return 1;
}

static const int64_t GREATEST = INT64_C(1) << 62;

int64_t code_size(const svm_file_size *size, const int64_t *dims) {
  return size->is_dim ? dims[size->value] : size->value;
}

int64_t code_terms(const svm_file_term *terms, uint32_t n, const int64_t *dims) {
  const uint8_t *at = (const uint8_t *)terms;
  int64_t total = 0;
  for (uint32_t i = 0; i < n; i++) {
    const svm_file_term *term = (const svm_file_term *)at;
    const svm_file_size *sizes = (const svm_file_size *)(term + 1);
    int64_t product = term->factor;
    for (uint32_t j = 0; j < term->n_sizes; j++) {
      if (__builtin_mul_overflow(product, code_size(&sizes[j], dims), &product)) return -1;
    }
    if (__builtin_add_overflow(total, product, &total)) return -1;
    at = (const uint8_t *)(sizes + term->n_sizes);
  }
  return total > GREATEST ? -1 : total;
}

int64_t code_tiles(const code_object *object, const int64_t *dims) {
  int64_t n = 1;
  for (uint32_t i = 0; i < object->record->n_tiles; i++) {
    const svm_file_tile *tile = &object->tiles[i];
    int64_t size = tile->is_dim ? dims[tile->value] : tile->value;
    int64_t count = size / tile->divisor + (size % tile->divisor != 0);
    if (__builtin_mul_overflow(n, count, &n)) return -1;
  }
  return n > GREATEST ? -1 : n;
}

int32_t code_check_bounds(const char *label, const code_object *object, const int64_t *dims,
                          svm_error *error) {
  for (uint32_t i = 0; i < object->record->n_bounds; i++) {
    const svm_file_bound *b = &object->bounds[i];
    int64_t loop = code_size(&b->loop, dims), offset = code_size(&b->offset, dims),
            axis = code_size(&b->axis, dims), last;
    if (loop <= 0) continue;
    int too_big =
        __builtin_mul_overflow(b->scale, loop - 1, &last) || __builtin_add_overflow(last, offset, &last);
    if (too_big || offset < 0 || offset >= axis || last < 0 || last >= axis) {
      return status_fail(error, SVM_ERROR_KERNEL,
                         "kernel \"%.100s\": it would access %" PRId64 " to %" PRId64
                         " of an axis of size %" PRId64 "; the program's sizes are wrong",
                         label, offset, too_big ? INT64_MAX : last, axis);
    }
  }
  return SVM_OK;
}
