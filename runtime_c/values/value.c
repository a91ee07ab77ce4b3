/* Tagged values: construction, sharing, release, and the way in and out of the API. */
#include "values/value.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define DTYPE_BYTES_ROW(code, constant, name, bytes) [code] = bytes,
#define DTYPE_NAME_ROW(code, constant, name, bytes) [code] = name,
#define TAG_NAME_ROW(code, constant, name) [code] = name,
#define TAG_ARTICLE_ROW(code, constant, name) [code] = (name)[0] == 'i' ? "an " name : "a " name,
const int32_t DTYPE_BYTES[] = {SVM_DTYPES(DTYPE_BYTES_ROW)};
const char *const DTYPE_NAMES[] = {SVM_DTYPES(DTYPE_NAME_ROW)};
const int32_t N_DTYPES = sizeof DTYPE_BYTES / sizeof *DTYPE_BYTES;
static const char *const TAG_NAMES[] = {SVM_TAGS(TAG_NAME_ROW)};
static const char *const TAGS_WITH_ARTICLES[] = {SVM_TAGS(TAG_ARTICLE_ROW)};

const char *tag_name(int32_t tag) {
  int32_t n = (int32_t)(sizeof TAG_NAMES / sizeof *TAG_NAMES);
  return tag >= 0 && tag < n ? TAG_NAMES[tag] : "unknown";
}

const char *tag_with_article(int32_t tag) {
  int32_t n = (int32_t)(sizeof TAG_NAMES / sizeof *TAG_NAMES);
  if (tag == SVM_TAG_NONE) return "None";
  return tag >= 0 && tag < n ? TAGS_WITH_ARTICLES[tag] : "unknown";
}

/* Memory --------------------------------------------------------------------------------------- */

int32_t budget_take(memory_budget *budget, int64_t bytes, svm_error *error) {
  if (!budget) return SVM_OK;
  if (bytes > 0 && budget->max && bytes > budget->max - budget->used) {
    return status_fail(error, SVM_ERROR_LIMIT,
                       "memory_max: the call holds %" PRId64 " bytes and needs %" PRId64
                       " more, over the limit of %" PRId64 "; raise memory_max or use smaller inputs",
                       budget->used, bytes, budget->max);
  }
  budget->used += bytes;
  return SVM_OK;
}

static void budget_give_back(memory_budget *budget, int64_t bytes) {
  if (budget) budget->used -= bytes;
}

static void *take(memory_budget *budget, size_t n_bytes, svm_error *error) {
  if (budget_take(budget, (int64_t)n_bytes, error)) return NULL;
  void *memory = malloc(n_bytes);
  if (memory) return memory;
  budget_give_back(budget, (int64_t)n_bytes);
  status_fail(error, SVM_ERROR_MEMORY, "memory: malloc of %zu bytes failed; free memory or set memory_max",
              n_bytes);
  return NULL;
}

static void give_back(memory_budget *budget, void *memory, size_t n_bytes) {
  free(memory);
  budget_give_back(budget, (int64_t)n_bytes);
}

int64_t checked_elements(int32_t rank, const int64_t *sizes) {
  int64_t n = 1, nonzero = 1; /* sizes around a 0 must still fit: strides are computed from them */
  for (int32_t i = 0; i < rank; i++) {
    if (sizes[i] < 0 || (sizes[i] && __builtin_mul_overflow(nonzero, sizes[i], &nonzero))) return -1;
    n = sizes[i] ? n : 0;
  }
  return nonzero > INT64_C(1) << 62 ? -1 : n * nonzero;
}

int64_t checked_bytes(int32_t dtype, int64_t n_elements) {
  int64_t n_bytes;
  if (n_elements < 0 || __builtin_mul_overflow(n_elements, (int64_t)DTYPE_BYTES[dtype], &n_bytes)) return -1;
  return n_bytes > INT64_C(1) << 62 ? -1 : n_bytes;
}

/* Objects -------------------------------------------------------------------------------------- */

int value_is_object(value v) {
  return v.tag == SVM_TAG_TENSOR || v.tag == SVM_TAG_STR || v.tag == SVM_TAG_LIST || v.tag == SVM_TAG_TUPLE ||
         v.tag == SVM_TAG_DICT;
}

static size_t text_bytes(int64_t length) { return sizeof(text) + (size_t)length + 1; }
static size_t tensor_bytes(int32_t rank) { return sizeof(tensor) + (size_t)rank * sizeof(int64_t); }
static size_t sequence_bytes(int64_t capacity) { return sizeof(sequence) + (size_t)capacity * sizeof(value); }

