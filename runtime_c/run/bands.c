/* Bands: the lines that each step needs of previous ones, the ring buffers that hold them, and the run.
 *
 * A ring is a part of a thread's scratch. To access a buffer in it, a kernel gets the address at which the
 * whole buffer would begin; it touches only the lines of its tiles. Each thread has separate rings, and
 * computes the lines before its first band itself. */
#include "run/bands.h"

#include <string.h>

#include "base/threads.h"
#include "base/watch.h"

enum { UNITS_OF_THREAD = 2, EXTRA = 16, ALIGNMENT = 64, RING_IS_FULL = 2 /* rt->error: cannot be */ };
/* Larger steps run whole: a trace, which has no memory yet, meets sizes that no machine has, and laying out
 * many bands takes time in every call. */
enum { MAX_BANDS = 1 << 14 };
static const int64_t MAX_HEIGHT = INT64_C(1) << 40, MAX_GROUPS = INT64_C(1) << 40,
                     MAX_BYTES = INT64_C(1) << 48;

/* A thread's progress: groups of each step; each ring holds the elements from `low` to `high`. */
typedef struct band_state {
  int64_t done[BAND_STEPS], wanted[BAND_STEPS], low[BAND_STEPS], high[BAND_STEPS];
} band_state;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t greatest(int64_t a, int64_t b) { return a > b ? a : b; }

/* Lines ---------------------------------------------------------------------------------------- */

/* The elements of a buffer up to the last one that the first n groups read or write. */
static int64_t end_of(const band_step *s, const band_link *l, int64_t n) {
  if (!n) return 0;
  int64_t image = (n - 1) / s->n_of_image, group = (n - 1) % s->n_of_image;
  int64_t last = least((group + 1) * s->n_lines, s->height) - 1;
  int64_t line = last * l->stride - l->low + l->reach;
  return (image * l->height + least(greatest(line, 0), l->height)) * l->line;
}

/* The first element that groups from n on read. */
static int64_t begin_of(const band_step *s, const band_link *l, int64_t n) {
  int64_t image = n / s->n_of_image, group = n % s->n_of_image;
  int64_t line = group * s->n_lines * l->stride - l->low;
  return (image * l->height + least(greatest(line, 0), l->height)) * l->line;
}

/* The groups that write elements before `element` only. */
static int64_t groups_before(const band_step *s, const band_link *l, int64_t element) {
  int64_t line = element / l->line;
  return line / l->height * s->n_of_image + line % l->height / s->n_lines;
}

/* The least number of groups that write the first n elements. */
static int64_t groups_for(const band_step *s, const band_link *l, int64_t n) {
  return n ? groups_before(s, l, n - 1) + 1 : 0;
}

/* Steps ---------------------------------------------------------------------------------------- */

static int32_t find_ring(const bands *b, const buffer_ref *ref) {
  for (int32_t i = b->n_rings - 1; i >= 0; i--) {
    if (ref->base == BASE_ARENA && b->rings[i].storage == ref->storage) return i;
  }
  return -1;
}

/* The row of a buffer, NULL: tiles may need all of it. */
static const svm_file_lines *lines_of(const code_object *object, int32_t buffer) {
  for (uint32_t i = 0; i < object->record->n_lines; i++) {
    if (object->lines[i].buffer == (uint32_t)buffer) return &object->lines[i];
  }
  return NULL;
}

/* How the tiles of a step are grouped. Returns 0 where it is not known. */
static int set_groups(band_step *s) {
  const code_object *object = s->code->object;
  if (!object->record->n_lines || !s->code->n_tiles) return 0;
  uint32_t at = object->lines->tile;
  const svm_file_tile *tile = &object->tiles[at];
  s->n_panels = 1;
  for (uint32_t i = at + 1; i < object->record->n_tiles; i++) {
    const svm_file_tile *t = &object->tiles[i];
    int64_t size = t->is_dim ? s->dims[t->value] : t->value;
    s->n_panels *= (size - 1) / t->divisor + 1; /* all of them together are n_tiles */
  }
  s->height = tile->is_dim ? s->dims[tile->value] : tile->value;
  s->n_lines = tile->divisor;
  s->n_of_image = (s->height - 1) / s->n_lines + 1;
  s->n_groups = s->code->n_tiles / s->n_panels;
  return s->height < MAX_HEIGHT && s->n_lines < MAX_HEIGHT && s->n_groups < MAX_GROUPS;
}

