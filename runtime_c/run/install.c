/* Installation of code at run time, and eviction. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "run/call_site.h"
#include "run/plan.h"

/* Eviction ------------------------------------------------------------------------------------- */

/* Exact code may go when it was installed (not the artifact's) and other code takes its place. */
static int is_evictable(const entry *e) { return e->exact && e->exact->map.memory && entry_fallback(e); }

/* Without memory for that the code is never evicted. */
static void rank(svm_program *p, entry *e) {
  if (is_evictable(e) && !e->is_ranked) e->is_ranked = lru_put(&p->entries.exact_used, e, &e->last_used);
}

static void drop_exact(svm_program *p, entry *e, const instance *instead) {
  installed *old = e->exact;
  e->exact = NULL;
  atomic_store(&e->code, instead);
  p->stats.code_bytes -= (int64_t)old->map.size;
  retire(p, old, installed_free);
}

/* Evict the least recently used exact code until the limit holds again; `kept` is what came in just now. */
static void evict(svm_program *p, const entry *kept) {
  int64_t most = p->options.code_bytes_max;
  if (!most || p->stats.code_bytes <= most) return;
  plans_stamp_entries(p);
  for (entry *e; p->stats.code_bytes > most && (e = lru_take(&p->entries.exact_used, kept));) {
    e->is_ranked = 0;
    drop_exact(p, e, entry_fallback(e));
    e->request.n_refusals++;
    e->request.executions = 0;
    entry_set_state(p, e, SVM_ENTRY_IDLE);
    p->stats.code_evicted++;
  }
  atomic_fetch_add(&p->plans.generation, 1);
}

/* Installation --------------------------------------------------------------------------------- */

/* The kept part of a record follows its code, in the same pages. */
static int32_t map_installed(const svm_program *p, const kernel *k, installed *out, const uint8_t *code,
                             svm_error *error) {
  const svm_file_object *o = out->object.record;
  code_piece pieces[] = {{code, o->code_size, o->alignment, k->info.label},
                         {o, o->record_size, SVM_FILE_ALIGN, NULL}};
  void *starts[2];
  if (code_map_make(pieces, 2, p->options.perf_map, &out->map, starts, error)) return error->code;
  if (code_parse(k->info.label, &k->signature, starts[1], o->record_size, &out->object, error))
    return error->code;
  out->object.run = (svm_kernel_code *)(uintptr_t)((char *)starts[0] + out->object.record->entry);
  return SVM_OK;
}

static int32_t parse_installed(const svm_program *p, const kernel *k, const void *record, size_t size,
                               installed *out, svm_error *error) {
  if (code_parse(k->info.label, &k->signature, record, size, &out->object, error)) return error->code;
  const svm_file_object *o = out->object.record;
  const uint8_t *code = (const uint8_t *)o + o->record_size;
  if (o->code_offset || o->code_size != size - o->record_size) {
    return status_fail(error, SVM_ERROR_ARTIFACT,
                       "code of kernel \"%.100s\": the record is not followed by exactly its code",
                       k->info.label);
  }
  if (!code_target_rank(o->target)) {
    return status_fail(error, SVM_ERROR_TARGET,
                       "code of kernel \"%.100s\" is for %s; this CPU runs %s: compile for that",
                       k->info.label, o->target, svm_host_target());
  }
  if (code_check_hash(k->info.label, &out->object, code, error)) return error->code;
  return map_installed(p, k, out, code, error);
}

/* An entry for which the code's numbers overflow stays without it: a launch that waits for code will get the
 * error from the exact code's installation. */
static void give_to_entries(svm_program *p, kernel *k, const installed *made, svm_error *error) {
  entry *e;
  for (uint64_t i = 0; (e = site_next(&k->site, &i));) {
    entry_give(e, k, &made->object, error);
    rank(p, e);
  }
}

static int32_t install_bucket(svm_program *p, kernel *k, installed *made, svm_error *error) {
  installed **at = &k->installed_buckets;
  while (*at) at = &(*at)->next;
  *at = made;
  k->has_buckets = 1;
  give_to_entries(p, k, made, error);
  p->stats.code_bytes += (int64_t)made->map.size;
  return SVM_OK;
}

