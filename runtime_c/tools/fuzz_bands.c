/* Fuzzer of bands: random chains of steps with random rows `lines`, whose kernels are written in C. Each
 * checks every element that its rows allow it to read, and spoils its own scratch.
 *
 *   fuzz_bands [ITERATIONS [RANDOM_SEED]]
 *
 * Exit 0: every element was right. Prints how many chains ran in bands, and how many of those ended with the
 * error that a step was told to report, unless nothing needed its lines. Build with
 * -DSVM_SANITIZE=address,undefined or thread. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/bands.h"
#include "tools/random_bits.h"

enum { MAX_STEPS = 6, MAX_INPUTS = 3, MAX_TILES = 3, SCRATCH = 256, WANTED_ERROR = 7, MAX_ELEMENTS = 20000 };

static int64_t iteration;

static int64_t between(int64_t low, int64_t high) {
  return low + (int64_t)(random_bits() % (uint64_t)(high - low + 1));
}

/* An input of a stage: the result of another one, seen as images of `height` lines. `row`: its record. */
typedef struct source {
  int32_t stage; /* 0: the chain's input */
  int64_t line;
  svm_file_lines row;
} source;

/* A step of a chain and all that the runtime wants to know of it. Its kernel finds it by its dim. */
typedef struct stage {
  int64_t n_images, height, line, n_lines, n_panels;
  int32_t n_inputs, fails, number;
  source inputs[MAX_INPUTS];
  svm_file_object record;
  svm_file_tile tiles[MAX_TILES];
  svm_file_lines lines[MAX_INPUTS + 1];
  code_object object;
  instance code;
  buffer_type types[MAX_INPUTS + 1];
  buffer_ref refs[MAX_INPUTS + 1];
  entry *entry;
} stage;

static int64_t n_elements(const stage *s) { return s->n_images * s->height * s->line; }

static int32_t value_of(int32_t stage, int64_t element) {
  return (int32_t)((uint32_t)element * 2654435761u + (uint32_t)stage * 40503u + (uint32_t)iteration);
}

static void fail(const stage *s, const char *what, int64_t element) {
  fprintf(stderr, "fuzz_bands: iteration %" PRId64 ": step %d: %s at element %" PRId64 "\n", iteration,
          s->number, what, element);
  abort();
}

/* Check all lines that results of lines `first` to before `end` of an image may read. */
static void check_input(const stage *s, const source *in, const int32_t *data, int64_t image, int64_t first,
                        int64_t end) {
  const svm_file_lines *x = &in->row;
  for (int64_t y = first; y < end; y++) {
    for (int64_t line = y * x->stride - x->low; line < y * x->stride - x->low + x->reach; line++) {
      if (line < 0 || line >= x->value) continue;
      for (int64_t i = 0, at = (image * x->value + line) * in->line; i < in->line; i++, at++)
        if (data[at] != value_of(in->stage, at)) fail(s, "another value was read", at);
    }
  }
}

static void run_tile(const stage *s, void *const *buffers, int64_t tile) {
  int64_t n_of_image = (s->height - 1) / s->n_lines + 1, panel = tile % s->n_panels;
  int64_t group = tile / s->n_panels % n_of_image, image = tile / s->n_panels / n_of_image;
  int64_t first = group * s->n_lines, end = first + s->n_lines < s->height ? first + s->n_lines : s->height;
  for (int32_t i = 0; i < s->n_inputs; i++) check_input(s, &s->inputs[i], buffers[i], image, first, end);
  int32_t *to = buffers[s->n_inputs];
  for (int64_t y = first; y < end; y++) {
    int64_t at = (image * s->height + y) * s->line, behind = at + (panel + 1) * s->line / s->n_panels;
    for (at += panel * s->line / s->n_panels; at < behind; at++) to[at] = value_of(s->number, at);
  }
}

static void run(void *const *buffers, const int64_t *dims, svm_rt *rt, int64_t begin, int64_t end) {
  const stage *s = (const stage *)(uintptr_t)dims[0];
  memset(rt->scratch, 0xab, s->code.scratch);
  rt->prepared = begin;
  for (int64_t tile = begin; tile < end; tile++) run_tile(s, buffers, tile);
  if (s->fails) rt->error = WANTED_ERROR;
}

/* Chains --------------------------------------------------------------------------------------- */

/* Another number of lines for the same elements, now and then. */
static int64_t lines_of_image(const stage *s) {
  int64_t n = s->height * s->line;
  int64_t lines = between(0, 4) ? s->height : between(1, n);
  return n % lines ? s->height : lines;
}

static source choose_source(const stage *stages, int32_t number, int32_t of) {
  int64_t n = lines_of_image(&stages[of]);
  (void)number;
  svm_file_lines row = {.value = n, .stride = between(1, 3), .low = between(-2, 4), .reach = between(1, 6)};
  return (source){of, stages[of].height * stages[of].line / n, row};
}