static int add_link(bands *b, band_step *s, const entry *e, int32_t buffer, int32_t ring,
                    const buffer_type *type) {
  const svm_file_lines *row = lines_of(s->code->object, buffer);
  int64_t element = DTYPE_BYTES[type->dtype];
  int32_t is_output = type->is_output;
  int64_t n_images = s->n_groups / s->n_of_image, n = e->n_elements[buffer];
  if (!row || s->n_links == BAND_LINKS) return 0;
  int64_t height = row->is_dim ? s->dims[row->value] : row->value;
  if (height < 1 || height >= MAX_HEIGHT || !n || n % n_images || n / n_images % height) return 0;
  int64_t line = n / n_images / height;
  if (is_output && height != s->height) return 0;
  s->links[s->n_links++] =
      (band_link){ring, buffer, is_output, height, line, row->stride, row->low, row->reach};
  b->rings[ring].n_readers += !is_output;
  return n == b->rings[ring].n_elements && element == b->rings[ring].element;
}

/* Add a step; the results of all but the last one are in rings. */
static int add_step(bands *b, const svm_program *p, const step *given, int is_last, void *const *bases) {
  const entry *e = given->entry;
  const buffer_type *types = p->kernels[e->kernel].buffers;
  band_step *s = &b->steps[b->n_steps];
  int32_t n_before = b->n_rings;
  for (int32_t i = 0; i < given->n_buffers; i++) { /* what it reads */
    const buffer_ref *ref = &given->refs[i];
    int32_t ring = find_ring(b, ref);
    s->buffers[i] = bases ? (void *)((uintptr_t)bases[ref->base] + (uintptr_t)ref->offset) : NULL;
    if (ring >= 0 && (types[i].is_output || !add_link(b, s, e, i, ring, &types[i]))) return 0;
  }
  if (b->n_steps && !s->n_links) return 0;
  for (int32_t i = 0; i < given->n_buffers && !is_last; i++) { /* and what it writes */
    if (!types[i].is_output) continue;
    if (b->n_rings > n_before || given->refs[i].base != BASE_ARENA) return 0; /* a step has one ring */
    int64_t n = e->n_elements[i], element = DTYPE_BYTES[types[i].dtype];
    if (n > MAX_BYTES / element) return 0;
    b->rings[b->n_rings] = (band_ring){
        .step = b->n_steps, .storage = given->refs[i].storage, .n_elements = n, .element = element};
    if (!add_link(b, s, e, i, b->n_rings++, &types[i])) return 0;
  }
  b->n_steps++;
  return 1;
}

int bands_open(bands *out, const svm_program *p, const step *first, int32_t n, int32_t strategy,
               void *const *bases) {
  out->n_steps = out->n_rings = 0;
  for (int32_t i = 0; i < n; i++) {
    band_step *s = &out->steps[i];
    s->code = entry_code(first[i].entry, strategy);
    s->dims = first[i].entry->dims;
    s->n_links = 0;
    if (!s->code || !set_groups(s) || !add_step(out, p, &first[i], i == n - 1, bases)) return 0;
  }
  for (int32_t i = 0; i < out->n_rings; i++) {
    if (!out->rings[i].n_readers) return 0;
  }
  return 1;
}

/* The run -------------------------------------------------------------------------------------- */

/* The link by which a step writes into its ring. */
static const band_link *output_of(const band_step *s) { return &s->links[s->n_links - 1]; }

/* The first element of a ring that is needed still. */
static int64_t needed_from(const bands *b, const band_state *at, int32_t ring) {
  int64_t found = INT64_MAX;
  for (int32_t i = b->rings[ring].step + 1; i < b->n_steps; i++) {
    const band_step *s = &b->steps[i];
    for (int32_t j = 0; j < s->n_links; j++) {
      if (s->links[j].ring == ring && !s->links[j].is_output)
        found = least(found, begin_of(s, &s->links[j], at->done[i]));
    }
  }
  return found;
}

/* Skip the groups that no remaining group needs, as when a result advances by more lines than it needs. So a
 * unit that continues with the rings of the previous one has no more in them than one that begins with empty
 * rings. */
