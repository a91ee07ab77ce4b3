/* shapevm-run: runs an artifact on numpy files. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/outfile.h"
#include "base/text.h"
#include "runner/runner.h"

/* Ctrl-C ends the call that runs; a second one ends the process. */
static volatile int32_t is_cancelled;

static void cancel(int number) {
  is_cancelled = 1;
  signal(number, SIG_DFL);
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int run_repeatedly(const invocation *call, const arguments *a, const svm_value *values,
                          svm_value *results) {
  svm_error error;
  int32_t n_results = n_outputs_of(call);
  double *times = calloc((size_t)a->repeat, sizeof *times);
  int code = times ? 0 : out_of_memory("the table of times");
  svm_call_options how;
  svm_call_options_init(&how);
  how.cancel = &is_cancelled;
  for (int64_t i = 0; !code && i < a->repeat; i++) {
    for (int32_t j = 0; j < n_results; j++) svm_value_release(&results[j]);
    double begin = now_ms();
    if (svm_call_with(call->program, &how, call->function, values, n_inputs_of(call), NULL, results,
                      n_results, &error))
      code = report(EXIT_RUN, &error);
    times[i] = now_ms() - begin;
  }
  if (!code) {
    double first = times[0];
    qsort(times, (size_t)a->repeat, sizeof *times, by_value);
    char line[200];
    text_format(line, sizeof line,
                "first %.4f ms, min %.4f ms, median %.4f ms, %" PRId64 " calls, %d threads\n", first,
                times[0], times[a->repeat / 2], a->repeat, svm_get_threads());
    fputs(line, a->said);
  }
  free(times);
  return code;
}

/* Write a text that the runtime made. */
static int write_report(const char *path, int32_t failed, char *text, svm_error *error) {
  outfile out;
  if (failed) return report(EXIT_RUN, error);
  int32_t code = outfile_begin(&out, path, error);
  if (!code) code = outfile_end(&out, fputs(text, out.stream) >= 0, error);
  svm_text_free(text);
  return code ? report(EXIT_RUN, error) : 0;
}

/* The model's label is the file's name without folders and suffix. */
static int32_t metrics_of_model(svm_program *p, const char *path, char **text, svm_error *error) {
  const char *slash = strrchr(path, '/'), *begin = slash ? slash + 1 : path;
  char name[256];
  snprintf(name, sizeof name, "%s", begin);
  char *dot = strrchr(name, '.');
  if (dot && dot != name) *dot = 0;
  return svm_metrics(p, name, text, error);
}

static int write_reports(svm_program *p, const arguments *a) {
  svm_error error;
  char *text = NULL;
  int32_t failed;
  int code = 0;
  if (a->stats) print_stats(p, a->said);
  if (a->metrics) {
    failed = metrics_of_model(p, a->model, &text, &error);
    code = write_report(a->metrics, failed, text, &error);
  }
  if (!code && a->trace) {
    failed = svm_timeline_text(p, &text, &error);
    code = write_report(a->trace, failed, text, &error);
  }
  if (!code && a->record) {
    failed = svm_profile(p, &text, &error);
    code = write_report(a->record, failed, text, &error);
  }
  return code;
}

static int run_model(const invocation *call, const arguments *a, batch *batches, svm_value *values,
                     svm_value *results) {
  svm_error error;
  room room = {a->options.memory_max, a->options.memory_max};
  for (int i = 0; i < a->n_inputs; i++) {
    int code = read_input(call, a->inputs[i], &room, &batches[i], values);
    if (code) return code;
  }
  int unpadded = a->offsets ? pad_inputs(call, a->offsets, &room, &batches[a->n_inputs], values) : 0;
  if (unpadded) return unpadded;
  int unfilled = fill_state(call, values);
  if (unfilled) return unfilled;
  for (int32_t i = 0; i < n_inputs_of(call); i++) {
    if (values[i].tag == SVM_TAG_NONE)
      return usage("an input is missing (--input NAME=FILE.npy)", input_of(call, i)->name);
  }
  int64_t *symbols = calloc((size_t)svm_n_symbols(call->program) + 1, sizeof *symbols);
  if (!symbols) return out_of_memory("the symbols");
  int32_t broken =
      svm_bind_function(call->program, call->function, values, n_inputs_of(call), symbols, &error);
  free(symbols);
  if (broken) return report(broken == SVM_ERROR_MEMORY ? EXIT_RUN : EXIT_CONTRACT, &error);
  if (a->record && svm_record(call->program, 1, &error)) return report(EXIT_RUN, &error);
  if (a->metrics) svm_time_calls(call->program, 1);
  if (a->trace && svm_timeline(call->program, 1, &error)) return report(EXIT_RUN, &error);
  int code = run_repeatedly(call, a, values, results);
  if (!code && svm_check_weights(call->program, &error)) return report(EXIT_RUN, &error);
  if (!code) code = write_reports(call->program, a);
  if (!code && a->output) code = write_outputs(call, a->output, values, results);
  return !code && svm_check_file(call->program, &error) ? report(EXIT_RUN, &error)
                                                        : code; /* outputs may be weights */
}

/* Functions that neither the file nor a plug-in has. */
static int refuse_externs(const svm_program *p) {
  int32_t i = 0, n = svm_n_externs(p);
  while (i < n && !svm_extern_is_missing(p, i)) i++;
  if (i == n) return 0;
  const char *name = svm_extern_name(p, i), *source = svm_extern_source(p, i);
  int is_torch = !strncmp(name, "aten::", 6) || !strncmp(name, "prims::", 7);
  fprintf(stderr, "shapevm-run: %s has no kernel, %s%s%s%s\n", name,
          is_torch ? "it is PyTorch's: run this from Python where torch is installed"
                   : "it is a function of a host's: give the plug-in that has it (--plugin LIB.so)",
          *source ? " (" : "", source, *source ? ")" : "");
  return EXIT_LOAD;
}

static int load_plugins(svm_program *p, const arguments *a) {
  svm_error error;
  for (int i = 0; i < a->n_plugins; i++)
    if (svm_load_plugin(p, a->plugins[i], &error)) return report(EXIT_LOAD, &error);
  return refuse_externs(p);
}

static int with_program(svm_program *p, const arguments *a) {
  if (a->list) return print_contract(p), 0;
  if (a->tokens) {
    svm_call_options how;
    svm_call_options_init(&how);
    how.cancel = &is_cancelled;
    int refused = load_plugins(p, a);
    return refused ? refused : generate(p, a, &how);
  }
  invocation call = {p, a->function ? svm_find_function(p, a->function) : svm_main_function(p)};
  if (!svm_is_entry_point(p, call.function))
    return usage("the model has no function of that name (--list shows them)", a->function);
  int refused = load_plugins(p, a);
  if (refused) return refused;
  int32_t n = n_inputs_of(&call), n_results = n_outputs_of(&call);
  batch *batches = calloc((size_t)a->n_inputs + 1, sizeof *batches); /* the last: offsets */
  svm_value *values = calloc((size_t)n + 1, sizeof *values),
            *results = calloc((size_t)n_results + 1, sizeof *results);
  int code = batches && values && results ? run_model(&call, a, batches, values, results)
                                          : out_of_memory("the tables of inputs and outputs");
  for (int32_t i = 0; results && i < n_results; i++) svm_value_release(&results[i]);
  for (int32_t i = 0; values && i < n; i++) svm_value_release(&values[i]);
  for (int i = 0; batches && i <= a->n_inputs; i++) npy_free(batches[i].arrays, batches[i].n);
  free(batches);
  free(values);
  free(results);
  return code;
}

/* A standard file that is closed must not become one that is opened later: it is one that cannot be written.
 */
static void fill_standard_files(void) {
  for (int file = STDIN_FILENO; file <= STDERR_FILENO; file++)
    if (fcntl(file, F_GETFD) < 0) open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* Whether all that was printed has arrived; else one sentence says why not. */
static int is_printed(void) {
  errno = 0;
  if (!fflush(stdout) && !ferror(stdout)) return 1;
  fprintf(stderr, "shapevm-run: standard output: cannot write it: %s\n", strerror(errno ? errno : EIO));
  return 0;
}

int main(int argc, char **argv) {
  arguments a = {.repeat = 1,
                 .call_depth = SVM_DEFAULT_CALL_DEPTH,
                 .nesting = SVM_DEFAULT_NESTING,
                 .sampling = {.most = -1, .numbers = {0, 1, 0, 1}}};
  svm_error error;
  svm_program *p;
  fill_standard_files();
  svm_options_init(&a.options);
  a.inputs = calloc((size_t)argc + 1, sizeof *a.inputs);
  a.plugins = calloc((size_t)argc + 1, sizeof *a.plugins);
  int code = a.inputs && a.plugins ? parse_arguments(argc, argv, &a) : out_of_memory("the arguments");
  signal(SIGINT, cancel);
  signal(SIGTERM, cancel);
  if (code == 0) {
    if (svm_set_threads(a.threads, &error)) code = report(EXIT_USAGE, &error);
    else if (svm_open_path(a.model, &a.options, &p, &error)) code = report(EXIT_LOAD, &error);
    else {
      svm_limit_depth(p, a.call_depth, a.nesting, NULL); /* they are in range */
      code = with_program(p, &a);
      svm_close(p);
    }
  }
  free(a.inputs);
  free(a.plugins);
  if (code < 0) code = EXIT_DONE;
  return is_printed() || code ? code : EXIT_RUN;
}
