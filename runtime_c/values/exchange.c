/* Values crossing the API: descriptions of values for the caller, and values made from the caller's. */
#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "values/strided.h"
#include "values/value.h"

static void export_tensor(const tensor *t, svm_value *out) {
  out->origin = t->memory->origin;
  out->origin_index = t->memory->origin == SVM_ORIGIN_INPUT ? t->memory->origin_index : -1;
  out->tensor.data = t->memory->data;
  out->tensor.dtype = t->dtype;
  out->tensor.rank = t->rank;
  if (t->rank) memcpy(out->tensor.sizes, t->sizes, (size_t)t->rank * sizeof *t->sizes);
}

void value_export(value v, int owned, svm_value *out) {
  memset(out, 0, sizeof *out);
  out->tag = v.tag;
  if (v.tag == SVM_TAG_FLOAT) {
    out->number = v.number;
  } else if (!value_is_object(v)) {
    out->integer = v.tag == SVM_TAG_NONE ? 0 : v.integer;
  } else {
    out->owner = owned && v.object->refs >= 0 ? v.object : NULL;
    if (v.tag == SVM_TAG_TENSOR) {
      export_tensor(v.tensor, out);
    } else if (v.tag == SVM_TAG_STR) {
      out->text = v.text->bytes;
      out->length = v.text->length;
    } else {
      out->length = v.sequence->length;
      out->text = (const char *)v.object; /* where svm_value_item finds a borrowed container */
    }
  }
}

static int32_t import_tensor(memory_budget *budget, const svm_tensor *in, value *result, svm_error *error) {
  int32_t code = strided_check("tensor", in, error);
  if (code) return code;
  int64_t n = checked_elements(in->rank, in->sizes);
  storage *memory = storage_make(budget, checked_bytes(in->dtype, n), error);
  if (!memory) return error->code;
  strided_copy(memory->data, in);
  return tensor_make(budget, in->dtype, in->rank, in->sizes, memory, result, error);
}

static int32_t import_text(memory_budget *budget, const svm_value *in, value *result, svm_error *error) {
  if (in->length < 0)
    return status_fail(error, SVM_ERROR_ARGUMENT, "a string has the length %" PRId64 "; it must be 0 or more",
                       in->length);
  if (in->length && status_need(in->text, "the text of a string", error)) return error->code;
  if (text_check_length(in->length, error)) return error->code;
  return text_make(budget, in->length ? in->text : "", in->length, result, error);
}

int32_t value_import(memory_budget *budget, const svm_value *in, value *result, svm_error *error) {
  int is_container = in->tag == SVM_TAG_LIST || in->tag == SVM_TAG_TUPLE || in->tag == SVM_TAG_DICT;
  if (in->owner || is_container) {
    svm_object *object = in->owner ? in->owner : (svm_object *)in->text;
    if (!object) {
      return status_fail(error, SVM_ERROR_ARGUMENT, "a %s without elements; make it with svm_value_make",
                         tag_name(in->tag));
    }
    value made = {object->tag, {.object = object}};
    if (nesting_check(budget, made, error)) return error->code;
    value_retain(made);
    *result = made;
    return SVM_OK;
  }
  switch (in->tag) {
    case SVM_TAG_NONE: *result = (value){SVM_TAG_NONE, {0}}; return SVM_OK;
    case SVM_TAG_BOOL: *result = (value){SVM_TAG_BOOL, {in->integer != 0}}; return SVM_OK;
    case SVM_TAG_INT: *result = (value){SVM_TAG_INT, {in->integer}}; return SVM_OK;
    case SVM_TAG_FLOAT: *result = (value){SVM_TAG_FLOAT, {.number = in->number}}; return SVM_OK;
    case SVM_TAG_STR: return import_text(budget, in, result, error);
    case SVM_TAG_TENSOR: return import_tensor(budget, &in->tensor, result, error);
    default:
      return status_fail(error, SVM_ERROR_ARGUMENT, "a value of tag %d cannot come from outside", in->tag);
  }
}

/* The API -------------------------------------------------------------------------------------- */