static void skip(const bands *b, band_state *at) {
  for (int32_t i = b->n_steps - 2; i >= 0; i--) {
    const band_step *s = &b->steps[i];
    const band_link *l = output_of(s);
    int64_t first = groups_before(s, l, least(needed_from(b, at, l->ring), b->rings[l->ring].n_elements));
    if (first <= at->done[i]) continue;
    at->done[i] = first;
    at->low[l->ring] = at->high[l->ring] = end_of(s, l, first);
  }
}

/* Begin at a group of the last step, with empty rings. */
static void start(const bands *b, band_state *at, int64_t group) {
  memset(at, 0, sizeof *at);
  at->done[b->n_steps - 1] = group;
}

/* The groups of each step that those of the last one up to `group` need. */
static void want(const bands *b, band_state *at, int64_t group) {
  memcpy(at->wanted, at->done, sizeof at->wanted);
  at->wanted[b->n_steps - 1] = group;
  for (int32_t i = b->n_steps - 1; i > 0; i--) {
    const band_step *s = &b->steps[i];
    for (int32_t j = 0; j < s->n_links && at->wanted[i] > at->done[i]; j++) {
      if (s->links[j].is_output) continue;
      int32_t from = b->rings[s->links[j].ring].step;
      int64_t n = end_of(s, &s->links[j], at->wanted[i]);
      at->wanted[from] =
          greatest(at->wanted[from], groups_for(&b->steps[from], output_of(&b->steps[from]), n));
    }
  }
}

/* The address of an element in a ring, with the same alignment to 64 bytes as in its buffer. */
static char *place_in(const band_ring *r, const band_state *at, svm_rt *rt, int32_t ring, int64_t element) {
  int64_t low = at->low[ring] * r->element;
  return (char *)rt->scratch + r->at + low % ALIGNMENT + (element * r->element - low);
}

/* Drop unneeded elements of the ring that a step writes. `rt` NULL: only count. */
static void make_room(const bands *b, band_state *at, int32_t ring, svm_rt *rt) {
  const band_ring *r = &b->rings[ring];
  int64_t from = least(needed_from(b, at, ring), at->high[ring]);
  if (from <= at->low[ring]) return;
  char *kept = rt ? place_in(r, at, rt, ring, from) : NULL;
  at->low[ring] = from;
  if (rt) memmove(place_in(r, at, rt, ring, from), kept, (size_t)((at->high[ring] - from) * r->element));
}

static void launch(const bands *b, const band_state *at, int32_t number, svm_rt *rt) {
  const band_step *s = &b->steps[number];
  void *buffers[SVM_LIMIT_BUFFERS];
  memcpy(buffers, s->buffers, sizeof buffers);
  for (int32_t j = 0; j < s->n_links; j++) {
    const band_link *l = &s->links[j];
    const band_ring *r = &b->rings[l->ring];
    uintptr_t first = (uintptr_t)place_in(r, at, rt, l->ring, at->low[l->ring]);
    buffers[l->buffer] = (void *)(first - (uintptr_t)(at->low[l->ring] * r->element));
  }
  rt->prepared = NOTHING_PREPARED;
  s->code->run(buffers, s->dims, rt, at->done[number] * s->n_panels, at->wanted[number] * s->n_panels);
}

/* Run the groups up to `group` of the last step, and their operands. `rt` NULL: only count, the bytes of
 * rings into `found` and the groups into `counts`. Returns the step that failed, from 1 on. */
static int32_t advance(const bands *b, band_state *at, int64_t group, svm_rt *rt, band_ring *found,
                       int64_t *counts) {
  skip(b, at);
  want(b, at, group);
  for (int32_t i = 0; i < b->n_steps; i++) {
    const band_step *s = &b->steps[i];
    if (at->wanted[i] <= at->done[i]) continue;
    if (i < b->n_steps - 1) {
      const band_link *l = output_of(s);
      make_room(b, at, l->ring, rt);
      at->high[l->ring] = end_of(s, l, at->wanted[i]);
      int64_t bytes = (at->high[l->ring] - at->low[l->ring]) * b->rings[l->ring].element + ALIGNMENT;
      if (found) found[l->ring].capacity = greatest(found[l->ring].capacity, bytes);
      else if (bytes > b->rings[l->ring].capacity) { /* cannot be: layout went the same way */
        rt->error = RING_IS_FULL;
        return i + 1;
      }
    }
    if (counts) counts[i] += at->wanted[i] - at->done[i];
    if (rt) launch(b, at, i, rt);
    if (rt && rt->error) return i + 1;
    at->done[i] = at->wanted[i];
  }
  return 0;
}

