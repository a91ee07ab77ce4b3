/* Counters as OpenMetrics text: the same names from Python and from shapevm-run. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/status.h"
#include "base/text.h"
#include "program/program.h"

static void add_family(text_buffer *t, const char *name, const char *type, const char *help) {
  text_add(t, "# TYPE shapevm_%s %s\n# HELP shapevm_%s %s\n", name, type, name, help);
}

/* Begin a sample: its name and the model's label, if there is one. */
static void add_sample(text_buffer *t, const char *name, const char *suffix, const char *label) {
  text_add(t, "shapevm_%s%s%s%s%s", name, suffix, *label ? "{" : "", label, *label ? "}" : "");
}

static void add_program(svm_program *p, const char *label, text_buffer *t) {
  svm_stats s;
  svm_get_stats(p, &s);
  const struct {
    const char *name, *type, *help;
    int64_t value;
  } rows[] = {
      {"calls", "counter", "Calls of the program's functions.", s.calls},
      {"replays", "counter", "Calls that replayed a plan.", s.replays},
      {"band_runs", "counter", "Runs of several kernels in bands of lines.",
       atomic_load(&p->counters.n_band_runs)},
      {"traces", "counter", "Calls that were traced to make a plan.", s.traces},
      {"interpreted", "counter", "Calls that were interpreted.", s.interpreted},
      {"extern_calls", "counter", "Calls of host functions: of PyTorch's kernels.", s.extern_calls},
      {"plans", "gauge", "Plans kept, one per shape.", s.n_plans},
      {"plan_bytes", "gauge", "Bytes of plans.", s.plan_bytes},
      {"plans_evicted", "counter", "Plans that made room for others.", s.plans_evicted},
      {"contexts", "gauge", "Contexts, one per call that ran at once.", s.n_contexts},
      {"arena_bytes", "gauge", "Bytes between kernels kept for the next call.", s.arena_bytes},
      {"code_bytes", "gauge", "Bytes of code installed since loading that are mapped.", s.code_bytes},
      {"code_installed", "counter", "Code objects installed since loading.", s.code_installed},
      {"code_evicted", "counter", "Exact code that made room for other.", s.code_evicted},
      {"compile_queue", "gauge", "Requests for exact code that wait.", s.n_queued},
      {"compile_failures", "counter", "Compilations that failed.", s.n_failed},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    add_family(t, rows[i].name, rows[i].type, rows[i].help);
    add_sample(t, rows[i].name, *rows[i].type == 'c' ? "_total" : "", label);
    text_add(t, " %" PRId64 "\n", rows[i].value);
  }
  add_family(t, "call_seconds", "histogram", "Seconds that calls of main took since they are timed.");
  latencies_write(&p->observers.latencies, "shapevm_call_seconds", label, t);
}

static int64_t entries_of(const svm_site_stats *s) { return s->n_entries; }
static int64_t hits_of(const svm_site_stats *s) { return s->hits; }
static int64_t misses_of(const svm_site_stats *s) { return s->misses; }
static int64_t outside_of(const svm_site_stats *s) { return s->outside; }

static void add_sites(svm_program *p, const char *label, text_buffer *t) {
  static const struct {
    const char *name, *type, *help;
    int64_t (*value)(const svm_site_stats *);
  } ROWS[] = {
      {"site_entries", "gauge", "Shapes that a call site holds.", entries_of},
      {"site_hits", "counter", "Launches that found their entry.", hits_of},
      {"site_misses", "counter", "Launches that made an entry.", misses_of},
      {"site_outside", "counter", "Misses outside of all buckets.", outside_of},
  };
  for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
    add_family(t, ROWS[i].name, ROWS[i].type, ROWS[i].help);
    for (int32_t k = 0; k < p->n_kernels; k++) {
      svm_site_stats s;
      svm_get_site(p, k, &s);
      text_add(t, "shapevm_%s%s{%s%skernel=\"%" PRId32 "\",label=", ROWS[i].name,
               *ROWS[i].type == 'c' ? "_total" : "", label, *label ? "," : "", k);
      text_add_quoted(t, p->kernels[k].info.label);
      text_add(t, "} %" PRId64 "\n", ROWS[i].value(&s));
    }
  }
}

int32_t svm_metrics(svm_program *p, const char *model, char **out, svm_error *error) {
  if (status_need(p, "svm_metrics: program", error) || status_need(out, "svm_metrics: text", error))
    return SVM_ERROR_ARGUMENT;
  svm_error unasked;
  text_buffer t = {0}, label = {0};
  if (model) {
    text_add(&label, "model=");
    text_add_quoted(&label, model);
  }
  const char *shown = label.bytes ? label.bytes : "";
  add_program(p, shown, &t);
  add_sites(p, shown, &t);
  text_add(&t, "# EOF\n");
  int is_lost = label.is_lost;
  free(label.bytes);
  if (is_lost) {
    free(t.bytes);
    t.bytes = NULL;
  }
  *out = t.bytes;
  return t.bytes ? SVM_OK
                 : status_fail(error ? error : &unasked, SVM_ERROR_MEMORY,
                               "memory: there is none for the metrics");
}

void svm_time_calls(svm_program *p, int32_t is_on) {
  if (!p) return;
  if (is_on) atomic_fetch_or(&p->observers.counted, COUNT_TIMES);
  else atomic_fetch_and(&p->observers.counted, ~COUNT_TIMES);
}
