/* Results: memory for the tensors that a call returns, and their description for the caller. Every new tensor
 * has separate memory; a tensor that is an input or a constant is marked as such. */
#include "run/results.h"

#include <string.h>

#include "base/status.h"
#include "base/utf8.h"

static svm_tensor describe(const tensor *t, void *data) {
  svm_tensor out = {.data = data, .dtype = t->dtype, .rank = t->rank};
  if (t->rank) memcpy(out.sizes, t->sizes, (size_t)t->rank * sizeof *t->sizes);
  return out;
}

/* Memory of a leaf: from the allocator, or as a storage (*owner). */
static void *allocate(const output_binding *b, const tensor *t, int32_t leaf, storage **owner) {
  *owner = NULL;
  if (budget_take(&b->call->budget, t->memory->n_bytes, b->error)) return NULL;
  if (!b->allocator) {
    *owner = storage_make(NULL, t->memory->n_bytes, b->error);
    return *owner ? (*owner)->data : NULL;
  }
  svm_tensor like = describe(t, NULL);
  void *data = b->allocator->allocate(b->allocator->context, leaf, &like, (size_t)t->memory->n_bytes);
  if (data) memory_advise(data, t->memory->n_bytes);
  else
    status_fail(b->error, SVM_ERROR_MEMORY, "memory: the caller's allocator refused %lld bytes for a result",
                (long long)t->memory->n_bytes);
  return data;
}

static void give_back(const output_binding *b, int32_t leaf, void *data, storage *owner) {
  if (owner) storage_release(NULL, owner);
  else if (data && b->allocator && b->allocator->release)
    b->allocator->release(b->allocator->context, leaf, data);
}

int32_t output_binding_prepare(output_binding *b) {
  for (int32_t i = 0; i < b->plan->n_outputs; i++) {
    const plan_output *o = &b->plan->outputs[i];
    b->made[i] = allocate(b, o->tensor, o->leaf, &b->owners[i]);
    if (b->made[i]) continue;
    while (i-- > 0) give_back(b, b->plan->outputs[i].leaf, b->made[i], b->owners[i]);
    return b->error->code;
  }
  return SVM_OK;
}

void output_binding_undo(output_binding *b) {
  for (int32_t i = 0; b->plan && i < b->plan->n_outputs; i++)
    give_back(b, b->plan->outputs[i].leaf, b->made[i], b->owners[i]);
}

/* Where the elements of a returned tensor are now. */
static void *find_data(const output_binding *b, storage *s) {
  if (!b->plan) storage_clear(s);
  if (s->origin == SVM_ORIGIN_INPUT) return b->input_data[s->origin_index];
  return s->origin == SVM_ORIGIN_NEW && b->plan ? b->made[s->origin_index] : s->data;
}

static int is_alias(const output_binding *b, const storage *s) {
  return s->origin == SVM_ORIGIN_CONSTANT ||
         (s->origin == SVM_ORIGIN_INPUT && !(b->is_copied && b->is_copied[s->origin_index]));
}

/* One tensor as an svm_value; `owned` ones carry an object. */
static int32_t bind_tensor(output_binding *b, const tensor *t, svm_value *out) {
  int32_t leaf = b->n_leaves++;
  storage *s = t->memory, *owner = NULL;
  void *from = find_data(b, s), *data = from;
  int is_prepared = b->plan && s->origin == SVM_ORIGIN_NEW && b->plan->outputs[s->origin_index].leaf == leaf;
  memset(out, 0, sizeof *out);
  out->tag = SVM_TAG_TENSOR;
  out->origin = is_alias(b, s) ? s->origin : SVM_ORIGIN_NEW;
  out->origin_index = out->origin == SVM_ORIGIN_INPUT ? s->origin_index : -1;
  int is_ours_alone = !b->plan && !b->allocator && s->origin == SVM_ORIGIN_NEW && !s->is_in_arena &&
                      !s->whole && s->refs == 1 && t->base.refs == 1;
  if (is_prepared) {
    owner = b->owners[s->origin_index];
  } else if (is_ours_alone) {
    owner = s;
  } else if (!is_alias(b, s)) {
    data = allocate(b, t, leaf, &owner);
    if (!data) return b->error->code;
    if (s->n_bytes) memcpy(data, from, (size_t)s->n_bytes);
  }
  out->tensor = describe(t, data);
  if (!owner) return SVM_OK;
  value made;
  if (owner == s || is_prepared) owner->refs++; /* the other is the interpreter's, or output_binding_undo's */
  int32_t code = tensor_make(NULL, t->dtype, t->rank, t->sizes, owner, &made, b->error);
  if (!code) out->owner = made.object;
  return code;
}

