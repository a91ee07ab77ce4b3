/* The tokens of a language model: for one sequence, main computes logits and "sample" draws a token. The
 * pages of the sequence are those of the cache in order, so that a position is its own slot. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/runner.h"

enum { PAGE = 16, PART = 256 }; /* slots of a page; tokens of a prompt that are computed in one call */

/* A function of the program with its inputs and results. `values` are borrowed, except main's state. */
typedef struct function {
  invocation call;
  svm_value *values, *results;
} function;

typedef struct generation {
  const arguments *a;
  const svm_call_options *how;
  function forward, sample, ends;
  int64_t n, n_done, n_prompt, most; /* tokens: all, those in the cache, the given ones, the greatest n */
  int64_t *tokens, *line;            /* line: 0, 1, ... */
  int32_t *table;
  uint8_t *mask; /* of "sample": every token may come */
} generation;

static int begin_function(function *f, svm_program *p, const char *name) {
  f->call = (invocation){p, name ? svm_find_function(p, name) : svm_main_function(p)};
  if (!svm_is_entry_point(p, f->call.function))
    return usage("the model is no language model: it has no function", name);
  f->values = calloc((size_t)n_inputs_of(&f->call) + 1, sizeof *f->values);
  f->results = calloc((size_t)n_outputs_of(&f->call) + 1, sizeof *f->results);
  return f->values && f->results ? 0 : out_of_memory("the tables of inputs and outputs");
}

static void end_function(function *f, int owns_values) {
  for (int32_t i = 0; f->results && i < n_outputs_of(&f->call); i++) svm_value_release(&f->results[i]);
  for (int32_t i = 0; owns_values && f->values && i < n_inputs_of(&f->call); i++)
    svm_value_release(&f->values[i]);
  free(f->results);
  free(f->values);
}

static int run(const generation *g, function *f) {
  svm_error error;
  int32_t n = n_outputs_of(&f->call);
  for (int32_t i = 0; i < n; i++) svm_value_release(&f->results[i]);
  return svm_call_with(f->call.program, g->how, f->call.function, f->values, n_inputs_of(&f->call), NULL,
                       f->results, n, &error)
             ? report(EXIT_RUN, &error)
             : 0;
}

/* Give an input memory of ours. Returns 0 or an exit code. */
static int put(function *f, const char *name, int32_t dtype, void *data, int64_t n_rows, int64_t n) {
  int32_t i = find_input(&f->call, name, strlen(name));
  if (i < 0) return usage("the model is no language model: it has no input", name);
  int32_t rank = n_rows ? 2 : 1;
  svm_tensor t = {.data = data, .dtype = dtype, .rank = rank, .sizes = {rank == 2 ? n_rows : n, n}};
  f->values[i] = (svm_value){.tag = SVM_TAG_TENSOR, .tensor = t};
  return 0;
}

/* A result that is a tensor of this dtype, and not empty; NULL, and a sentence, for another one. */
static const svm_tensor *result_of(const function *f, const char *name, int32_t dtype) {
  for (int32_t i = 0; i < n_outputs_of(&f->call); i++) {
    const svm_value *v = &f->results[i];
    if (strcmp(svm_function_output(f->call.program, f->call.function, i)->name, name)) continue;
    if (v->tag == SVM_TAG_TENSOR && v->tensor.dtype == dtype && !v->tensor.strides &&
        npy_data_bytes(&v->tensor))
      return &v->tensor;
  }
  usage("the model is no language model: it has no result", name);
  return NULL;
}