/* Give back a text, a tensor or a container that nothing holds any more and that holds nothing. */
static void free_object(memory_budget *budget, svm_object *object) {
  if (object->tag == SVM_TAG_STR) {
    give_back(budget, object, text_bytes(((text *)object)->length));
  } else if (object->tag == SVM_TAG_TENSOR) {
    tensor *t = (tensor *)object;
    storage_release(budget, t->memory);
    give_back(budget, t, tensor_bytes(t->rank));
  } else {
    give_back(budget, object, sequence_bytes(((sequence *)object)->capacity));
  }
}

/* Free a container with what only it holds, at any nesting without recursion: the slot of a child that is
 * being freed holds its parent meanwhile (Schorr and Waite, "An efficient machine-independent procedure for
 * garbage collection", 1967). */
static void free_sequence(memory_budget *budget, sequence *s) {
  sequence *parent = NULL;
  s->length = sequence_n_values(s); /* of values from here on */
  for (;;) {
    while (s->length > 0) {
      value *slot = &s->items[--s->length], v = *slot;
      if (!value_is_object(v) || v.object->refs < 0 || --v.object->refs > 0) continue;
      if (v.tag == SVM_TAG_STR || v.tag == SVM_TAG_TENSOR) {
        free_object(budget, v.object);
        continue;
      }
      slot->sequence = parent;
      parent = s;
      s = v.sequence;
      s->length = sequence_n_values(s);
    }
    free_object(budget, &s->base);
    if (!(s = parent)) return;
    parent = s->items[s->length].sequence;
  }
}

void object_release(memory_budget *budget, svm_object *object) {
  if (object->refs < 0 || --object->refs > 0) return;
  if (object->tag == SVM_TAG_STR || object->tag == SVM_TAG_TENSOR) free_object(budget, object);
  else free_sequence(budget, (sequence *)object);
}

/* A string of that length to write into. */
static int32_t text_room(memory_budget *budget, int64_t length, value *result, svm_error *error) {
  text *made = take(budget, text_bytes(length), error);
  if (!made) return error->code;
  made->base = (svm_object){1, SVM_TAG_STR};
  made->length = length;
  made->bytes[length] = 0;
  *result = (value){SVM_TAG_STR, {.text = made}};
  return SVM_OK;
}

int32_t text_check_length(int64_t length, svm_error *error) {
  if (length <= SVM_LIMIT_STRING_BYTES) return SVM_OK;
  return status_fail(error, SVM_ERROR_LIMIT, "a string of %" PRId64 " bytes is over the limit of %d", length,
                     SVM_LIMIT_STRING_BYTES);
}

int32_t text_new(memory_budget *budget, int64_t length, value *result, svm_error *error) {
  return text_check_length(length, error) ? error->code : text_room(budget, length, result, error);
}

int32_t text_make(memory_budget *budget, const char *bytes, int64_t length, value *result, svm_error *error) {
  if (text_room(budget, length, result, error)) return error->code;
  memcpy(result->text->bytes, bytes, (size_t)length);
  return SVM_OK;
}

int32_t text_concat(memory_budget *budget, const text *a, const text *b, value *result, svm_error *error) {
  if (text_new(budget, a->length + b->length, result, error)) return error->code;
  memcpy(result->text->bytes, a->bytes, (size_t)a->length);
  memcpy(result->text->bytes + a->length, b->bytes, (size_t)b->length);
  return SVM_OK;
}

int text_compare(const text *a, const text *b) {
  int64_t n = a->length < b->length ? a->length : b->length;
  int order = memcmp(a->bytes, b->bytes, (size_t)n);
  return order ? order : (a->length > b->length) - (a->length < b->length);
}

int text_equal(const text *a, const text *b) {
  return a->length == b->length && memcmp(a->bytes, b->bytes, (size_t)a->length) == 0;
}

/* Storage and tensors -------------------------------------------------------------------------- */

enum { STORAGE_HEADER = 64 }; /* data that a storage owns starts here, 64-byte aligned */
_Static_assert(sizeof(storage) <= STORAGE_HEADER, "the header fits before the data");

static size_t storage_bytes(int64_t n_bytes) { return (STORAGE_HEADER + (size_t)n_bytes + 63) / 64 * 64; }

