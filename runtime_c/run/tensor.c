/* Tensors and scalars as instructions make them; vm/reference_tensors.py defines the conversions. */
#include "run/tensor.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "run/instructions.gen.h"
#include "run/operands.h"
#include "run/trace.h"

/* Sizes ---------------------------------------------------------------------------------------- */

/* The list of sizes whose count is word `at`. */
static int32_t read_sizes(const char *name, const value *r, const uint32_t *pc, uint32_t at, int64_t *sizes,
                          int64_t *n_elements, svm_error *error) {
  int32_t rank = (int32_t)pc[at];
  for (int32_t i = 0; i < rank; i++) {
    value v = r[pc[at + 1 + (uint32_t)i]];
    if (!SVM_FITS_ALLOC_SIZES(v.tag)) return operands_check(r, pc, error);
    sizes[i] = v.integer;
    if (v.integer < 0)
      return status_fail(error, SVM_ERROR_SHAPE, "%s: size %d is %" PRId64 "; sizes must be >= 0", name, i,
                         v.integer);
  }
  *n_elements = checked_elements(rank, sizes);
  return *n_elements < 0 ? status_fail(error, SVM_ERROR_SHAPE,
                                       "%s: the sizes make over 2^62 elements; use smaller inputs", name)
                         : SVM_OK;
}

int32_t tensor_alloc(call *c, const value *r, const uint32_t *pc, value *out) {
  int64_t sizes[SVM_LIMIT_RANK], n, n_bytes;
  uint32_t at = SVM_AT_ALLOC_SIZES(pc);
  int32_t dtype = (int32_t)pc[SVM_AT_ALLOC_DTYPE(pc)], rank = (int32_t)pc[at];
  if (read_sizes("alloc", r, pc, at, sizes, &n, c->error)) return c->error->code;
  if ((n_bytes = checked_bytes(dtype, n)) < 0)
    return status_fail(c->error, SVM_ERROR_SHAPE,
                       "alloc: the sizes make over 2^62 bytes; use smaller inputs");
  int32_t number = 0;
  if (c->recorder && record_storage(c, n_bytes, &number)) return c->error->code;
  storage *memory = c->recorder ? storage_over(&c->budget, NULL, n_bytes, SVM_ORIGIN_NEW, number, c->error)
                                : storage_make(&c->budget, n_bytes, c->error);
  if (!memory) return c->error->code;
  memory->is_unset = !c->recorder;
  if (!c->program->options.native_code && !c->recorder) storage_clear(memory); /* kernels may write a part */
  return tensor_make(&c->budget, dtype, rank, sizes, memory, out, c->error);
}

int32_t tensor_view(call *c, const value *r, const uint32_t *pc, value *out) {
  int64_t sizes[SVM_LIMIT_RANK], n;
  uint32_t at = SVM_AT_VIEW_SIZES(pc);
  const tensor *a = r[pc[SVM_AT_VIEW_A(pc)]].tensor;
  if (read_sizes("view", r, pc, at, sizes, &n, c->error)) return c->error->code;
  if (n != a->n_elements) {
    return status_fail(c->error, SVM_ERROR_SHAPE,
                       "view: the sizes make %" PRId64 " elements; the tensor has %" PRId64, n,
                       a->n_elements);
  }
  if (a->memory->refs >= 0) a->memory->refs++; /* constants are immortal */
  return tensor_make(&c->budget, a->dtype, (int32_t)pc[at], sizes, a->memory, out, c->error);
}

int32_t tensor_part(call *c, const value *r, const uint32_t *pc, value *out) {
  int64_t sizes[SVM_LIMIT_RANK], n, begin = r[pc[SVM_AT_PART_BEGIN(pc)]].integer;
  uint32_t at = SVM_AT_PART_SIZES(pc);
  const tensor *a = r[pc[SVM_AT_PART_A(pc)]].tensor;
  if (read_sizes("part", r, pc, at, sizes, &n, c->error)) return c->error->code;
  if (begin < 0 || begin > a->n_elements - n) {
    return status_fail(c->error, SVM_ERROR_INDEX,
                       "part: %" PRId64 " elements from %" PRId64 " on; the tensor has %" PRId64, n, begin,
                       a->n_elements);
  }
  if (!c->recorder) storage_clear(a->memory);
  int64_t bytes = DTYPE_BYTES[a->dtype];
  storage *memory = storage_part(&c->budget, a->memory, begin * bytes, n * bytes, c->error);
  if (!memory) return c->error->code;
  return tensor_make(&c->budget, a->dtype, (int32_t)pc[at], sizes, memory, out, c->error);
}