/* A tensor inside of a container becomes a value again, over the memory of its description. Not inlined: what
 * walks containers is to need little stack. */
static __attribute__((noinline)) int32_t rebuild_tensor(output_binding *b, const tensor *t, value *out) {
  svm_value described;
  int32_t code = bind_tensor(b, t, &described);
  if (code) return code;
  if (described.owner) {
    *out = (value){SVM_TAG_TENSOR, {.object = described.owner}};
    return SVM_OK;
  }
  storage *s = storage_over(NULL, described.tensor.data, t->memory->n_bytes, described.origin,
                            described.origin_index, b->error);
  return s ? tensor_make(NULL, t->dtype, t->rank, t->sizes, s, out, b->error) : b->error->code;
}

static int32_t rebuild(output_binding *b, value v, value *out);

/* A container of the host's. */
static int32_t rebuild_sequence(output_binding *b, value v, value *out) {
  const sequence *s = v.sequence;
  int64_t n = sequence_n_values(s);
  value items; /* a list that grows, then becomes what v is */
  int32_t code = budget_take(&b->call->budget, (int64_t)sizeof *s + n * (int64_t)sizeof(value), b->error);
  if (!code && v.tag == SVM_TAG_DICT) code = call_spend(b->call, sequence_n_compared(n));
  if (!code) code = sequence_make(NULL, SVM_TAG_LIST, 0, NULL, &items, b->error);
  for (int64_t i = 0; !code && i < n; i++) {
    value item;
    code = rebuild(b, s->items[i], &item);
    if (code) {
      value_drop(NULL, &items);
      break;
    }
    code = sequence_append(NULL, items, item, &items, b->error);
    value_drop(NULL, &item);
  }
  if (code) return code;
  code = sequence_make(NULL, v.tag, n, items.sequence->items, out, b->error);
  value_drop(NULL, &items);
  return code;
}

/* A value of the host's; a container that comes twice is one, as in the program. */
static int32_t rebuild(output_binding *b, value v, value *out) {
  if (call_spend(b->call, 1)) return b->error->code;
  if (v.tag == SVM_TAG_TENSOR) return rebuild_tensor(b, v.tensor, out);
  *out = v;
  if (!value_is_object(v)) return SVM_OK;
  if (v.tag == SVM_TAG_STR) {
    if (!utf8_is_valid((const uint8_t *)v.text->bytes, (size_t)v.text->length)) {
      return status_fail(b->error, SVM_ERROR_KIND,
                         "a result is a str that is no UTF-8: the program cut it within a character");
    }
    int32_t code = budget_take(&b->call->budget, v.text->length, b->error);
    return code ? code : text_make(NULL, v.text->bytes, v.text->length, out, b->error);
  }
  svm_object *earlier = pointer_map_get(&b->copies, v.object);
  if (earlier) {
    *out = (value){v.tag, {.object = earlier}};
    value_retain(*out);
    return SVM_OK;
  }
  if (rebuild_sequence(b, v, out)) return b->error->code;
  if (!pointer_map_put(&b->copies, v.object, out->object)) return SVM_OK;
  value_drop(NULL, out);
  return status_fail(b->error, SVM_ERROR_MEMORY, "memory: there is none for the results of a call");
}

void output_binding_free(output_binding *b) { pointer_map_free(&b->copies); }

static int32_t bind_output(output_binding *b, value v, svm_value *out) {
  if (v.tag == SVM_TAG_TENSOR) return bind_tensor(b, v.tensor, out);
  value made;
  int32_t code = rebuild(b, v, &made);
  if (!code) value_export(made, 1, out);
  return code;
}

int32_t output_binding_finish(output_binding *b, value *results, int32_t n, svm_value *outputs) {
  for (int32_t i = 0; i < n; i++) {
    if (!bind_output(b, results[i], &outputs[i])) {
      if (!b->plan) value_drop(&b->call->budget, &results[i]);
      continue;
    }
    for (int32_t j = 0; j <= i; j++) svm_value_release(&outputs[j]);
    return b->error->code;
  }
  for (int32_t i = 0; b->plan && i < b->plan->n_outputs; i++) {
    if (b->owners[i]) storage_release(NULL, b->owners[i]); /* the outputs have theirs */
  }
  return SVM_OK;
}