/* A storage's memory from the pool, NULL: it has none of that size. */
static storage *pool_take(storage_pool *pool, size_t size) {
  storage **first = pool && size / 64 < POOL_CLASSES ? &pool->free[size / 64] : NULL, *found = NULL;
  if (first && (found = *first)) {
    *first = found->data;
    pool->n_bytes -= (int64_t)size;
  }
  return found;
}

/* Whether the pool took it. */
static int pool_put(storage_pool *pool, storage *memory, size_t size) {
  if (!pool || size / 64 >= POOL_CLASSES || pool->n_bytes + (int64_t)size > POOL_BYTES) return 0;
  memory->data = pool->free[size / 64];
  pool->free[size / 64] = memory;
  pool->n_bytes += (int64_t)size;
  return 1;
}

void storage_pool_free(storage_pool *pool) {
  for (int32_t i = 0; i < POOL_CLASSES; i++) {
    for (storage *next; pool->free[i]; pool->free[i] = next) {
      next = pool->free[i]->data;
      free(pool->free[i]);
    }
  }
}

storage *storage_make(memory_budget *budget, int64_t n_bytes, svm_error *error) {
  size_t size = storage_bytes(n_bytes);
  if (budget_take(budget, (int64_t)size, error)) return NULL;
  storage_pool *pool = budget ? budget->pool : NULL;
  storage *made = pool_take(pool, size);
  int is_in_arena = !made && pool && size / 64 >= POOL_CLASSES && (made = arena_take(pool->arena, size));
  if (!made) made = aligned_alloc(64, size);
  if (!made) {
    budget_give_back(budget, (int64_t)size);
    status_fail(error, SVM_ERROR_MEMORY,
                "memory: a tensor of %" PRId64 " bytes does not fit; use smaller inputs", n_bytes);
    return NULL;
  }
  if (!is_in_arena) memory_advise(made, (int64_t)size);
  *made = (storage){.refs = 1,
                    .origin = SVM_ORIGIN_NEW,
                    .is_in_arena = (int16_t)is_in_arena,
                    .n_bytes = n_bytes,
                    .data = (char *)made + STORAGE_HEADER};
  return made;
}

storage *storage_over(memory_budget *budget, void *data, int64_t n_bytes, int32_t origin,
                      int32_t origin_index, svm_error *error) {
  storage *made = take(budget, sizeof *made, error);
  if (!made) return NULL;
  *made = (storage){.refs = 1,
                    .origin = origin,
                    .origin_index = origin_index,
                    .is_caller_memory = 1,
                    .n_bytes = n_bytes,
                    .data = data};
  return made;
}

storage *storage_part(memory_budget *budget, storage *of, int64_t begin, int64_t n_bytes, svm_error *error) {
  void *data = (void *)((uintptr_t)of->data + (uintptr_t)begin); /* of traced memory the offset alone */
  storage *made = storage_over(budget, data, n_bytes, SVM_ORIGIN_NEW, -1, error);
  if (!made) return NULL;
  made->whole = of->whole ? of->whole : of;
  if (made->whole->refs >= 0) made->whole->refs++; /* constants are immortal */
  return made;
}

void storage_clear(storage *memory) {
  if (!memory->is_unset) return; /* constants are shared: nothing is written there */
  memset(memory->data, 0, (size_t)memory->n_bytes);
  memory->is_unset = 0;
}

void storage_release(memory_budget *budget, storage *memory) {
  if (memory->refs < 0 || --memory->refs > 0) return;
  if (memory->release) memory->release(memory->context);
  if (memory->whole) storage_release(budget, memory->whole); /* which is no part */
  size_t size = memory->is_caller_memory ? sizeof *memory : storage_bytes(memory->n_bytes);
  int is_kept = 0;
  if (memory->is_in_arena) {
    if (budget) arena_give_back(budget->pool->arena, memory, size);
    is_kept = 1;
  } else if (budget && !memory->is_caller_memory) {
    is_kept = pool_put(budget->pool, memory, size);
  }
  if (is_kept) budget_give_back(budget, (int64_t)size);
  else give_back(budget, memory, size);
}