static int32_t install_generic(svm_program *p, kernel *k, installed *made, svm_error *error) {
  if (atomic_load(&k->generic))
    return status_fail(error, SVM_ERROR_ARGUMENT, "kernel \"%.100s\" has generic code already",
                       k->info.label);
  give_to_entries(p, k, made, error);
  k->installed_generic = made;
  atomic_store(&k->generic, &made->object);
  p->stats.code_bytes += (int64_t)made->map.size;
  return SVM_OK;
}

static int32_t install_exact(svm_program *p, kernel *k, installed *made, svm_error *error) {
  entry *e;
  if (site_find_locked(p, (int32_t)(k - p->kernels), made->object.exact_dims, &e, error)) return error->code;
  if (instance_make(k, &made->object, e->dims, &made->instance, error)) return error->code;
  if (e->exact) drop_exact(p, e, &made->instance);
  e->exact = made;
  atomic_store(&e->code, &made->instance);
  entry_set_state(p, e, SVM_ENTRY_COMPILED);
  p->stats.code_bytes += (int64_t)made->map.size;
  atomic_store(&e->last_used, atomic_load(&p->counters.n_calls));
  rank(p, e);
  evict(p, e);
  return SVM_OK;
}

int32_t svm_install_code(svm_program *p, int32_t kernel_index, const void *record, size_t size,
                         svm_error *error) {
  if (status_need(p, "svm_install_code: program", error) ||
      status_need(record, "svm_install_code: record", error))
    return SVM_ERROR_ARGUMENT;
  svm_error unasked;
  error = error ? error : &unasked;
  if (kernel_index < 0 || kernel_index >= p->n_kernels) {
    return status_fail(error, SVM_ERROR_ARGUMENT, "svm_install_code: kernel %d of %d", kernel_index,
                       p->n_kernels);
  }
  kernel *k = &p->kernels[kernel_index];
  installed *made = calloc(1, sizeof *made);
  void *copy = malloc(size ? size : 1); /* aligned, whatever the caller's is */
  if (!made || !copy) {
    free(made), free(copy);
    return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for %zu bytes of code to install",
                       size);
  }
  int32_t code = parse_installed(p, k, memcpy(copy, record, size), size, made, error);
  free(copy);
  if (!code) {
    pthread_mutex_lock(&p->lock);
    code = made->object.exact_dims ? install_exact(p, k, made, error)
           : made->object.ranges   ? install_bucket(p, k, made, error)
                                   : install_generic(p, k, made, error);
    p->stats.code_installed += !code;
    reclaim(p, 0);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
  }
  if (code) installed_free(made);
  return code;
}

/* Installed code in the order of svm_installed_code, NULL beyond its end. Called with the lock held. */
static const installed *nth_installed(const kernel *k, int32_t index) {
  if (k->installed_generic && index-- == 0) return k->installed_generic;
  for (const installed *x = k->installed_buckets; x; x = x->next) {
    if (index-- == 0) return x;
  }
  const entry *e;
  for (uint64_t i = 0; (e = site_next(&k->site, &i));) {
    if (e->exact && e->exact->map.memory && index-- == 0) return e->exact;
  }
  return NULL;
}

/* Copy a code object, record and code, if there is room. Returns its size in bytes. */
static size_t copy_code(const code_object *object, void *record, size_t size) {
  const svm_file_object *o = object->record;
  size_t bytes = o->record_size + o->code_size;
  if (!record || size < bytes) return bytes;
  memcpy(record, o, o->record_size);
  ((svm_file_object *)record)->code_offset = 0; /* in an artifact the code is elsewhere */
  memcpy((uint8_t *)record + o->record_size, (const uint8_t *)(uintptr_t)object->run - o->entry,
         o->code_size);
  return bytes;
}

size_t svm_installed_code(svm_program *p, int32_t kernel_index, int32_t index, void *record, size_t size) {
  if (!p || kernel_index < 0 || kernel_index >= p->n_kernels || index < 0) return 0;
  pthread_mutex_lock(&p->lock);
  const installed *found = nth_installed(&p->kernels[kernel_index], index);
  size_t bytes = found ? copy_code(&found->object, record, size) : 0;
  pthread_mutex_unlock(&p->lock);
  return bytes;
}

size_t svm_generic_code(svm_program *p, int32_t kernel_index, void *record, size_t size) {
  if (!p || kernel_index < 0 || kernel_index >= p->n_kernels) return 0;
  const code_object *found = atomic_load(&p->kernels[kernel_index].generic); /* it stays */
  return found ? copy_code(found, record, size) : 0;
}
