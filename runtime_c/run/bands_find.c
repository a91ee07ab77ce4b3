/* Which steps of a plan are to run in bands: chains whose images are larger than a core's second-level cache.
 */
#include "run/bands_find.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/threads.h"
#include "run/bands.h"

/* The least size of images in caches; rings take at most this share of the images, and this many caches. */
enum { WHOLE = 2, SHARE = 8, RINGS = 8 };
static const int64_t USUAL_CACHE = 1 << 20;

/* The bytes of a core's second-level cache, if the system reports them. */
static int64_t cache_bytes(void) {
#ifdef _SC_LEVEL2_CACHE_SIZE
  long found = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (found > 0) return found;
#endif
  return USUAL_CACHE;
}

/* Whether a step reads the last one's output: in bands it would find other lines. */
static int is_overwritten(const svm_program *p, const plan *made, int32_t first, int32_t last) {
  const step *end = &made->steps[last];
  const buffer_type *types = p->kernels[end->entry->kernel].buffers;
  for (int32_t i = 0; i < end->n_buffers; i++) {
    const buffer_ref *written = &end->refs[i];
    for (const step *s = &made->steps[first]; types[i].is_output && s < end; s++) {
      for (int32_t j = 0; j < s->n_buffers; j++) {
        const buffer_ref *ref = &s->refs[j];
        int is_same =
            ref->base == written->base && (ref->base != BASE_ARENA || ref->storage == written->storage);
        if (is_same) return 1;
      }
    }
  }
  return 0;
}

/* Whether steps from `first` to `last` alone use what those before the last one write. */
static int is_closed(const recorder *r, const plan *made, const bands *b, int32_t first, int32_t last) {
  for (int32_t i = 0; i < b->n_rings; i++) {
    const arena_buffer *x = &r->storages[b->rings[i].storage];
    int is_own = x->first == first + b->rings[i].step && x->last <= last && !x->is_read_first;
    if (!is_own || r->output_of[b->rings[i].storage] >= 0) return 0;
  }
  for (int32_t i = first; i <= last; i++) {
    const step *s = &made->steps[i];
    for (int32_t j = 0; j < s->n_buffers; j++) {
      for (int32_t k = 0; k < b->n_rings; k++) { /* no part of a ring is a buffer */
        int is_ring = s->refs[j].base == BASE_ARENA && s->refs[j].storage == b->rings[k].storage;
        if (is_ring && s->refs[j].offset) return 0;
      }
    }
  }
  return 1;
}

static int64_t image_bytes(const bands *b) {
  int64_t total = 0;
  for (int32_t i = 0; i < b->n_rings; i++) total += b->rings[i].n_elements * b->rings[i].element;
  return total;
}

static int64_t ring_bytes(const bands *b) {
  int64_t total = 0;
  for (int32_t i = 0; i < b->n_rings; i++) total += b->rings[i].capacity;
  return total;
}

/* The bytes that a step writes. */
static int64_t result_bytes(const svm_program *p, const step *s) {
  int64_t total = 0;
  for (int32_t i = 0; i < s->n_buffers; i++) {
    const buffer_type *type = &p->kernels[s->entry->kernel].buffers[i];
    int64_t bytes = type->is_output ? s->entry->n_elements[i] * DTYPE_BYTES[type->dtype] : 0;
    if (__builtin_add_overflow(total, bytes, &total)) return INT64_MAX;
  }
  return total;
}

/* How many steps from `first` on are to run in bands, 0: none. The last one is where little is left in
 * memory. */
static int32_t length_from(const call *c, const recorder *r, const plan *made, int32_t first) {
  int64_t cache = cache_bytes(), most = 0;
  int32_t best = 0;
  bands b;
  for (int32_t n = 2; n <= BAND_STEPS && first + n <= made->n_steps; n++) {
    if (!bands_open(&b, c->program, &made->steps[first], n, c->strategy, NULL)) break;
    int64_t whole = image_bytes(&b);
    if (whole < WHOLE * cache || !is_closed(r, made, &b, first, first + n - 1) ||
        is_overwritten(c->program, made, first, first + n - 1))
      continue;
    bands_layout(&b, 1);
    int64_t taken = ring_bytes(&b);
    if (taken > RINGS * cache || (taken > cache && taken > whole / SHARE)) break;
    int64_t gain = whole - result_bytes(c->program, &made->steps[first + n - 1]);
    if (!bands_layout(&b, threads_count())) break;
    if (gain > most) most = gain, best = n;
  }
  return best;
}

/* The steps' operands and results live from the first step to the last. */
static void extend(recorder *r, const plan *made, const band_chain *x) {
  for (int32_t i = x->first; i <= x->last; i++) {
    for (int32_t j = 0; j < made->steps[i].n_buffers; j++) {
      const buffer_ref *ref = &made->steps[i].refs[j];
      if (ref->base != BASE_ARENA || r->output_of[ref->storage] >= 0) continue;
      arena_buffer *b = &r->storages[ref->storage];
      if (!b->is_read_first && b->first >= x->first && b->first < x->last) continue; /* a ring */
      b->first = b->first > x->first ? x->first : b->first;
      b->last = b->last < x->last ? x->last : b->last;
    }
  }
}

void bands_find(const call *c, recorder *r, plan *made) {
  for (int32_t first = 0; first < made->n_steps - 1; first++) {
    int32_t n = length_from(c, r, made, first);
    if (!n) continue;
    band_chain *grown = realloc(made->bands, ((size_t)made->n_bands + 1) * sizeof *grown);
    if (!grown) return;
    made->bands = grown;
    band_chain *x = &grown[made->n_bands++];
    *x = (band_chain){.first = first, .last = first + n - 1};
    extend(r, made, x);
    first += n - 1;
  }
}
