/* Tagged values in registers, and the refcounted immutable objects that they hold.
 *
 * Counts are plain ints: an object belongs to one context until it is handed to the caller. Objects of a
 * program (constants) are shared by all threads and immortal: their count is negative and never changes. */
#pragma once

#include <stddef.h>

#include "svm.h"
#include "base/arena_memory.h"

enum { IMMORTAL = -1 };

enum { POOL_CLASSES = 128, POOL_BYTES = 1 << 18 };

/* Small storages that calls of one context gave back, for the next ones: `free[n]` of n times 64 bytes, each
 * with a pointer to the next. At most POOL_BYTES in all. Larger ones are in the arena, NULL: there is none.
 */
typedef struct storage_pool {
  arena *arena;
  struct storage *free[POOL_CLASSES];
  int64_t n_bytes;
} storage_pool;

void storage_pool_free(storage_pool *pool);

/* Bytes that one call holds, and how many it may hold (0: no limit); the maximum nesting of its containers.
 * NULL: not counted. `pool`: of its storages, NULL: malloc. */
typedef struct memory_budget {
  int64_t used, max;
  int32_t max_nesting;
  storage_pool *pool;
} memory_budget;

struct svm_object {
  int32_t refs;
  int32_t tag;
};

typedef struct text {
  svm_object base;
  int64_t length; /* bytes, without the zero at the end */
  char bytes[];
} text;

/* Memory of one or several tensors (views). `origin`: SVM_ORIGIN_...; `origin_index`: which input, or the
 * number of a traced storage, which has no memory yet (data NULL). Only storage of origin NEW is written. */
typedef struct storage {
  int32_t refs;
  int32_t origin;
  int32_t origin_index;
  int16_t is_caller_memory; /* the data is not part of this object */
  int16_t is_in_arena;      /* of a context: it ends with the call */
  int32_t is_written;       /* an input that kernels may write to */
  int32_t is_unset;         /* nothing was written yet: zeroed on first read (storage_clear) */
  int64_t n_bytes;
  void *data;
  void (*release)(void *context); /* of a host's memory, NULL for any other */
  void *context;
  struct storage *whole; /* of which this is a read-only part; NULL: none */
} storage;

/* A contiguous tensor over all of its storage. */
typedef struct tensor {
  svm_object base;
  int32_t dtype, rank;
  int64_t n_elements;
  storage *memory;
  int64_t sizes[];
} tensor;

typedef struct value {
  int32_t tag;
  union {
    int64_t integer; /* bool, int, function */
    double number;
    svm_object *object;
    text *text;
    tensor *tensor;
    struct sequence *sequence;
  };
} value;

/* A list or tuple of `length` values; a dict of `length` pairs, key before value. */
typedef struct sequence {
  svm_object base;
  int64_t length, capacity; /* capacity in values */
  int32_t depth;            /* of nesting: bounded, so that walking one recurses no deeper */
  value items[];
} sequence;

extern const int32_t DTYPE_BYTES[];
extern const char *const DTYPE_NAMES[];
extern const int32_t N_DTYPES;
const char *tag_name(int32_t tag);
const char *tag_with_article(int32_t tag);

/* Count bytes that a call holds; SVM_OK or the limit's error. */
int32_t budget_take(memory_budget *budget, int64_t bytes, svm_error *error);

int value_is_object(value v);
void object_release(memory_budget *budget, svm_object *object);

static inline void value_retain(value v) {
  if (value_is_object(v) && v.object->refs >= 0) v.object->refs++;
}

static inline void value_drop(memory_budget *budget, value *v) {
  if (value_is_object(*v)) object_release(budget, v->object);
  v->tag = SVM_TAG_NONE;
}

/* Product of sizes >= 0 and of an element's bytes; -1 when negative or over 2^62. */
int64_t checked_elements(int32_t rank, const int64_t *sizes);
int64_t checked_bytes(int32_t dtype, int64_t n_elements);

/* A string of that length for the caller to write into; an error where that is over SVM_LIMIT_STRING_BYTES.
 */
int32_t text_new(memory_budget *budget, int64_t length, value *result, svm_error *error);
int32_t text_check_length(int64_t length, svm_error *error);

int32_t text_make(memory_budget *budget, const char *bytes, int64_t length, value *result, svm_error *error);
int32_t text_concat(memory_budget *budget, const text *a, const text *b, value *result, svm_error *error);
int text_compare(const text *a, const text *b); /* below 0, 0 or above, by their bytes */
int text_equal(const text *a, const text *b);

/* Memory of n_bytes >= 0 (64-byte aligned), or the caller's (`caller_memory`: `data` is used). */
storage *storage_make(memory_budget *budget, int64_t n_bytes, svm_error *error);
storage *storage_over(memory_budget *budget, void *data, int64_t n_bytes, int32_t origin,
                      int32_t origin_index, svm_error *error);
void storage_release(memory_budget *budget, storage *memory);

/* Some bytes of another storage, which it keeps. */
storage *storage_part(memory_budget *budget, storage *of, int64_t begin, int64_t n_bytes, svm_error *error);

/* Whether kernels may write to it. */
static inline int storage_is_writable(const storage *memory) {
  return (memory->origin == SVM_ORIGIN_NEW && !memory->whole) || memory->is_written;
}

/* Fill memory into which nothing was written yet with zeros. */
void storage_clear(storage *memory);

/* A tensor over `memory`, whose reference it takes over (also when failing). The caller checked sizes and
 * bytes. */
int32_t tensor_make(memory_budget *budget, int32_t dtype, int32_t rank, const int64_t *sizes, storage *memory,
                    value *result, svm_error *error);

/* A list, tuple or dict of n values (dict: n = 2 * pairs), which it retains. */
int32_t sequence_make(memory_budget *budget, int32_t tag, int64_t n, const value *items, value *result,
                      svm_error *error);

/* Comparisons of keys that making a dict of n values takes at most. */
static inline int64_t sequence_n_compared(int64_t n) { return n / 2 * (n / 2 - 1) / 2; }

/* `list` with `item` after it; takes over the caller's reference to `list`, in place if it is the only one.
 */
int32_t sequence_append(memory_budget *budget, value list, value item, value *result, svm_error *error);

/* `list` with `item` at `index`; takes over the caller's reference to `list`, in place if it is the only one.
 */
int32_t sequence_set(memory_budget *budget, value list, int64_t index, value item, value *result,
                     svm_error *error);

/* Elements begin .. end - 1 of `list`; takes over the caller's reference to it, in place if it is the only
 * one and begin is 0. */
int32_t sequence_slice(memory_budget *budget, value list, int64_t begin, int64_t end, value *result,
                       svm_error *error);

/* Value of `key` in the sequence, borrowed. */
int32_t sequence_get(const sequence *s, value key, value *result, svm_error *error);

/* Refuse a value that nests deeper than the budget has it; no budget: than SVM_LIMIT_NESTING. */
int32_t nesting_check(const memory_budget *budget, value v, svm_error *error);

/* Number of values that `items` holds. */
static inline int64_t sequence_n_values(const sequence *s) {
  return s->base.tag == SVM_TAG_DICT ? 2 * s->length : s->length;
}

/* For the API: describe `v` (the reference goes to out->owner if `owned`), and make a value from what came
 * in. */
void value_export(value v, int owned, svm_value *out);
int32_t value_import(memory_budget *budget, const svm_value *in, value *result, svm_error *error);