static void describe(stage *s) {
  int32_t n = s->n_inputs, tile = (int32_t)between(1, MAX_TILES - 1);
  int64_t outer = tile == 2 && s->n_images % 2 == 0 ? 2 : 1; /* images by one tile, or by two */
  s->tiles[0] = (svm_file_tile){.value = s->n_images / outer, .divisor = 1};
  s->tiles[1] = (svm_file_tile){.value = s->height, .divisor = s->n_lines};
  s->tiles[2] = (svm_file_tile){.value = s->n_panels, .divisor = 1};
  uint32_t at = 1;
  if (s->n_panels == 1 && outer == 2) {
    s->tiles[2] = s->tiles[1];
    s->tiles[1] = (svm_file_tile){.value = outer, .divisor = 1};
    at = 2;
  } else {
    s->tiles[0].value = s->n_images;
  }
  for (int32_t i = 0; i < n; i++) s->lines[i] = s->inputs[i].row;
  s->lines[n] = (svm_file_lines){.value = s->height, .stride = 1, .reach = 1};
  for (int32_t i = 0; i <= n; i++) s->lines[i].buffer = (uint32_t)i, s->lines[i].tile = at;
  s->record = (svm_file_object){.n_tiles = MAX_TILES, .n_lines = (uint32_t)n + 1, .n_dims = 1};
  s->object = (code_object){.record = &s->record, .tiles = s->tiles, .lines = s->lines, .run = run};
}

static void publish(stage *s, const stage *stages, kernel *k) {
  describe(s);
  s->entry = calloc(1, sizeof *s->entry + (2 + MAX_INPUTS) * sizeof(int64_t));
  s->entry->kernel = s->number - 1;
  s->entry->n_dims = 1;
  s->entry->dims[0] = (int64_t)(uintptr_t)s;
  s->entry->n_elements = s->entry->dims + 1;
  for (int32_t i = 0; i <= s->n_inputs; i++) {
    int32_t of = i < s->n_inputs ? s->inputs[i].stage : s->number;
    s->types[i] = (buffer_type){.dtype = SVM_DTYPE_I32, .is_output = i == s->n_inputs};
    s->refs[i] = (buffer_ref){.base = of ? BASE_ARENA : BASE_INPUTS, .storage = of};
    s->entry->n_elements[i] = n_elements(&stages[of]);
  }
  s->code = (instance){.run = run,
                       .n_tiles = code_tiles(&s->object, s->entry->dims),
                       .scratch = (size_t)between(0, SCRATCH),
                       .object = &s->object};
  atomic_init(&s->entry->code, &s->code);
  k->buffers = s->types;
}

/* Stage 0 is the chain's input. */
static int32_t make_chain(stage *stages, kernel *kernels) {
  int32_t n = (int32_t)between(2, MAX_STEPS);
  int64_t n_images = between(1, 4);
  for (int32_t i = 0; i <= n; i++) {
    stage *s = &stages[i];
    *s = (stage){.n_images = n_images, .height = between(1, 60), .line = between(1, 40), .number = i};
    s->n_lines = between(1, between(0, 3) ? 6 : 70);
    s->n_panels = between(0, 2) ? 1 : between(1, 3);
    if (!i) continue;
    s->inputs[s->n_inputs++] = choose_source(stages, i, i - 1);
    while (s->n_inputs < MAX_INPUTS && !between(0, 2))
      s->inputs[s->n_inputs++] = choose_source(stages, i, (int32_t)between(0, i - 1));
    publish(s, stages, &kernels[i - 1]);
  }
  return n;
}

static int32_t *values_of(const stage *s) {
  int32_t *data = calloc((size_t)n_elements(s), sizeof *data);
  for (int64_t i = 0; i < n_elements(s); i++) data[i] = value_of(s->number, i);
  return data;
}

typedef struct counts {
  int64_t in_bands, failed;
} counts;

static void try_chain(counts *seen) {
  static stage stages[MAX_STEPS + 1];
  static kernel kernels[MAX_STEPS];
  static bands b;
  step steps[MAX_STEPS];
  svm_rt rt = {0};
  svm_program p = {.kernels = kernels};
  int32_t n = make_chain(stages, kernels), fails = between(0, 9) ? 0 : (int32_t)between(1, n);
  stages[fails].fails = fails > 0;
  int32_t *input = values_of(&stages[0]), *output = calloc((size_t)n_elements(&stages[n]), sizeof *output);
  int32_t n_threads = (int32_t)between(1, 4);
  void *bases[] = {output, NULL, input};
  for (int32_t i = 0; i < n; i++)
    steps[i] = (step){stages[i + 1].entry, stages[i + 1].refs, stages[i + 1].n_inputs + 1, 0, 0};
  if (!between(0, 9))
    svm_set_threads((int32_t)between(1, 4), NULL); /* another number than that of the layout */
  if (bands_open(&b, &p, steps, n, SVM_STRATEGY_AUTO, bases) && bands_layout(&b, n_threads)) {
    int32_t code = bands_run(&b, &rt);
    seen->in_bands++;
    seen->failed += code != 0;
    if (code && (!fails || rt.error != WANTED_ERROR)) fail(&stages[fails], "an error", rt.error);
    if (code && bands_failed(&b) != fails - 1) fail(&stages[fails], "another step failed", bands_failed(&b));
    for (int64_t i = 0; !code && i < n_elements(&stages[n]); i++)
      if (output[i] != value_of(n, i)) fail(&stages[n], "a result is missing", i);
  }
  for (int32_t i = 1; i <= n; i++) free(stages[i].entry);
  free(input);
  free(output);
  rt_free(&rt);
}

int main(int argc, char **argv) {
  int64_t n = argc > 1 ? atoll(argv[1]) : 1000;
  uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  counts seen = {0};
  for (iteration = 0; iteration < n; iteration++) {
    state = (seed + (uint64_t)iteration + 1) * UINT64_C(0x9E3779B97F4A7C15);
    for (int i = 0; i < 4; i++) random_bits();
    try_chain(&seen);
  }
  printf("%" PRId64 " chains, %" PRId64 " in bands, %" PRId64 " of them with an error\n", n, seen.in_bands,
         seen.failed);
  return 0;
}
