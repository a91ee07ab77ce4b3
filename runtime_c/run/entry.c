/* Instances of code at given dims, and entries, which have one of each tier. */
#include "run/entry.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* Flops or bytes of a launch from which sharing its tiles pays for waking the pool. */
static const int64_t SHARING_COST = 1 << 18;

/* Flops or bytes that run between two looks at a call's watch: milliseconds, in which a block's start is
 * lost. */
static const int64_t STRETCH_COST = 1 << 28;

/* Instances ------------------------------------------------------------------------------------ */

static int32_t fail_size(const kernel *k, const char *what, svm_error *error) {
  return status_fail(error, SVM_ERROR_KERNEL,
                     "kernel \"%.100s\": %s is over 2^62 at these sizes; use smaller inputs", k->info.label,
                     what);
}

static int32_t tier_of(const code_object *object) {
  if (object->exact_dims) return SVM_TIER_EXACT;
  return object->ranges ? SVM_TIER_BUCKET : SVM_TIER_GENERIC;
}

int32_t instance_make(const kernel *k, const code_object *object, const int64_t *dims, instance *out,
                      svm_error *error) {
  int64_t n_tiles = code_tiles(object, dims), total;
  int64_t scratch = code_terms(object->scratch, object->record->n_scratch, dims);
  int64_t cost = code_terms(object->cost, object->record->n_cost, dims);
  if (n_tiles < 0) return fail_size(k, "its number of tiles", error);
  if (scratch < 0) return fail_size(k, "its scratch memory", error);
  if (cost < 0 || __builtin_mul_overflow(cost, n_tiles, &total)) total = INT64_MAX;
  *out = (instance){object->run,
                    n_tiles,
                    (size_t)scratch,
                    cost > 0 && cost < STRETCH_COST ? STRETCH_COST / cost : 1,
                    n_tiles > 1 && total >= SHARING_COST,
                    tier_of(object),
                    object};
  return code_check_bounds(k->info.label, object, dims, error);
}

/* Entries -------------------------------------------------------------------------------------- */

void installed_free(void *object) {
  installed *i = object;
  code_map_free(&i->map);
  free(i);
}

void entry_free(void *object) {
  entry *e = object;
  if (e->exact) installed_free(e->exact);
  free(e->request.failure);
  free(e);
}

/* Number of elements of each buffer at these dims. */
static int32_t count_elements(const kernel *k, const int64_t *dims, int64_t *n_elements, svm_error *error) {
  for (int32_t i = 0; i < k->info.n_buffers; i++) {
    int64_t sizes[SVM_LIMIT_RANK];
    const buffer_type *b = &k->buffers[i];
    for (int32_t a = 0; a < b->rank; a++) sizes[a] = code_size(&b->sizes[a], dims);
    n_elements[i] = checked_elements(b->rank, sizes);
    if (n_elements[i] < 0) return fail_size(k, "a buffer", error);
  }
  return SVM_OK;
}

/* The first bucket for these dims: the artifact's in its order, then those that came later in theirs. */
static const code_object *find_bucket(const kernel *k, const int64_t *dims) {
  const code_object *own = code_index_find(&k->buckets, dims);
  if (own) return own;
  for (const installed *x = k->installed_buckets; x; x = x->next) {
    if (code_fits(&x->object, dims)) return &x->object;
  }
  return NULL;
}

int32_t entry_give(entry *e, const kernel *k, const code_object *object, svm_error *error) {
  instance *own = object->ranges ? &e->bucket : &e->generic, made;
  if (own->run || !code_fits(object, e->dims)) return SVM_OK;
  if (instance_make(k, object, e->dims, &made, error)) return error->code;
  *own = made; /* no launch reads it before the stores below */
  if (!object->ranges) atomic_store(&e->slowest, own);
  if (!e->exact) atomic_store(&e->code, entry_fallback(e));
  return SVM_OK;
}

/* Flops or bytes of a launch, at most INT64_MAX. */
static int64_t work_of(const code_object *object, const int64_t *dims) {
  int64_t cost = code_terms(object->cost, object->record->n_cost, dims), total;
  int is_over = cost < 0 || __builtin_mul_overflow(cost, code_tiles(object, dims), &total);
  return is_over ? INT64_MAX : total;
}

/* An installed record that need not be kept: the artifact's own exact code gets a separate instance.
 */
static int32_t choose_code(entry *e, const kernel *k, svm_error *error) {
  const code_object *generic = atomic_load(&k->generic), *exact = code_index_find(&k->exact, e->dims);
  const code_object *bucket = find_bucket(k, e->dims);
  if (generic && entry_give(e, k, generic, error)) return error->code;
  if (bucket && entry_give(e, k, bucket, error)) return error->code;
  if (generic) e->work = work_of(generic, e->dims);
  if (!exact) return SVM_OK;
  e->exact = calloc(1, sizeof *e->exact);
  if (!e->exact)
    return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for an entry of a call site");
  if (instance_make(k, exact, e->dims, &e->exact->instance, error)) return error->code;
  atomic_init(&e->code, &e->exact->instance);
  atomic_init(&e->state, SVM_ENTRY_COMPILED);
  return SVM_OK;
}

entry *entry_make(const kernel *k, int32_t index, const int64_t *dims, svm_error *error) {
  size_t n_dims = k->signature.n_dims, n_buffers = k->signature.n_buffers;
  entry *e = calloc(1, sizeof *e + (n_dims + n_buffers) * sizeof(int64_t));
  if (!e)
    return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for an entry of a call site"), NULL;
  e->kernel = index;
  e->n_dims = (int32_t)n_dims;
  e->n_elements = e->dims + n_dims;
  memcpy(e->dims, dims, n_dims * sizeof *dims);
  if (count_elements(k, dims, e->n_elements, error) || choose_code(e, k, error)) return entry_free(e), NULL;
  entry_price(k, e);
  return e;
}

/* States --------------------------------------------------------------------------------------- */

static int is_pending(int32_t state) { return state == SVM_ENTRY_QUEUED || state == SVM_ENTRY_COMPILING; }

void entry_set_state(svm_program *p, entry *e, int32_t state) {
  p->stats.n_pending += is_pending(state) - is_pending(atomic_load(&e->state));
  atomic_store(&e->state, state);
}

void entry_price(const kernel *k, entry *e) {
  int64_t from = k->price.declined_from;
  if (from && e->work >= from && atomic_load(&e->state) == SVM_ENTRY_IDLE && !entry_is_exact(e))
    atomic_store(&e->state, SVM_ENTRY_DECLINED); /* neither state is pending */
}
