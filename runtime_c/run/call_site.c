/* Polymorphic inline caches, one per kernel of the table (Hoelzle, Chambers, Ungar, "Optimizing
 * dynamically-typed object-oriented languages with polymorphic inline caches", 1991). The key is the launch's
 * dims. Readers take no lock; unreferenced entries are dropped when a site has grown large, and freed once no
 * call can hold them. */
#include "run/call_site.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/status.h"
#include "run/context.h"

/* A site that has MAX_ENTRIES grows further while the program has fewer than MAX_ALL_ENTRIES. */
enum { FIRST_SLOTS = 32, MAX_ENTRIES = 256, MAX_ALL_ENTRIES = 1 << 13 };

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

entry *site_next(const call_site *s, uint64_t *i) {
  const entry_table *t = atomic_load(&s->many);
  for (uint64_t n = t ? t->mask + 1 : MAX_POLYMORPHIC; *i < n;) {
    entry *e = t ? atomic_load(&t->slots[*i]) : atomic_load(&s->few[*i]);
    (*i)++;
    if (e) return e;
  }
  return NULL;
}

static uint64_t count_wanted(const call_site *s, int is_full) {
  uint64_t n = 0;
  const entry *e;
  for (uint64_t i = 0; (e = site_next(s, &i));) n += !is_full || is_wanted(e);
  return n;
}

/* Copy the entries into another table with room; a large site drops those that are not wanted. */
static int32_t rebuild(svm_program *p, call_site *s, svm_error *error) {
  entry_table *old = atomic_load(&s->many);
  int is_full = atomic_load(&s->n_entries) >= MAX_ENTRIES && p->entries.n >= MAX_ALL_ENTRIES;
  uint64_t n = count_wanted(s, is_full), n_new = FIRST_SLOTS;
  while (n_new < 4 * n) n_new *= 2;
  entry_table *made = calloc(1, sizeof *made + n_new * sizeof *made->slots);
  if (!made)
    return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for the table of a call site");
  made->mask = n_new - 1;
  if (is_full) clear_seen(&s->seen);
  entry *dropped = NULL, *e;
  for (uint64_t i = 0; (e = site_next(s, &i));) {
    e->is_dropped = is_full && !is_wanted(e);
    if (e->is_dropped) {
      e->request.next = dropped;
      dropped = e;
      continue;
    }
    table_put(made, e);
    if (is_full) add_seen(&s->seen, e);
  }
  atomic_store(&s->many, made);
  atomic_store(&s->n_entries, (int32_t)n);
  for (entry *next; dropped; dropped = next) {
    next = dropped->request.next;
    p->entries.n--;
    retire(p, dropped, entry_free);
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
  p->entries.n++;
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
  entry *made = entry_make(k, index, dims, error);
  if (!made) return error->code;
  for (int32_t i = 0; i < made->n_dims; i++)
    made->new_dims |= (uint32_t)!has_seen(&k->site.seen, i, dims[i]) << i;
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
    atomic_store_explicit(&(*out)->last_used,
                          atomic_load_explicit(&p->counters.n_calls, memory_order_relaxed),
                          memory_order_relaxed);
    return SVM_OK;
  }
  pthread_mutex_lock(&p->lock);
  int32_t code = site_find_locked(p, index, dims, out, error);
  pthread_mutex_unlock(&p->lock);
  return code;
}

void site_free(kernel *k) {
  entry *e;
  for (uint64_t i = 0; (e = site_next(&k->site, &i));) entry_free(e);
  free(atomic_load(&k->site.many));
  clear_seen(&k->site.seen);
}