int32_t tensor_dim(const tensor *a, int32_t axis, int64_t *out, svm_error *error) {
  if (axis >= a->rank)
    return status_fail(error, SVM_ERROR_INDEX, "dim: axis %d of a tensor of rank %d", axis, a->rank);
  *out = a->sizes[axis];
  return SVM_OK;
}

static void describe_sizes(char *text, size_t room, int32_t rank, const int64_t *sizes) {
  size_t n = (size_t)snprintf(text, room, "[");
  for (int32_t i = 0; i < rank && n < room; i++)
    n += (size_t)snprintf(text + n, room - n, i ? ", %" PRId64 : "%" PRId64, sizes[i]);
  if (n < room) snprintf(text + n, room - n, "]");
}

int32_t tensor_expect(call *c, const value *r, const uint32_t *pc) {
  int64_t sizes[SVM_LIMIT_RANK], n;
  char wanted[SVM_LIMIT_RANK * 21], found[SVM_LIMIT_RANK * 21];
  svm_error *error = c->error;
  uint32_t at = SVM_AT_EXPECT_SIZES(pc);
  int32_t dtype = (int32_t)pc[SVM_AT_EXPECT_DTYPE(pc)], rank = (int32_t)pc[at];
  const char *what = c->program->strings[pc[SVM_AT_EXPECT_WHAT(pc)]];
  value a = r[pc[SVM_AT_EXPECT_A(pc)]];
  if (read_sizes("expect", r, pc, at, sizes, &n, error)) return error->code;
  const tensor *t = a.tag == SVM_TAG_TENSOR ? a.tensor : NULL;
  int is_like = t && t->rank == rank && (!rank || !memcmp(t->sizes, sizes, (size_t)rank * sizeof *sizes));
  if (is_like && t->dtype == dtype) return SVM_OK;
  describe_sizes(wanted, sizeof wanted, rank, sizes);
  if (!t) {
    return status_fail(error, SVM_ERROR_KIND, "%.200s gave a %s; the program was compiled for %s%s", what,
                       tag_name(a.tag), DTYPE_NAMES[dtype], wanted);
  }
  describe_sizes(found, sizeof found, t->rank, t->sizes);
  return status_fail(error, t->dtype == dtype ? SVM_ERROR_SHAPE : SVM_ERROR_DTYPE,
                     "%.200s gave %s%s; the program was compiled for %s%s", what, DTYPE_NAMES[t->dtype],
                     found, DTYPE_NAMES[dtype], wanted);
}

int32_t items_expect(call *c, const sequence *items, const uint32_t *pc) {
  int32_t tag = (int32_t)pc[2], dtype = (int32_t)pc[3], rank = (int32_t)pc[4];
  const char *what = c->program->strings[pc[5]];
  for (int64_t i = 0; i < items->length; i++) {
    value v = items->items[i];
    if (v.tag != tag)
      return status_fail(c->error, SVM_ERROR_KIND,
                         "input \"%.100s\": element %" PRId64 " is %s; it must be %s", what, i,
                         tag_with_article(v.tag), tag_with_article(tag));
    if (tag != SVM_TAG_TENSOR) continue;
    if (v.tensor->dtype != dtype)
      return status_fail(c->error, SVM_ERROR_DTYPE,
                         "input \"%.100s\": element %" PRId64 " is %s; it must be %s: convert it first", what,
                         i, DTYPE_NAMES[v.tensor->dtype], DTYPE_NAMES[dtype]);
    if (v.tensor->rank != rank)
      return status_fail(c->error, SVM_ERROR_SHAPE,
                         "input \"%.100s\": element %" PRId64 " has rank %d; it must have rank %d", what, i,
                         v.tensor->rank, rank);
  }
  return SVM_OK;
}

/* By tag, then by value; nan after all numbers. */
static int compare_values(const void *a, const void *b) {
  const value *x = a, *y = b;
  if (x->tag != y->tag) return x->tag < y->tag ? -1 : 1;
  if (x->tag == SVM_TAG_STR) return text_compare(x->text, y->text);
  if (x->tag != SVM_TAG_FLOAT) return (x->integer > y->integer) - (x->integer < y->integer);
  int is_nan = x->number != x->number, is_other_nan = y->number != y->number;
  if (is_nan || is_other_nan) return is_nan - is_other_nan;
  return (x->number > y->number) - (x->number < y->number);
}