int32_t tensor_make(memory_budget *budget, int32_t dtype, int32_t rank, const int64_t *sizes, storage *memory,
                    value *result, svm_error *error) {
  tensor *made = take(budget, tensor_bytes(rank), error);
  if (!made) {
    storage_release(budget, memory);
    return error->code;
  }
  made->base = (svm_object){1, SVM_TAG_TENSOR};
  made->dtype = dtype;
  made->rank = rank;
  made->n_elements = checked_elements(rank, sizes);
  made->memory = memory;
  if (rank) memcpy(made->sizes, sizes, (size_t)rank * sizeof *sizes);
  *result = (value){SVM_TAG_TENSOR, {.tensor = made}};
  return SVM_OK;
}

/* Containers ----------------------------------------------------------------------------------- */

static int32_t depth_of(value v) {
  return value_is_object(v) && v.tag != SVM_TAG_STR && v.tag != SVM_TAG_TENSOR ? v.sequence->depth : 0;
}

static int32_t check_depth(const memory_budget *budget, int32_t tag, int32_t depth, svm_error *error) {
  int32_t most = budget ? budget->max_nesting : SVM_LIMIT_NESTING;
  if (depth <= most) return SVM_OK;
  return status_fail(error, SVM_ERROR_LIMIT,
                     "nesting: a %s holds containers %d deep, over the limit of %d; %s", tag_name(tag), depth,
                     most, most < SVM_LIMIT_NESTING ? "raise nesting, or flatten it" : "flatten it");
}

int32_t nesting_check(const memory_budget *budget, value v, svm_error *error) {
  return check_depth(budget, v.tag, depth_of(v), error);
}

static int is_key(value v) { return v.tag == SVM_TAG_INT || v.tag == SVM_TAG_STR; }

static int keys_equal(value a, value b) {
  if (a.tag != b.tag) return 0;
  if (a.tag == SVM_TAG_INT) return a.integer == b.integer;
  return text_equal(a.text, b.text);
}

/* Put the pairs into the dict; a later value of an equal key replaces the earlier one, as in Python. */
static void fill_dict(memory_budget *budget, sequence *s, int64_t n, const value *items) {
  for (int64_t i = 0; i < n; i += 2) {
    int64_t at = 0;
    while (at < s->length && !keys_equal(s->items[2 * at], items[i])) at++;
    value_retain(items[i + 1]);
    if (at < s->length) {
      value_drop(budget, &s->items[2 * at + 1]);
    } else {
      value_retain(items[i]);
      s->items[2 * s->length++] = items[i];
    }
    s->items[2 * at + 1] = items[i + 1];
  }
}

int32_t sequence_make(memory_budget *budget, int32_t tag, int64_t n, const value *items, value *result,
                      svm_error *error) {
  int32_t depth = 0;
  for (int64_t i = 0; i < n; i++) {
    if (tag == SVM_TAG_DICT && i % 2 == 0 && !is_key(items[i])) {
      return status_fail(error, SVM_ERROR_KIND, "dict: key %" PRId64 " is a %s; keys are int or str", i / 2,
                         tag_name(items[i].tag));
    }
    depth = depth_of(items[i]) > depth ? depth_of(items[i]) : depth;
  }
  if (check_depth(budget, tag, depth + 1, error)) return SVM_ERROR_LIMIT;
  sequence *made = take(budget, sequence_bytes(n), error);
  if (!made) return error->code;
  made->base = (svm_object){1, tag};
  made->capacity = n;
  made->depth = depth + 1;
  made->length = 0;
  if (tag == SVM_TAG_DICT) {
    fill_dict(budget, made, n, items);
  } else {
    for (int64_t i = 0; i < n; i++) value_retain(made->items[i] = items[i]);
    made->length = n;
  }
  *result = (value){tag, {.sequence = made}};
  return SVM_OK;
}

/* A list with room for one more value, of which the caller has the only reference. */
static sequence *make_room(memory_budget *budget, sequence *s, svm_error *error) {
  int alone = s->base.refs == 1;
  if (alone && s->length < s->capacity) return s;
  int64_t capacity = s->length + s->length / 2 + 4;
  sequence *made = take(budget, sequence_bytes(capacity), error);
  if (!made) return NULL;
  memcpy(made, s, sequence_bytes(s->length));
  made->base.refs = 1;
  made->capacity = capacity;
  for (int64_t i = 0; i < made->length; i++) value_retain(made->items[i]);
  object_release(budget, &s->base);
  return made;
}

