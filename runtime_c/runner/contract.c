/* Prints a program's inputs and outputs, and its call sites. */
#include <inttypes.h>
#include <stdio.h>

#include "runner/runner.h"

#define DTYPE_NAME(code, constant, name, bytes) [code] = name,
#define TAG_NAME(code, constant, name) [code] = name,
static const char *const DTYPE_NAMES_HERE[] = {SVM_DTYPES(DTYPE_NAME)};
static const char *const TAG_NAMES_HERE[] = {SVM_TAGS(TAG_NAME)};

static void print_axis(const svm_program *p, const svm_axis_info *axis) {
  if (axis->symbol < 0) {
    if (*axis->expression) printf("%s", axis->expression);
    else printf("%" PRId64, axis->offset);
    return;
  }
  if (axis->scale != 1) printf("%" PRId64 "*", axis->scale);
  printf("%s", svm_symbol(p, axis->symbol)->name);
  if (axis->offset) printf("%+" PRId64, axis->offset);
}

static void print_tensor(const svm_program *p, int32_t dtype, int32_t rank, const svm_axis_info *axes) {
  printf("%s[", DTYPE_NAMES_HERE[dtype]);
  for (int32_t a = 0; a < rank; a++) {
    if (a) printf(", ");
    print_axis(p, &axes[a]);
  }
  printf("]\n");
}

static void print_output(const svm_program *p, const svm_output_info *output, const char *indent) {
  printf("%soutput  %s: ", indent, output->name);
  if (output->kind == SVM_TAG_TENSOR) print_tensor(p, output->dtype, output->rank, output->axes);
  else printf("%s\n", output->kind < 0 ? "any value" : TAG_NAMES_HERE[output->kind]);
}

static void print_input(const svm_program *p, const svm_input_info *input, const char *indent) {
  printf("%sinput   %s: ", indent, input->name);
  if (input->kind != SVM_TAG_TENSOR) {
    printf("%s%s%s\n", TAG_NAMES_HERE[input->kind], input->symbol < 0 ? "" : " = ",
           input->symbol < 0 ? "" : svm_symbol(p, input->symbol)->name);
    return;
  }
  print_tensor(p, input->dtype, input->rank, input->axes);
}

/* The entry points besides main. */
static void print_functions(const svm_program *p) {
  for (int32_t f = 1; f < svm_n_functions(p); f++) {
    if (!svm_is_entry_point(p, f)) continue;
    printf("function %s\n", svm_function(p, f)->name);
    for (int32_t i = 0; i < svm_function_n_inputs(p, f); i++)
      print_input(p, svm_function_input(p, f, i), "  ");
    for (int32_t i = 0; i < svm_function_n_outputs(p, f); i++)
      print_output(p, svm_function_output(p, f, i), "  ");
  }
}

void print_contract(const svm_program *p) {
  int64_t code_bytes = 0;
  for (int32_t i = 0; i < svm_n_inputs(p); i++) print_input(p, svm_input(p, i), "");
  for (int32_t i = 0; i < svm_n_symbols(p); i++) {
    const svm_symbol_info *s = svm_symbol(p, i);
    printf("symbol  %s: ", s->name);
    if (s->min == -INT64_MAX) printf("any integer");
    else printf("at least %" PRId64, s->min);
    if (s->max != INT64_MAX) printf(", at most %" PRId64, s->max);
    if (s->multiple_of != 1) printf(", a multiple of %" PRId64, s->multiple_of);
    printf(*s->why ? " (%s)\n" : "\n", s->why);
  }
  for (int32_t i = 0; i < svm_n_outputs(p); i++) print_output(p, svm_output(p, i), "");
  print_functions(p);
  for (int32_t i = 0; i < svm_n_externs(p); i++) printf("extern  %s\n", svm_extern_name(p, i));
  for (int32_t i = 0; i < svm_n_kernels(p); i++) {
    const svm_kernel_info *k = svm_kernel(p, i);
    code_bytes += k->code_bytes;
    printf("kernel  %s: %d sizes, %d buffers, %d code objects of %" PRId64 " bytes%s%s\n", k->label,
           k->n_dims, k->n_buffers, k->n_objects, k->code_bytes, *k->source ? ", " : "", k->source);
  }
  printf("code    %" PRId64 " bytes for %s\n", code_bytes,
         *svm_host_target() ? svm_host_target() : "no known target");
}

void print_stats(svm_program *p, FILE *to) {
  static const char *const STATES[] = SVM_SITE_NAMES, *const TIERS[] = SVM_TIER_NAMES;
  svm_stats s;
  svm_get_stats(p, &s);
  fprintf(to,
          "calls %" PRId64 ", replays %" PRId64 ", traces %" PRId64 ", interpreted %" PRId64
          ", plans %" PRId64 " of %" PRId64 " bytes, arenas %" PRId64 " bytes\n",
          s.calls, s.replays, s.traces, s.interpreted, s.n_plans, s.plan_bytes, s.arena_bytes);
  for (int32_t i = 0; i < svm_n_kernels(p); i++) {
    svm_site_stats site;
    svm_entry_stats e;
    svm_get_site(p, i, &site);
    fprintf(to, "site    %s: %s, %" PRId64 " hits, %" PRId64 " misses\n", svm_kernel(p, i)->label,
            STATES[site.state], site.hits, site.misses);
    for (int32_t j = 0; j < site.n_entries && !svm_get_entry(p, i, j, &e); j++) {
      fprintf(to, "        [");
      for (int32_t d = 0; d < e.n_dims; d++) fprintf(to, d ? ", %" PRId64 : "%" PRId64, e.dims[d]);
      fprintf(to, "] %s, %" PRId64 " hits, %" PRId64 " tiles, %" PRId64 " bytes%s%s\n", TIERS[e.tier], e.hits,
              e.n_tiles, e.code_bytes, *e.schedule ? ", " : "", e.schedule);
    }
  }
}