int32_t items_distinct(call *c, const sequence *items, int64_t *is_distinct) {
  for (int64_t i = 0; i < items->length; i++) {
    int32_t tag = items->items[i].tag;
    if (tag != SVM_TAG_BOOL && tag != SVM_TAG_INT && tag != SVM_TAG_FLOAT && tag != SVM_TAG_STR)
      return status_fail(c->error, SVM_ERROR_KIND,
                         "distinct: element %" PRId64 " is %s; it must be a plain value", i,
                         tag_with_article(tag));
  }
  size_t n = (size_t)items->length;
  value *sorted = malloc((n + 1) * sizeof *sorted);
  if (!sorted) return status_fail(c->error, SVM_ERROR_MEMORY, "distinct: there is no memory for a list");
  if (n) memcpy(sorted, items->items, n * sizeof *sorted);
  qsort(sorted, n, sizeof *sorted, compare_values);
  *is_distinct = 1;
  for (size_t i = 1; i < n; i++) {
    int is_nan = sorted[i].tag == SVM_TAG_FLOAT && sorted[i].number != sorted[i].number;
    if (!is_nan && !compare_values(&sorted[i - 1], &sorted[i])) *is_distinct = 0;
  }
  free(sorted);
  return SVM_OK;
}

/* Half precision ------------------------------------------------------------------------------- */

