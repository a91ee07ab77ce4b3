/* Results: memory for the tensors that a call returns, and their description for the caller. Every new tensor
 * has memory of its own; a tensor that is an input or a constant says so instead. */
#include <string.h>

#include "base/status.h"
#include "run/run.h"

static svm_tensor describe(const tensor *t, void *data) {
  svm_tensor out = {.data = data, .dtype = t->dtype, .rank = t->rank};
  if (t->rank) memcpy(out.sizes, t->sizes, (size_t)t->rank * sizeof *t->sizes);
  return out;
}

/* Memory of a leaf: from the allocator, or as a storage (*owner). */
static void *allocate(const delivery *d, const tensor *t, int32_t leaf, storage **owner) {
  *owner = NULL;
  if (heap_count(&d->call->heap, t->memory->n_bytes, d->error)) return NULL;
  if (!d->allocator) {
    *owner = storage_make(NULL, t->memory->n_bytes, d->error);
    return *owner ? (*owner)->data : NULL;
  }
  svm_tensor like = describe(t, NULL);
  void *data = d->allocator->allocate(d->allocator->context, leaf, &like, (size_t)t->memory->n_bytes);
  if (data)
    memory_advise(data, t->memory->n_bytes);
  else
    status_fail(d->error, SVM_ERROR_MEMORY, "memory: the caller's allocator refused %lld bytes for a result",
                (long long)t->memory->n_bytes);
  return data;
}

static void give_back(const delivery *d, int32_t leaf, void *data, storage *owner) {
  if (owner) storage_release(NULL, owner);
  else if (data && d->allocator && d->allocator->release)
    d->allocator->release(d->allocator->context, leaf, data);
}

int32_t delivery_prepare(delivery *d) {
  for (int32_t i = 0; i < d->plan->n_outputs; i++) {
    const plan_output *o = &d->plan->outputs[i];
    d->made[i] = allocate(d, o->tensor, o->leaf, &d->owners[i]);
    if (d->made[i]) continue;
    while (i-- > 0) give_back(d, d->plan->outputs[i].leaf, d->made[i], d->owners[i]);
    return d->error->code;
  }
  return SVM_OK;
}

void delivery_undo(delivery *d) {
  for (int32_t i = 0; d->plan && i < d->plan->n_outputs; i++)
    give_back(d, d->plan->outputs[i].leaf, d->made[i], d->owners[i]);
}

/* Where the elements of a returned tensor are now. */
static void *find_data(const delivery *d, storage *s) {
  if (!d->plan) storage_clear(s);
  if (s->origin == SVM_ORIGIN_INPUT) return d->input_data[s->origin_index];
  return s->origin == SVM_ORIGIN_NEW && d->plan ? d->made[s->origin_index] : s->data;
}

static int is_alias(const delivery *d, const storage *s) {
  return s->origin == SVM_ORIGIN_CONSTANT ||
         (s->origin == SVM_ORIGIN_INPUT && !(d->is_copied && d->is_copied[s->origin_index]));
}

/* One tensor as an svm_value; `owned` ones carry an object. */
static int32_t deliver_tensor(delivery *d, const tensor *t, svm_value *out) {
  int32_t leaf = d->n_leaves++;
  storage *s = t->memory, *owner = NULL;
  void *from = find_data(d, s), *data = from;
  int is_prepared = d->plan && s->origin == SVM_ORIGIN_NEW && d->plan->outputs[s->origin_index].leaf == leaf;
  memset(out, 0, sizeof *out);
  out->tag = SVM_TAG_TENSOR;
  out->origin = is_alias(d, s) ? s->origin : SVM_ORIGIN_NEW;
  out->origin_index = out->origin == SVM_ORIGIN_INPUT ? s->origin_index : -1;
  int is_ours_alone =
      !d->plan && !d->allocator && s->origin == SVM_ORIGIN_NEW && s->refs == 1 && t->base.refs == 1;
  if (is_prepared) {
    owner = d->owners[s->origin_index];
  } else if (is_ours_alone) {
    owner = s;
  } else if (!is_alias(d, s)) {
    data = allocate(d, t, leaf, &owner);
    if (!data) return d->error->code;
    if (s->n_bytes) memcpy(data, from, (size_t)s->n_bytes);
  }
  out->tensor = describe(t, data);
  if (!owner) return SVM_OK;
  value made;
  if (owner == s || is_prepared) owner->refs++; /* the other is the interpreter's, or for delivery_undo */
  int32_t code = tensor_make(NULL, t->dtype, t->rank, t->sizes, owner, &made, d->error);
  if (!code) out->owner = made.object;
  return code;
}