int32_t sequence_append(memory_budget *budget, value list, value item, value *result, svm_error *error) {
  int32_t depth = depth_of(item) + 1;
  int32_t code = check_depth(budget, SVM_TAG_LIST, depth, error);
  sequence *s = code ? NULL : make_room(budget, list.sequence, error);
  if (!s) {
    value_drop(budget, &list);
    return error->code;
  }
  value_retain(s->items[s->length++] = item);
  s->depth = depth > s->depth ? depth : s->depth;
  *result = (value){SVM_TAG_LIST, {.sequence = s}};
  return SVM_OK;
}

/* The depth of a list whose elements may have become less deep. */
static void measure_depth(sequence *s) {
  s->depth = 1;
  for (int64_t i = 0; i < s->length; i++) {
    int32_t depth = depth_of(s->items[i]) + 1;
    s->depth = depth > s->depth ? depth : s->depth;
  }
}

/* The list itself if the caller has the only reference, else a copy; takes over the reference. */
static sequence *make_own(memory_budget *budget, sequence *s, svm_error *error) {
  if (s->base.refs == 1) return s;
  value made;
  int32_t code = sequence_make(budget, SVM_TAG_LIST, s->length, s->items, &made, error);
  object_release(budget, &s->base);
  return code ? NULL : made.sequence;
}

int32_t sequence_set(memory_budget *budget, value list, int64_t index, value item, value *result,
                     svm_error *error) {
  int32_t depth = depth_of(item) + 1, code = check_depth(budget, SVM_TAG_LIST, depth, error);
  int64_t length = list.sequence->length;
  if (!code && (index < 0 || index >= length))
    code = status_fail(error, SVM_ERROR_INDEX, "set: %" PRId64 " is not in the list of %" PRId64 " elements",
                       index, length);
  if (code) {
    value_drop(budget, &list);
    return code;
  }
  sequence *s = make_own(budget, list.sequence, error);
  if (!s) return error->code;
  int32_t before = depth_of(s->items[index]) + 1;
  value_retain(item);
  value_drop(budget, &s->items[index]);
  s->items[index] = item;
  if (depth > s->depth) s->depth = depth;
  else if (before == s->depth && depth < before) measure_depth(s);
  *result = (value){SVM_TAG_LIST, {.sequence = s}};
  return SVM_OK;
}

int32_t sequence_slice(memory_budget *budget, value list, int64_t begin, int64_t end, value *result,
                       svm_error *error) {
  sequence *s = list.sequence;
  int32_t code = SVM_OK;
  if (begin < 0 || end < begin || end > s->length) {
    code = status_fail(error, SVM_ERROR_INDEX,
                       "slice: %" PRId64 " .. %" PRId64 " is not in the list of %" PRId64 " elements", begin,
                       end, s->length);
  } else if (s->base.refs == 1 && begin == 0) {
    while (s->length > end) value_drop(budget, &s->items[--s->length]);
    if (s->depth > 1) measure_depth(s);
    *result = list;
    return SVM_OK;
  } else {
    code = sequence_make(budget, SVM_TAG_LIST, end - begin, s->items + begin, result, error);
  }
  value_drop(budget, &list);
  return code;
}

static int32_t fail_key(const sequence *s, value key, svm_error *error) {
  if (key.tag == SVM_TAG_INT) {
    int32_t code = s->base.tag == SVM_TAG_DICT ? SVM_ERROR_KEY : SVM_ERROR_INDEX;
    return status_fail(error, code, "get: %" PRId64 " is not in the %s of %" PRId64 " elements", key.integer,
                       tag_name(s->base.tag), s->length);
  }
  if (s->base.tag == SVM_TAG_DICT && key.tag == SVM_TAG_STR) {
    return status_fail(error, SVM_ERROR_KEY, "get: key \"%.200s\" is not in the dict of %" PRId64 " elements",
                       key.text->bytes, s->length);
  }
  return status_fail(error, SVM_ERROR_KIND, "get: a %s has no key of type %s", tag_name(s->base.tag),
                     tag_name(key.tag));
}

int32_t sequence_get(const sequence *s, value key, value *result, svm_error *error) {
  if (s->base.tag == SVM_TAG_DICT && is_key(key)) {
    for (int64_t i = 0; i < s->length; i++) {
      if (keys_equal(s->items[2 * i], key)) return *result = s->items[2 * i + 1], SVM_OK;
    }
  } else if (s->base.tag != SVM_TAG_DICT && key.tag == SVM_TAG_INT && key.integer >= 0 &&
             key.integer < s->length) {
    return *result = s->items[key.integer], SVM_OK;
  }
  return fail_key(s, key, error);
}
