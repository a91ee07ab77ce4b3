/* The loader's kernels: their signatures, the code objects that this CPU runs, their machine code. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "base/status.h"
#include "program/program.h"

typedef struct cursor {
  const uint8_t *at, *end;
} cursor;

static int32_t broken(svm_error *error, const char *what) {
  return status_fail(error, SVM_ERROR_ARTIFACT, "artifact: section %s; export it again", what);
}

/* Kernels -------------------------------------------------------------------------------------- */

static int32_t load_kernel(svm_program *p, cursor *c, kernel *k, buffer_type *buffers, svm_error *error) {
  const svm_file_kernel *row = (const svm_file_kernel *)c->at;
  if ((size_t)(c->end - c->at) < sizeof *row) return broken(error, "KERNELS ends inside a record");
  c->at += sizeof *row;
  if (row->n_dims > SVM_LIMIT_DIMS || row->n_buffers > SVM_LIMIT_BUFFERS)
    return broken(error, "KERNELS: a kernel has over 32 dims or 64 buffers");
  k->info = (svm_kernel_info){load_string(p, row->label, "KERNELS", error),
                              load_string(p, row->source, "KERNELS", error),
                              load_string(p, row->spec, "KERNELS", error),
                              (int32_t)row->n_dims,
                              (int32_t)row->n_buffers,
                              0,
                              0,
                              0,
                              ""};
  if (!k->info.label || !k->info.source || !k->info.spec) return SVM_ERROR_ARTIFACT;
  k->buffers = buffers;
  k->n_objects =
      (int32_t)(row->n_objects > INT32_MAX ? INT32_MAX : row->n_objects); /* all of them, for now */
  size_t used;
  int32_t code = code_parse_buffers(k->info.label, c->at, (size_t)(c->end - c->at), row->n_dims,
                                    row->n_buffers, buffers, &used, error);
  if (code) return code;
  k->signature = (code_signature){row->n_dims, row->n_buffers, c->at, used, {0}};
  sha256 hash;
  sha256_init(&hash);
  sha256_update(&hash, k->info.spec, strlen(k->info.spec));
  sha256_final(&hash, k->signature.spec_hash);
  c->at += used;
  return SVM_OK;
}

static int32_t load_signatures(svm_program *p, svm_error *error) {
  const section *s = &p->image.sections[SVM_SECTION_KERNELS];
  cursor c = {s->data, s->data + s->size};
  if (s->count > s->size / sizeof(svm_file_kernel) || s->count > INT32_MAX)
    return broken(error, "KERNELS is shorter than its count");
  p->kernels = calloc(s->count + 1, sizeof *p->kernels);
  p->native.buffers = calloc(s->size / sizeof(svm_file_buffer) + 1, sizeof *p->native.buffers);
  if (!p->kernels || !p->native.buffers)
    return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for the kernel table");
  buffer_type *buffers = p->native.buffers;
  for (; p->n_kernels < (int32_t)s->count; p->n_kernels++) {
    kernel *k = &p->kernels[p->n_kernels];
    int32_t code = load_kernel(p, &c, k, buffers, error);
    if (code) return code;
    buffers += k->info.n_buffers;
  }
  return c.at == c.end ? SVM_OK : broken(error, "KERNELS is longer than its records");
}

/* Objects -------------------------------------------------------------------------------------- */

/* How much the program wants an object's target: the CPU's best, and before all others one with a generic
 * object. */
static int32_t rank_of(const code_object *o) {
  int32_t rank = code_target_rank(o->record->target);
  return rank && o->record->guard == SVM_GUARD_GENERIC ? rank + 1000 : rank;
}

/* Keep the kernel's objects of its best target, in place. */
static void choose_target(const svm_program *p, kernel *k, int32_t n) {
  const char *best = NULL;
  int32_t best_rank = 0, kept = 0;
  for (int32_t i = 0; i < n; i++) {
    int32_t rank = rank_of(&k->objects[i]);
    if (rank > best_rank) best_rank = rank, best = k->objects[i].record->target;
  }
  for (int32_t i = 0; best && p->options.native_code && i < n; i++) {
    if (!strcmp(k->objects[i].record->target, best)) k->objects[kept++] = k->objects[i];
  }
  k->n_objects = k->info.n_objects = kept;
  k->info.target = kept ? best : "";
}

static int32_t check_code_range(const svm_program *p, const svm_file_object *o, uint64_t *total,
                                svm_error *error) {
  uint64_t size = p->image.sections[SVM_SECTION_BLOBS].size;
  if (o->code_offset % SVM_FILE_ALIGN || o->code_offset > size || o->code_size > size - o->code_offset ||
      o->code_size > size - *total) {
    return broken(error, "OBJECTS: an object's code is misaligned, overlaps another or leaves BLOBS");
  }
  *total += o->code_size;
  return SVM_OK;
}