int32_t svm_value_item(const svm_value *container, int64_t index, svm_value *key, svm_value *item) {
  if (!container || !item) return SVM_ERROR_ARGUMENT;
  int is_dict = container->tag == SVM_TAG_DICT;
  const sequence *s = (const sequence *)(container->owner ? (const char *)container->owner : container->text);
  if (!is_dict && container->tag != SVM_TAG_LIST && container->tag != SVM_TAG_TUPLE)
    return SVM_ERROR_ARGUMENT;
  if (!s || index < 0 || index >= s->length) return SVM_ERROR_ARGUMENT;
  if (key) value_export(is_dict ? s->items[2 * index] : (value){SVM_TAG_INT, {index}}, 0, key);
  value_export(s->items[is_dict ? 2 * index + 1 : index], 0, item);
  return SVM_OK;
}

int32_t svm_value_make(int32_t tag, const svm_value *items, int64_t n, svm_value *result, svm_error *error) {
  svm_error unasked;
  error = error ? error : &unasked;
  if (status_need(result, "svm_value_make: result", error)) return error->code;
  if (n > 0 && status_need(items, "svm_value_make: items", error)) return error->code;
  int is_container = tag == SVM_TAG_LIST || tag == SVM_TAG_TUPLE || tag == SVM_TAG_DICT;
  if (!is_container || n < 0 || (tag == SVM_TAG_DICT && n % 2)) {
    return status_fail(error, SVM_ERROR_ARGUMENT, "svm_value_make: %" PRId64 " values make no %s", n,
                       tag_name(tag));
  }
  value made, item;
  int32_t code = sequence_make(NULL, SVM_TAG_LIST, 0, NULL, &made, error);
  for (int64_t i = 0; !code && i < n; i++) {
    code = value_import(NULL, &items[i], &item, error);
    if (code) {
      value_drop(NULL, &made);
      return code;
    }
    code = sequence_append(NULL, made, item, &made, error);
    value_drop(NULL, &item);
  }
  if (code) return code;
  if (tag == SVM_TAG_LIST) return value_export(made, 1, result), SVM_OK;
  value list = made;
  code = sequence_make(NULL, tag, n, list.sequence->items, &made, error);
  value_drop(NULL, &list);
  if (!code) value_export(made, 1, result);
  return code;
}

int32_t svm_value_tensor(int32_t dtype, int32_t rank, const int64_t *sizes, svm_value *result,
                         svm_error *error) {
  svm_error unasked;
  error = error ? error : &unasked;
  if (status_need(result, "svm_value_tensor: result", error)) return error->code;
  if (rank > 0 && status_need(sizes, "svm_value_tensor: sizes", error)) return error->code;
  svm_tensor like = {.dtype = dtype, .rank = rank, .data = result};
  if (rank > 0 && rank <= SVM_MAX_RANK) memcpy(like.sizes, sizes, (size_t)rank * sizeof *sizes);
  int32_t code = strided_check("new tensor", &like, error);
  if (code) return code;
  storage *memory = storage_make(NULL, checked_bytes(dtype, checked_elements(rank, sizes)), error);
  value made;
  if (!memory) return error->code;
  code = tensor_make(NULL, dtype, rank, sizes, memory, &made, error);
  if (!code) value_export(made, 1, result);
  return code;
}

int32_t svm_value_over(const svm_tensor *tensor, void (*release)(void *context), void *context,
                       svm_value *result, svm_error *error) {
  svm_error unasked;
  error = error ? error : &unasked;
  storage *memory = NULL;
  value made;
  if (!status_need(tensor, "svm_value_over: tensor", error) &&
      !status_need(result, "svm_value_over: result", error) &&
      !strided_check_lent("svm_value_over: tensor", tensor, error)) {
    int64_t n_bytes = checked_bytes(tensor->dtype, checked_elements(tensor->rank, tensor->sizes));
    memory = storage_over(NULL, tensor->data, n_bytes, SVM_ORIGIN_NEW, -1, error);
  }
  if (!memory) {
    if (release) release(context);
    return error->code;
  }
  memory->release = release;
  memory->context = context;
  int32_t code = tensor_make(NULL, tensor->dtype, tensor->rank, tensor->sizes, memory, &made, error);
  if (!code) value_export(made, 1, result);
  return code;
}

void svm_value_release(svm_value *value) {
  if (!value) return;
  if (value->owner) object_release(NULL, value->owner);
  memset(value, 0, sizeof *value);
}
