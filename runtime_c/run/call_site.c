/* Polymorphic inline caches, one per kernel of the table (Hoelzle, Chambers, Ungar, "Optimizing
 * dynamically-typed object-oriented languages with polymorphic inline caches", 1991). The key is the launch's
 * dims. Readers take no lock; entries that nobody refers to are dropped when a site has grown large, and
 * freed once no call can hold them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/status.h"
#include "run/run.h"

/* A site that has MAX_ENTRIES grows further while the program has fewer than MAX_ALL_ENTRIES. */
enum { FIRST_SLOTS = 32, MAX_ENTRIES = 4096, MAX_ALL_ENTRIES = 1 << 15 };

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

/* Sizes that entries have had ------------------------------------------------------------------ */

/* The slot of a dim's size, or the free one where it belongs. */
static struct dim_size *find_seen(const size_set *s, int32_t dim, int64_t size) {
  int64_t row[2] = {size, dim + 1};
  for (uint64_t i = hash_row(row, 2);; i++) {
    struct dim_size *slot = &s->slots[i & s->mask];
    if (!slot->dim || (slot->size == size && slot->dim == dim + 1)) return slot;
  }
}

static int has_seen(const size_set *s, int32_t dim, int64_t size) {
  return s->slots && find_seen(s, dim, size)->dim;
}

static int grow_seen(size_set *s) {
  uint64_t n = s->slots ? 2 * (s->mask + 1) : FIRST_SLOTS;
  size_set made = {n - 1, s->n, calloc(n, sizeof *s->slots)};
  if (!made.slots) return 0;
  for (uint64_t i = 0; s->slots && i <= s->mask; i++) {
    const struct dim_size *slot = &s->slots[i];
    if (slot->dim) *find_seen(&made, (int32_t)slot->dim - 1, slot->size) = *slot;
  }
  free(s->slots);
  *s = made;
  return 1;
}

/* Without memory the sizes are called new once more. */
static void add_seen(size_set *s, const entry *e) {
  for (int32_t i = 0; i < e->n_dims; i++) {
    if ((!s->slots || 2 * (s->n + 1) > s->mask) && !grow_seen(s)) return;
    struct dim_size *slot = find_seen(s, i, e->dims[i]);
    s->n += !slot->dim;
    *slot = (struct dim_size){e->dims[i], i + 1};
  }
}

static void clear_seen(size_set *s) {
  free(s->slots);
  *s = (size_set){0};
}

/* Entries -------------------------------------------------------------------------------------- */

void installed_free(void *object) {
  installed *i = object;
  code_map_free(&i->map);
  free(i);
}

void entry_free(entry *e) {
  if (e->exact) installed_free(e->exact);
  free(e->failure);
  free(e);
}

static void entry_free_object(void *e) { entry_free(e); }

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

/* An installed record that is not needed to live: the artifact's own exact code gets an instance by itself.
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

static entry *entry_make(svm_program *p, int32_t index, const int64_t *dims, svm_error *error) {
  const kernel *k = &p->kernels[index];
  size_t n_dims = k->signature.n_dims, n_buffers = k->signature.n_buffers;
  entry *e = calloc(1, sizeof *e + (n_dims + n_buffers) * sizeof(int64_t));
  if (!e)
    return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for an entry of a call site"), NULL;
  e->kernel = index;
  e->n_dims = (int32_t)n_dims;
  e->n_elements = e->dims + n_dims;
  for (int32_t i = 0; i < e->n_dims; i++) e->new_dims |= (uint32_t)!has_seen(&k->site.seen, i, dims[i]) << i;
  memcpy(e->dims, dims, n_dims * sizeof *dims);
  if (count_elements(k, dims, e->n_elements, error) || choose_code(e, k, error)) return entry_free(e), NULL;
  entry_price(p, e);
  return e;
}

/* Sites ---------------------------------------------------------------------------------------- */

static int has_dims(const entry *e, const int64_t *dims) {
  for (int32_t i = 0; i < e->n_dims; i++) {
    if (e->dims[i] != dims[i]) return 0;
  }
  return 1;
}

entry *site_lookup(const kernel *k, const int64_t *dims) {
  const entry_table *t = atomic_load(&k->site.many);
  if (t) {
    for (uint64_t i = hash_row(dims, k->info.n_dims);; i++) {
      entry *e = atomic_load(&t->slots[i & t->mask]);
      if (!e || has_dims(e, dims)) return e;
    }
  }
  int32_t n = atomic_load(&k->site.n_entries);
  for (int32_t i = 0; i < n && i < MAX_POLYMORPHIC; i++) {
    entry *e = atomic_load(&k->site.few[i]);
    if (has_dims(e, dims)) return e;
  }
  return NULL;
}

static void table_put(entry_table *t, entry *e) {
  uint64_t i = hash_row(e->dims, e->n_dims);
  while (atomic_load(&t->slots[i & t->mask])) i++;
  atomic_store(&t->slots[i & t->mask], e);
}