/* The tokens that are given, and room for those that are added. */
static int read_tokens(generation *g) {
  svm_error error;
  npy_array *arrays = NULL;
  int32_t n_arrays = 0;
  if (npz_read(g->a->tokens, g->a->options.memory_max, &arrays, &n_arrays, &error))
    return report(EXIT_USAGE, &error);
  const svm_tensor *t = n_arrays == 1 ? &arrays[0].tensor : NULL;
  int code = 0;
  if (!t || t->dtype != SVM_DTYPE_I64 || t->rank != 1 || t->sizes[0] < 1 || t->sizes[0] > g->most)
    code = usage("the tokens must be one array i64[tokens] of at least 1 and at most the model's length",
                 g->a->tokens);
  if (!code) {
    g->n = g->n_prompt = t->sizes[0];
    if (g->a->sampling.most < g->most - g->n) g->most = g->n + g->a->sampling.most;
    g->tokens = calloc((size_t)g->most, sizeof *g->tokens);
    g->line = calloc((size_t)g->most, sizeof *g->line);
    g->table = calloc((size_t)(g->most / PAGE + 1), sizeof *g->table);
    code = g->tokens && g->line && g->table ? 0 : out_of_memory("the tokens");
    if (!code) memcpy(g->tokens, t->data, (size_t)g->n * sizeof *g->tokens);
    for (int64_t i = 0; !code && i < g->most; i++) g->line[i] = i, g->table[i / PAGE] = (int32_t)(i / PAGE);
  }
  npy_free(arrays, n_arrays);
  return code;
}

/* The most tokens of a sequence, by the contract of "sample". */
static int64_t length_of(const svm_program *p) {
  for (int32_t i = 0; i < svm_n_symbols(p); i++)
    if (!strcmp(svm_symbol(p, i)->name, "seen") && svm_symbol(p, i)->max > 0) return svm_symbol(p, i)->max;
  return 1 << 24;
}

/* Other functions read main's state. Refuses a sequence that its cache cannot hold. */
static int share_state(generation *g) {
  function *const OTHERS[] = {&g->sample, &g->ends};
  int code = fill_state(&g->forward.call, g->forward.values);
  for (int32_t i = 0; !code && i < n_inputs_of(&g->forward.call); i++) {
    const char *name = input_of(&g->forward.call, i)->name;
    const svm_value *v = &g->forward.values[i];
    if (strncmp(name, "state.", 6)) continue;
    if (v->tag == SVM_TAG_TENSOR && v->tensor.rank && v->tensor.sizes[0] < g->most)
      code = usage("the cache is too small for these tokens: compile the model with more cache_tokens", "");
    for (int j = 0; j < 2; j++) {
      int32_t own = find_input(&OTHERS[j]->call, name, strlen(name));
      if (own >= 0) OTHERS[j]->values[own] = *v;
    }
  }
  return code;
}

/* Write the tokens that are not in the cache yet, and compute the logits behind the last one. */
static int advance(generation *g) {
  int code = 0;
  while (!code && g->n_done < g->n) {
    int64_t n = g->n - g->n_done < PART ? g->n - g->n_done : PART, end = g->n_done + n, last = n - 1;
    int64_t offsets[2] = {0, n};
    function *f = &g->forward;
    code = put(f, "ids", SVM_DTYPE_I64, g->tokens + g->n_done, 0, n);
    if (!code) code = put(f, "positions", SVM_DTYPE_I64, g->line + g->n_done, 0, n);
    if (!code) code = put(f, "slots", SVM_DTYPE_I64, g->line + g->n_done, 0, n);
    if (!code) code = put(f, "offsets", SVM_DTYPE_I64, offsets, 0, 2);
    if (!code) code = put(f, "lengths", SVM_DTYPE_I64, &end, 0, 1);
    if (!code) code = put(f, "table", SVM_DTYPE_I32, g->table, 1, (end + PAGE - 1) / PAGE);
    if (!code) code = put(f, "last", SVM_DTYPE_I64, &last, 0, 1);
    if (!code) code = run(g, f);
    g->n_done = end;
  }
  return code;
}

/* Let every token come: "sample" draws those with a true mask. */
static int allow_all(generation *g, int64_t n) {
  uint8_t *mask = realloc(g->mask, (size_t)n);
  if (!mask) return out_of_memory("the mask of tokens");
  g->mask = memset(mask, 1, (size_t)n);
  return put(&g->sample, "mask", SVM_DTYPE_BOOL, g->mask, 1, n);
}