static float float_of_bits(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static uint32_t bits_of_float(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

static float f16_to_float(uint16_t h) {
  int exponent = h >> 10 & 31, mantissa = h & 1023;
  float magnitude = exponent == 31 ? (mantissa ? NAN : INFINITY)
                    : exponent     ? ldexpf((float)(mantissa | 1024), exponent - 25)
                                   : ldexpf((float)mantissa, -24);
  return h >> 15 ? -magnitude : magnitude;
}

/* Nearest f16, ties to even; from double at once, so that nothing is rounded twice. */
static uint16_t f16_of_double(double d) {
  uint16_t sign = signbit(d) ? 0x8000 : 0;
  double a = fabs(d);
  if (isnan(a)) return (uint16_t)(sign | 0x7E00);
  if (a >= 65520) return (uint16_t)(sign | 0x7C00);
  int exponent = a == 0 ? -14 : ilogb(a);
  exponent = exponent < -14 ? -14 : exponent;
  int64_t units = (int64_t)nearbyint(ldexp(a, 10 - exponent)); /* 0 .. 2048 units of 2^(exponent - 10) */
  return (uint16_t)(sign | (units + ((int64_t)(exponent + 14) << 10)));
}

static uint16_t bf16_of_double(double d) {
  uint32_t bits = bits_of_float((float)d);
  if (isnan(d)) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* Elements ------------------------------------------------------------------------------------- */

value scalar_to_float(value a) {
  return a.tag == SVM_TAG_FLOAT ? a : (value){SVM_TAG_FLOAT, {.number = (double)a.integer}};
}

int32_t scalar_to_int(value a, value *out, svm_error *error) {
  if (a.tag == SVM_TAG_FLOAT && !(a.number >= -0x1p63 && a.number < 0x1p63)) {
    return status_fail(error, SVM_ERROR_OVERFLOW, "to_int: %g leaves 64 bits", a.number);
  }
  *out = (value){SVM_TAG_INT, {a.tag == SVM_TAG_FLOAT ? (int64_t)a.number : a.integer}};
  return SVM_OK;
}

/* The place of the element that `item` reads, in row-major order. */
static int32_t find_item(const value *r, const uint32_t *pc, int64_t *place, svm_error *error) {
  const tensor *a = r[pc[SVM_AT_ITEM_A(pc)]].tensor;
  const uint32_t *at = pc + SVM_AT_ITEM_AT(pc);
  int32_t n = (int32_t)*at++;
  *place = 0;
  if (n == 0 && a->n_elements != 1)
    return status_fail(error, SVM_ERROR_SHAPE, "item: a tensor of %" PRId64 " elements; it must have 1",
                       a->n_elements);
  if (n && n != a->rank)
    return status_fail(error, SVM_ERROR_INDEX, "item: %d indices of a tensor of rank %d", n, a->rank);
  for (int32_t i = 0; i < n; i++) {
    value v = r[at[i]];
    if (!SVM_FITS_ITEM_AT(v.tag)) return operands_check(r, pc, error);
    if (v.integer < 0 || v.integer >= a->sizes[i])
      return status_fail(error, SVM_ERROR_INDEX,
                         "item: index %" PRId64 " is out of range for axis %d, of size %" PRId64, v.integer,
                         i, a->sizes[i]);
    *place = *place * a->sizes[i] + v.integer;
  }
  return SVM_OK;
}

int32_t tensor_item(call *c, const value *r, const uint32_t *pc, value *out) {
  const tensor *a = r[pc[SVM_AT_ITEM_A(pc)]].tensor;
  int64_t place;
  if (find_item(r, pc, &place, c->error)) return c->error->code;
  union {
    uint8_t u8;
    int8_t i8;
    int16_t i16;
    uint16_t u16;
    int32_t i32;
    int64_t i64;
    float f32;
    double f64;
  } e;
  if (c->recorder && record_look(c, a->memory)) return c->error->code;
  storage_clear(a->memory);
  size_t size = (size_t)DTYPE_BYTES[a->dtype];
  memcpy(&e, (const char *)a->memory->data + (size_t)place * size, size);
  switch (a->dtype) {
    case SVM_DTYPE_BOOL: *out = (value){SVM_TAG_BOOL, {e.u8 != 0}}; break;
    case SVM_DTYPE_U8: *out = (value){SVM_TAG_INT, {e.u8}}; break;
    case SVM_DTYPE_I8: *out = (value){SVM_TAG_INT, {e.i8}}; break;
    case SVM_DTYPE_I16: *out = (value){SVM_TAG_INT, {e.i16}}; break;
    case SVM_DTYPE_I32: *out = (value){SVM_TAG_INT, {e.i32}}; break;
    case SVM_DTYPE_I64: *out = (value){SVM_TAG_INT, {e.i64}}; break;
    case SVM_DTYPE_F16: *out = (value){SVM_TAG_FLOAT, {.number = f16_to_float(e.u16)}}; break;
    case SVM_DTYPE_BF16:
      *out = (value){SVM_TAG_FLOAT, {.number = float_of_bits((uint32_t)e.u16 << 16)}};
      break;
    case SVM_DTYPE_F32: *out = (value){SVM_TAG_FLOAT, {.number = e.f32}}; break;
    default: *out = (value){SVM_TAG_FLOAT, {.number = e.f64}}; break;
  }
  return SVM_OK;
}

/* Write one element; ints wrap, as PyTorch's casts do. */
static void store_int(int32_t dtype, int64_t n, void *to) {
  if (dtype == SVM_DTYPE_BOOL) *(uint8_t *)to = n != 0;
  else memcpy(to, &n, (size_t)DTYPE_BYTES[dtype]); /* little-endian: the low bytes */
}

static void store_float(int32_t dtype, double d, void *to) {
  float f = (float)d;
  uint16_t half = dtype == SVM_DTYPE_F16 ? f16_of_double(d) : bf16_of_double(d);
  if (dtype == SVM_DTYPE_F64) memcpy(to, &d, sizeof d);
  else if (dtype == SVM_DTYPE_F32) memcpy(to, &f, sizeof f);
  else memcpy(to, &half, sizeof half);
}

int32_t tensor_scalar(call *c, int32_t dtype, value a, value *out) {
  value converted = {0};
  int is_float_dtype = dtype >= SVM_DTYPE_F16, is_bool = dtype == SVM_DTYPE_BOOL;
  int32_t code = SVM_OK;
  if (is_float_dtype || (is_bool && a.tag == SVM_TAG_FLOAT)) converted = scalar_to_float(a);
  else code = scalar_to_int(a, &converted, c->error);
  int64_t bytes = 0;
  if (code) return code;
  if (is_float_dtype) store_float(dtype, converted.number, &bytes);
  else if (converted.tag == SVM_TAG_FLOAT) bytes = converted.number != 0;
  else store_int(dtype, converted.integer, &bytes);
  int32_t n_bytes = DTYPE_BYTES[dtype];
  storage *memory =
      c->recorder ? record_scalar(c, n_bytes, bytes) : storage_make(&c->budget, n_bytes, c->error);
  if (!memory) return c->error->code;
  if (!c->recorder) memcpy(memory->data, &bytes, (size_t)n_bytes);
  return tensor_make(&c->budget, dtype, 0, NULL, memory, out, c->error);
}