/* A tensor inside of a container becomes a value again, over the memory of its description. */
static int32_t rebuild_tensor(delivery *d, const tensor *t, value *out) {
  svm_value described;
  int32_t code = deliver_tensor(d, t, &described);
  if (code) return code;
  if (described.owner) {
    *out = (value){SVM_TAG_TENSOR, {.object = described.owner}};
    return SVM_OK;
  }
  storage *s = storage_over(NULL, described.tensor.data, t->memory->n_bytes, described.origin,
                            described.origin_index, d->error);
  return s ? tensor_make(NULL, t->dtype, t->rank, t->sizes, s, out, d->error) : d->error->code;
}

static int32_t rebuild(delivery *d, value v, value *out);

/* A container of the host's. */
static int32_t rebuild_sequence(delivery *d, value v, value *out) {
  const sequence *s = v.sequence;
  int64_t n = sequence_n_values(s);
  value items; /* a list that grows, then becomes what v is */
  int32_t code = heap_count(&d->call->heap, (int64_t)sizeof *s + n * (int64_t)sizeof(value), d->error);
  if (!code && v.tag == SVM_TAG_DICT) code = call_spend(d->call, sequence_n_compared(n));
  if (!code) code = sequence_make(NULL, SVM_TAG_LIST, 0, NULL, &items, d->error);
  for (int64_t i = 0; !code && i < n; i++) {
    value item;
    code = rebuild(d, s->items[i], &item);
    if (code) {
      value_drop(NULL, &items);
      break;
    }
    code = sequence_append(NULL, items, item, &items, d->error);
    value_drop(NULL, &item);
  }
  if (code) return code;
  code = sequence_make(NULL, v.tag, n, items.sequence->items, out, d->error);
  value_drop(NULL, &items);
  return code;
}

/* A value of the host's; a container that comes twice is one, as in the program. */
static int32_t rebuild(delivery *d, value v, value *out) {
  if (call_spend(d->call, 1)) return d->error->code;
  if (v.tag == SVM_TAG_TENSOR) return rebuild_tensor(d, v.tensor, out);
  *out = v;
  if (!value_is_object(v)) return SVM_OK;
  if (v.tag == SVM_TAG_STR) {
    int32_t code = heap_count(&d->call->heap, v.text->length, d->error);
    return code ? code : text_make(NULL, v.text->bytes, v.text->length, out, d->error);
  }
  svm_object *earlier = pointer_map_get(&d->copies, v.object);
  if (earlier) {
    *out = (value){v.tag, {.object = earlier}};
    value_retain(*out);
    return SVM_OK;
  }
  if (rebuild_sequence(d, v, out)) return d->error->code;
  if (!pointer_map_put(&d->copies, v.object, out->object)) return SVM_OK;
  value_drop(NULL, out);
  return status_fail(d->error, SVM_ERROR_MEMORY, "memory: there is none for the results of a call");
}

void delivery_free(delivery *d) { pointer_map_free(&d->copies); }

static int32_t deliver(delivery *d, value v, svm_value *out) {
  if (v.tag == SVM_TAG_TENSOR) return deliver_tensor(d, v.tensor, out);
  value made;
  int32_t code = rebuild(d, v, &made);
  if (!code) value_export(made, 1, out);
  return code;
}

int32_t delivery_finish(delivery *d, const value *results, int32_t n, svm_value *outputs) {
  for (int32_t i = 0; i < n; i++) {
    if (!deliver(d, results[i], &outputs[i])) continue;
    for (int32_t j = 0; j <= i; j++) svm_value_release(&outputs[j]);
    return d->error->code;
  }
  for (int32_t i = 0; d->plan && i < d->plan->n_outputs; i++) {
    if (d->owners[i]) storage_release(NULL, d->owners[i]); /* the outputs have theirs */
  }
  return SVM_OK;
}