/* Parse the kernel's objects; out of n, those of one target remain. `spans`: n of them. */
static int32_t load_objects(svm_program *p, kernel *k, cursor *c, uint64_t *total, code_span *spans,
                            svm_error *error) {
  int32_t n = k->n_objects;
  k->n_objects = 0;
  for (int32_t i = 0; i < n; i++) {
    int32_t code =
        code_parse(k->info.label, &k->signature, c->at, (size_t)(c->end - c->at), &k->objects[i], error);
    if (!code) code = check_code_range(p, k->objects[i].record, total, error);
    if (code) return code;
    c->at += k->objects[i].record->record_size;
  }
  choose_target(p, k, n);
  uint32_t n_dims = k->signature.n_dims;
  k->exact = code_index_make(k->objects, k->n_objects, n_dims, SVM_GUARD_EXACT, spans);
  spans += k->exact.n_spans;
  k->buckets = code_index_make(k->objects, k->n_objects, n_dims, SVM_GUARD_BUCKET, spans);
  return SVM_OK;
}

static int32_t load_all_objects(svm_program *p, svm_error *error) {
  const section *s = &p->image.sections[SVM_SECTION_OBJECTS];
  cursor c = {s->data, s->data + s->size};
  uint64_t total = 0, n = 0;
  for (int32_t i = 0; i < p->n_kernels; i++) n += (uint64_t)p->kernels[i].n_objects;
  if (s->count != n || n > s->size / sizeof(svm_file_object))
    return broken(error, "OBJECTS holds other objects than KERNELS counts");
  p->native.objects = calloc(n + 1, sizeof *p->native.objects);
  p->native.spans = calloc(n + 1, sizeof *p->native.spans);
  if (!p->native.objects || !p->native.spans)
    return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for the table of code objects");
  code_object *objects = p->native.objects;
  for (int32_t i = 0; i < p->n_kernels; i++) {
    kernel *k = &p->kernels[i];
    k->objects = objects;
    objects += k->n_objects;
    int32_t code = load_objects(p, k, &c, &total, p->native.spans + (k->objects - p->native.objects), error);
    if (code) return code;
  }
  return c.at == c.end ? SVM_OK : broken(error, "OBJECTS is longer than its records");
}

/* Machine code --------------------------------------------------------------------------------- */

static int32_t check_available(const svm_program *p, const kernel *k, svm_error *error) {
  if (k->n_objects || p->options.has_compiler) return SVM_OK;
  int32_t n_in_file =
      ((const svm_file_kernel *)((const uint8_t *)k->signature.buffers - sizeof(svm_file_kernel)))->n_objects;
  const char *host =
      *svm_host_target() ? svm_host_target() : "none of x86-64-v4, x86-64-v3, aarch64 and their extensions";
  if (!p->options.native_code) {
    return status_fail(error, SVM_ERROR_TARGET,
                       "kernel \"%.100s\": native code of artifacts is switched off, and there is no "
                       "compiler for its spec; switch "
                       "it on, or load where a compiler is",
                       k->info.label);
  }
  if (!n_in_file) {
    return status_fail(
        error, SVM_ERROR_TARGET,
        "kernel \"%.100s\" has no machine code; export with code for %s, or load where a compiler is",
        k->info.label, host);
  }
  return status_fail(error, SVM_ERROR_TARGET,
                     "kernel \"%.100s\" has machine code for %s, this CPU runs %s; export with code for "
                     "that, or load where a compiler is",
                     k->info.label, k->objects->record->target, host);
}

static int32_t map_code(svm_program *p, kernel **owners, code_piece *pieces, void **starts,
                        svm_error *error) {
  const uint8_t *blobs = p->image.sections[SVM_SECTION_BLOBS].data;
  int32_t n = 0;
  for (int32_t i = 0; i < p->n_kernels; i++) {
    kernel *k = &p->kernels[i];
    if (check_available(p, k, error)) return error->code;
    for (int32_t j = 0; j < k->n_objects; j++, n++) {
      const svm_file_object *o = k->objects[j].record;
      if (code_check_hash(k->info.label, &k->objects[j], blobs + o->code_offset, error)) return error->code;
      pieces[n] = (code_piece){blobs + o->code_offset, o->code_size, o->alignment, k->info.label};
      owners[n] = k;
      k->info.code_bytes += (int64_t)o->code_size;
    }
  }
  if (code_map_make(pieces, n, p->options.perf_map, &p->native.code_map, starts, error)) return error->code;
  for (int32_t i = 0, j = 0; i < n; i++) {
    j = i && owners[i] == owners[i - 1] ? j + 1 : 0;
    code_object *o = &owners[i]->objects[j];
    o->run = (svm_kernel_code *)(uintptr_t)((char *)starts[i] + o->record->entry);
    if (o->record->guard == SVM_GUARD_GENERIC && !owners[i]->generic) owners[i]->generic = o;
    owners[i]->has_buckets |= o->record->guard == SVM_GUARD_BUCKET;
  }
  return SVM_OK;
}

int32_t load_kernels(svm_program *p, svm_error *error) {
  if (load_signatures(p, error) || load_all_objects(p, error)) return error->code;
  size_t n = p->image.sections[SVM_SECTION_OBJECTS].count + 1;
  kernel **owners = calloc(n, sizeof *owners);
  code_piece *pieces = calloc(n, sizeof *pieces);
  void **starts = calloc(n, sizeof *starts);
  int32_t code = owners && pieces && starts
                     ? map_code(p, owners, pieces, starts, error)
                     : status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for the code's table");
  free(owners);
  free(pieces);
  free(starts);
  return code;
}
