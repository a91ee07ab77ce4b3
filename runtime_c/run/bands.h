/* Steps that follow each other, run in bands of lines: what one writes is still in a cache near the core when
 * the next one reads it. */
#pragma once

#include "run/plan.h"

enum { BAND_STEPS = 16, BAND_LINKS = 4 };

/* A buffer of a step that holds, in place of its images, the lines that are needed still: a ring. `line`, in
 * elements; the others as in svm_file_lines. */
typedef struct band_link {
  int32_t ring, buffer, is_output;
  int64_t height, line, stride, low, reach;
} band_link;

/* A step. Its tiles come in groups of `n_panels`, each of which produces `n_lines` lines of an image of
 * `height`; the last group of an image produces the remaining ones. */
typedef struct band_step {
  const instance *code;
  const int64_t *dims;
  int64_t n_groups, n_panels, n_of_image, n_lines, height;
  int32_t n_links;
  band_link links[BAND_LINKS];
  void *buffers[SVM_LIMIT_BUFFERS]; /* those that are no rings */
} band_step;

/* The results of one step, `n_elements` of `element` bytes, of which a ring has `capacity` bytes, at `at` in
 * a thread's scratch. */
typedef struct band_ring {
  int32_t step, storage, n_readers;
  int64_t n_elements, element, capacity;
  size_t at;
} band_ring;

/* Steps at the sizes of a call. They are run in `n_bands` bands; threads divide `n_units` of these, if there
 * are several. `failed`: the step that reported an error, from 1 on; then no thread begins another band.
 * `state_at`: the bytes of kernels' own scratch; the rest of `scratch` belongs to the run. */
typedef struct bands {
  int32_t n_steps, n_rings, n_threads;
  _Atomic int32_t failed;
  int64_t n_bands, n_units;
  size_t state_at, scratch;
  band_step steps[BAND_STEPS];
  band_ring rings[BAND_STEPS];
} bands;

/* Fill *out for `n` steps from `first` on. `bases` NULL: of a trace, without addresses. Returns 0 where one
 * of them is not known to take its buffers line by line. */
int bands_open(bands *out, const svm_program *p, const step *first, int32_t n, int32_t strategy,
               void *const *bases);

/* Decide the units for `n_threads` threads, and the size of the rings. Returns 0 if several units would
 * compute too many of the same lines. */
int bands_layout(bands *b, int32_t n_threads);

/* The bytes that the run takes on all threads, without kernels' own scratch. */
int64_t bands_bytes(const bands *b);

/* Run all units. Not 0: as launch_run. */
int32_t bands_run(bands *b, svm_rt *rt);

/* Which step reported the error after that; the first one where none did. */
int32_t bands_failed(const bands *b);