/* The token behind the last one. */
static int draw(generation *g, int64_t *token) {
  const sampling *s = &g->a->sampling;
  double numbers[N_SAMPLING];
  memcpy(numbers, s->numbers, sizeof numbers);
  int64_t integers[3] = {s->top_k, 0, g->n};
  memcpy(&integers[1], &s->seed, sizeof s->seed);
  int is_plain = numbers[0] == 0 && numbers[3] == 1;
  const svm_tensor *found = NULL;
  int code = 0;
  if (is_plain) found = result_of(&g->forward, "next", SVM_DTYPE_I64);
  else {
    const svm_tensor *logits = result_of(&g->forward, "logits", SVM_DTYPE_F32);
    if (!logits) return EXIT_USAGE;
    if (logits->rank != 2 || logits->sizes[0] != 1)
      return usage("the model is no language model: its logits are no row for each sequence", "");
    code = put(&g->sample, "logits", SVM_DTYPE_F32, logits->data, 1, logits->sizes[1]);
    if (!code) code = put(&g->sample, "tokens", SVM_DTYPE_I64, g->tokens, 0, g->n);
    if (!code) code = put(&g->sample, "numbers", SVM_DTYPE_F64, numbers, 0, N_SAMPLING);
    if (!code) code = put(&g->sample, "integers", SVM_DTYPE_I64, integers, 0, 3);
    if (!code) code = allow_all(g, logits->sizes[1]);
    if (!code) code = run(g, &g->sample);
    if (!code) found = result_of(&g->sample, "token", SVM_DTYPE_I64);
  }
  if (code || !found) return code ? code : EXIT_USAGE;
  memcpy(token, found->data, sizeof *token);
  return 0;
}

/* Add a token, if it does not end the text; print it. */
static int add(generation *g, int64_t token, int *is_over) {
  int code = put(&g->ends, "token", SVM_DTYPE_I64, &token, 0, 1);
  if (!code) code = run(g, &g->ends);
  const svm_tensor *found = code ? NULL : result_of(&g->ends, "is_stop", SVM_DTYPE_I64);
  if (!found) return code ? code : EXIT_USAGE;
  int64_t is_stop = 0;
  memcpy(&is_stop, found->data, sizeof is_stop);
  *is_over = is_stop != 0;
  if (*is_over) return 0;
  if (!g->a->output) {
    printf("%s%" PRId64, g->n > g->n_prompt ? " " : "", token);
    fflush(stdout);
  }
  g->tokens[g->n++] = token;
  return 0;
}

static int add_tokens(generation *g) {
  int code = 0, is_over = 0;
  while (!code && !is_over && g->n < g->most) {
    int64_t token = 0;
    code = advance(g);
    if (!code) code = draw(g, &token);
    if (!code) code = add(g, token, &is_over);
  }
  if (!code && !g->a->output) puts("");
  return code;
}

static int write_tokens(const generation *g) {
  svm_error error;
  svm_tensor made = {
      .data = g->tokens + g->n_prompt, .dtype = SVM_DTYPE_I64, .rank = 1, .sizes = {g->n - g->n_prompt}};
  return g->a->output && npy_write(g->a->output, &made, &error) ? report(EXIT_RUN, &error) : 0;
}

int generate(svm_program *p, const arguments *a, const svm_call_options *how) {
  svm_error error;
  generation g = {.a = a, .how = how, .most = length_of(p)};
  int code = begin_function(&g.forward, p, NULL);
  if (!code) code = begin_function(&g.sample, p, "sample");
  if (!code) code = begin_function(&g.ends, p, "ends");
  if (!code) code = read_tokens(&g);
  if (!code) code = share_state(&g);
  if (!code) code = add_tokens(&g);
  if (!code && svm_check_weights(p, &error)) code = report(EXIT_RUN, &error);
  if (!code) code = write_tokens(&g);
  end_function(&g.ends, 0);
  end_function(&g.sample, 0);
  end_function(&g.forward, 1);
  free(g.tokens);
  free(g.line);
  free(g.table);
  free(g.mask);
  return code;
}