static int is_wanted(const entry *e) {
  int32_t state = atomic_load(&e->state);
  return e->n_plans || e->exact || state == SVM_ENTRY_QUEUED || state == SVM_ENTRY_COMPILING;
}

/* Entry i of the site's table, or of its few. */
static entry *entry_at(const call_site *s, uint64_t i) {
  entry_table *t = atomic_load(&s->many);
  return t ? atomic_load(&t->slots[i]) : atomic_load(&s->few[i]);
}

static uint64_t count_wanted(const call_site *s, uint64_t n_slots, int is_full) {
  uint64_t n = 0;
  for (uint64_t i = 0; i < n_slots; i++) {
    const entry *e = entry_at(s, i);
    n += e && (!is_full || is_wanted(e));
  }
  return n;
}

/* Copy the entries into another table with room; a large site drops those that are not wanted. */
static int32_t rebuild(svm_program *p, call_site *s, svm_error *error) {
  entry_table *old = atomic_load(&s->many);
  uint64_t n_old = old ? old->mask + 1 : MAX_POLYMORPHIC, n_new = FIRST_SLOTS;
  int is_full = atomic_load(&s->n_entries) >= MAX_ENTRIES && p->n_entries >= MAX_ALL_ENTRIES;
  uint64_t n = count_wanted(s, n_old, is_full);
  while (n_new < 4 * n) n_new *= 2;
  entry_table *made = calloc(1, sizeof *made + n_new * sizeof *made->slots);
  if (!made)
    return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for the table of a call site");
  made->mask = n_new - 1;
  if (is_full) clear_seen(&s->seen);
  entry *dropped = NULL;
  for (uint64_t i = 0; i < n_old; i++) {
    entry *e = entry_at(s, i);
    if (!e) continue;
    e->is_dropped = is_full && !is_wanted(e);
    if (e->is_dropped) {
      e->next_queued = dropped;
      dropped = e;
      continue;
    }
    table_put(made, e);
    if (is_full) add_seen(&s->seen, e);
  }
  atomic_store(&s->many, made);
  atomic_store(&s->n_entries, (int32_t)n);
  for (entry *next; dropped; dropped = next) {
    next = dropped->next_queued;
    p->n_entries--;
    retire(p, dropped, entry_free_object);
  }
  if (old) retire(p, old, free);
  reclaim(p, 0);
  return SVM_OK;
}

static int32_t site_add(svm_program *p, call_site *s, entry *e, svm_error *error) {
  int32_t n = atomic_load(&s->n_entries);
  entry_table *t = atomic_load(&s->many);
  if (t ? (uint64_t)n * 2 >= t->mask + 1 : n == MAX_POLYMORPHIC) {
    int32_t code = rebuild(p, s, error);
    if (code) return code;
    t = atomic_load(&s->many);
    n = atomic_load(&s->n_entries);
  }
  if (t) table_put(t, e);
  else atomic_store(&s->few[n], e);
  atomic_store(&s->n_entries, n + 1);
  p->n_entries++;
  add_seen(&s->seen, e);
  return SVM_OK;
}

static void count_miss(kernel *k, const entry *made) {
  call_site *s = &k->site;
  s->misses++;
  s->outside += k->has_buckets && !made->exact && !made->bucket.run;
  s->by_combination += made->n_dims && !made->new_dims;
  for (int32_t i = 0; i < made->n_dims; i++) s->by_dim[i] += made->new_dims >> i & 1;
}

int32_t site_find_locked(svm_program *p, int32_t index, const int64_t *dims, entry **out, svm_error *error) {
  kernel *k = &p->kernels[index];
  if ((*out = site_lookup(k, dims))) return SVM_OK;
  entry *made = entry_make(p, index, dims, error);
  if (!made) return error->code;
  if (site_add(p, &k->site, made, error)) return entry_free(made), error->code;
  count_miss(k, made);
  *out = made;
  return SVM_OK;
}

int32_t site_find(svm_program *p, int32_t index, const int64_t *dims, entry **out, svm_error *error) {
  kernel *k = &p->kernels[index];
  if ((*out = site_lookup(k, dims))) {
    atomic_fetch_add_explicit(&k->site.hits, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&(*out)->hits, 1, memory_order_relaxed);
    atomic_store_explicit(&(*out)->last_used, atomic_load_explicit(&p->n_calls, memory_order_relaxed),
                          memory_order_relaxed);
    return SVM_OK;
  }
  pthread_mutex_lock(&p->lock);
  int32_t code = site_find_locked(p, index, dims, out, error);
  pthread_mutex_unlock(&p->lock);
  return code;
}

void site_free(kernel *k) {
  entry_table *t = atomic_load(&k->site.many);
  for (uint64_t i = 0; i < (t ? t->mask + 1 : MAX_POLYMORPHIC); i++) {
    entry *e = t ? atomic_load(&t->slots[i]) : atomic_load(&k->site.few[i]);
    if (e) entry_free(e);
  }
  free(t);
  clear_seen(&k->site.seen);
}