/* The groups of the last step before a band; of units the first bands. */
static int64_t group_of_band(const bands *b, int64_t band) {
  return band * b->steps[b->n_steps - 1].n_groups / b->n_bands;
}

static int64_t band_of_unit(const bands *b, int64_t unit) { return unit * b->n_bands / b->n_units; }

/* Whether a thread may begin another band. Only the caller's has a watch. */
static int may_go_on(bands *b, svm_rt *rt) {
  if (rt->watch && !rt->error && watch_look(rt->watch)) {
    rt->error = KERNEL_STOPPED;
    atomic_store(&b->failed, 1);
  }
  return !rt->error && !atomic_load_explicit(&b->failed, memory_order_relaxed);
}

static void run_units(void *const *given, const int64_t *dims, svm_rt *rt, int64_t begin, int64_t end) {
  bands *b = (bands *)(uintptr_t)given;
  band_state *at = (band_state *)((char *)rt->scratch + b->state_at);
  (void)dims;
  for (int64_t unit = begin; unit < end; unit++) {
    int64_t band = band_of_unit(b, unit), behind = band_of_unit(b, unit + 1);
    if (rt->prepared != unit) start(b, at, group_of_band(b, band)); /* else the rings are as that one wants */
    for (; band < behind && may_go_on(b, rt); band++) {
      int32_t none = 0, step = advance(b, at, group_of_band(b, band + 1), rt, NULL, NULL);
      if (step) atomic_compare_exchange_strong(&b->failed, &none, step);
    }
    rt->prepared = unit + 1;
  }
}

/* The greatest content of rings, and whether the share of work that several units repeat is small enough. */
static int measure(bands *b, int is_shared) {
  int64_t counts[BAND_STEPS] = {0};
  band_state at;
  for (int32_t i = 0; i < b->n_rings; i++) b->rings[i].capacity = 0;
  for (int64_t unit = 0; unit < b->n_units; unit++) {
    int64_t band = band_of_unit(b, unit), behind = band_of_unit(b, unit + 1);
    if (!unit || is_shared) start(b, &at, group_of_band(b, band));
    for (; band < behind; band++) advance(b, &at, group_of_band(b, band + 1), NULL, b->rings, counts);
  }
  double extra = 0;
  for (int32_t i = 0; i < b->n_steps; i++) extra += (double)counts[i] / (double)b->steps[i].n_groups - 1;
  return extra * EXTRA <= b->n_steps;
}

int bands_layout(bands *b, int32_t n_threads) {
  b->n_bands = MAX_BANDS;
  b->n_threads = n_threads;
  size_t size = 0;
  for (int32_t i = 0; i < b->n_steps; i++) {
    b->n_bands = least(b->n_bands, b->steps[i].n_groups);
    size = b->steps[i].code->scratch > size ? b->steps[i].code->scratch : size;
  }
  b->n_units = n_threads > 1 ? least(b->n_bands, UNITS_OF_THREAD * n_threads) : b->n_bands;
  if (!measure(b, n_threads > 1)) {
    b->n_units = least(b->n_bands, n_threads);
    if (!measure(b, n_threads > 1)) return 0;
  }
  b->state_at = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  size = b->state_at + (sizeof(band_state) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  for (int32_t i = 0; i < b->n_rings; i++) {
    b->rings[i].at = size;
    size += ((size_t)b->rings[i].capacity + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }
  b->scratch = size;
  return 1;
}

int64_t bands_bytes(const bands *b) { return (int64_t)(b->scratch - b->state_at) * b->n_threads; }

int32_t bands_failed(const bands *b) {
  int32_t step = atomic_load(&b->failed);
  return step ? step - 1 : 0;
}

int32_t bands_run(bands *b, svm_rt *rt) {
  void *const *given = (void *const *)(void *)b;
  atomic_init(&b->failed, 0);
  if (rt_reserve(rt, b->scratch)) return -1;
  rt->prepared = NOTHING_PREPARED;
  /* For one thread the rings hold what units in their order need, whatever svm_set_threads says by now. */
  if (b->n_threads > 1) threads_run(run_units, given, NULL, rt, b->n_units, 1, b->scratch);
  else threads_run_alone(run_units, given, NULL, rt, b->n_units, 1);
  return rt->error != 0;
}
