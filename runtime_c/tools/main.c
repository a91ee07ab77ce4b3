/* shapevm-run: runs an artifact on numpy files. All that it needs of the runtime is svm.h. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/outfile.h"
#include "values/npy.h"
#include "svm.h"

/* Exit codes. */
enum { EXIT_DONE = 0, EXIT_USAGE = 2, EXIT_LOAD = 3, EXIT_CONTRACT = 4, EXIT_RUN = 5 };

static const char HELP[] =
    "shapevm-run MODEL.svm [options]: run a compiled model on numpy files\n"
    "\n"
    "  --input NAME=FILE.npy   an input; FILE.npz alone gives all the names in it (may be repeated)\n"
    "  --input NAME=NUMBER     an int, float or bool input\n"
    "  --output FILE.npz       where the outputs go; FILE.npy if there is one output\n"
    "  --function NAME         the function to call (default main; --list shows them)\n"
    "  --repeat N              call N times, print the first, least and median time (default 1)\n"
    "  --threads N             threads that run kernels (default 0: one per CPU)\n"
    "  --strategy NAME         generic; auto, bucket: the file's exact code and buckets too (default auto)\n"
    "  --fuel N                instructions that one call may run (default 0: no limit)\n"
    "  --memory N              bytes that one call may hold, and the inputs (default 0: no limit)\n"
    "  --call-depth N          calls within calls of the program's functions (default 1000; 0: 1048576)\n"
    "  --nesting N             containers within containers (default 200; 0: 1000)\n"
    "  --timeout SECONDS       how long one call may take (default 0: no limit)\n"
    "  --verify WHEN           check the weights' hashes: full, first of all; lazy, beside the calls; none\n"
    "                          (default: full up to 64 MiB of weights, else lazy)\n"
    "  --huge-pages WHEN       weights on huge pages: always, in a copy of the file; never (default: where "
    "the\n"
    "                          file system has them)\n"
    "  --digest SHA256         refuse a file with another SHA-256 (shapevm digest prints it)\n"
    "  --plugin LIB.so         a shared library with functions that the program calls (may be repeated)\n"
    "  --no-native-code        refuse to run the file's machine code (here there is no other)\n"
    "  --perf-map              write /tmp/perf-PID.map for profilers\n"
    "  --list                  print the contract and the kernels, run nothing\n"
    "  --stats                 print the call sites after running\n"
    "  --metrics FILE          write all counters as OpenMetrics text\n"
    "  --trace FILE.json       write when which kernel ran on which thread, for ui.perfetto.dev\n"
    "  --record FILE.json      write the sizes of the calls as a profile, for shapevm bake\n"
    "\n"
    "Exit: 0 done, 2 usage, 3 the file cannot be loaded, 4 the inputs break the contract, 5 the run "
    "failed.\n";

enum { DIGEST_BYTES = 32 };

typedef struct arguments {
  const char *model, *function, *output, *metrics, *trace, *record;
  const char **inputs, **plugins;
  int n_inputs, n_plugins, list, stats;
  int32_t threads, call_depth, nesting;
  int64_t repeat;
  svm_options options;
  uint8_t digest[DIGEST_BYTES];
} arguments;

static int usage(const char *message, const char *value) {
  fprintf(stderr, "shapevm-run: %s%s%s (--help lists the options)\n", message, *value ? ": " : "", value);
  return EXIT_USAGE;
}

static int report(int exit_code, const svm_error *error) {
  fprintf(stderr, "shapevm-run: %s", error->message);
  if (error->source && *error->source && !strstr(error->message, error->source))
    fprintf(stderr, " (%s)", error->source);
  fprintf(stderr, "\n");
  return exit_code;
}

static int out_of_memory(const char *what) {
  fprintf(stderr, "shapevm-run: memory: there is none for %s; free some or use smaller inputs\n", what);
  return EXIT_RUN;
}

/* Ctrl-C ends the call that runs; a second one ends the process. */
static volatile int32_t is_cancelled;

static void cancel(int number) {
  is_cancelled = 1;
  signal(number, SIG_DFL);
}

/* Arguments ------------------------------------------------------------------------------------ */

static int parse_number(const char *text, int64_t least, int64_t most, int64_t *out) {
  char *end;
  errno = 0;
  long long n = strtoll(text, &end, 10);
  if (end == text || *end || errno || n < least || n > most) return 0;
  *out = n;
  return 1;
}

/* The place of a text among names, -1 where it is none of them. */
static int32_t code_of(const char *text, const char *const *names, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(text, names[i])) return (int32_t)i;
  return -1;
}

static int parse_strategy(arguments *a, const char *text) {
  static const char *const NAMES[] = SVM_STRATEGY_NAMES;
  a->options.strategy = code_of(text, NAMES, sizeof NAMES / sizeof *NAMES);
  return a->options.strategy >= 0 && a->options.strategy != SVM_STRATEGY_JIT
             ? 0
             : usage("the strategy is auto, bucket or generic (there is no compiler here)", text);
}

static int parse_timeout(arguments *a, const char *text) {
  char *end;
  double seconds = strtod(text, &end);
  if (end == text || *end || !(seconds >= 0 && seconds <= SVM_LIMIT_TIMEOUT_S))
    return usage("the timeout is not a number of seconds from 0 to 1e9", text);
  a->options.timeout_ms = (int64_t)ceil(seconds * 1000);
  return 0;
}

static int parse_verify(arguments *a, const char *text) {
  static const char *const NAMES[] = SVM_VERIFY_NAMES;
  a->options.verify = code_of(text, NAMES, sizeof NAMES / sizeof *NAMES);
  return a->options.verify > SVM_VERIFY_AUTO ? 0 : usage("the weights are verified full, lazy or none", text);
}

static int parse_huge_pages(arguments *a, const char *text) {
  static const char *const NAMES[] = SVM_HUGE_PAGES_NAMES;
  a->options.huge_pages = code_of(text, NAMES, sizeof NAMES / sizeof *NAMES);
  return a->options.huge_pages >= 0 ? 0 : usage("huge pages are used auto, always or never", text);
}

static int parse_digest(arguments *a, const char *text) {
  static const char digits[] = "0123456789abcdef0123456789ABCDEF";
  size_t n = strlen(text);
  if (n != 2 * DIGEST_BYTES || strspn(text, digits) != n)
    return usage("a digest has 64 hexadecimal digits", text);
  for (int i = 0; i < DIGEST_BYTES; i++) {
    long high = (strchr(digits, text[2 * i]) - digits) % 16,
         low = (strchr(digits, text[2 * i + 1]) - digits) % 16;
    a->digest[i] = (uint8_t)(16 * high + low);
  }
  a->options.sha256 = a->digest;
  return 0;
}

static int parse_value(arguments *a, const char *name, const char *value) {
  int64_t n;
  const struct {
    const char *name;
    int64_t least, most, *wide;
    int32_t *narrow;
  } NUMBERS[] = {{"--repeat", 1, INT32_MAX, &a->repeat, NULL},
                 {"--threads", 0, SVM_LIMIT_THREADS, NULL, &a->threads},
                 {"--fuel", 0, INT64_MAX, &a->options.fuel, NULL},
                 {"--memory", 0, INT64_MAX, &a->options.memory_max, NULL},
                 {"--call-depth", 0, SVM_LIMIT_CALL_DEPTH, NULL, &a->call_depth},
                 {"--nesting", 0, SVM_LIMIT_NESTING, NULL, &a->nesting}};
  for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++) {
    if (strcmp(name, NUMBERS[i].name)) continue;
    if (!parse_number(value, NUMBERS[i].least, NUMBERS[i].most, &n))
      return usage("not a number in range", value);
    if (NUMBERS[i].wide) *NUMBERS[i].wide = n;
    else *NUMBERS[i].narrow = (int32_t)n;
    return 0;
  }
  if (!strcmp(name, "--verify")) return parse_verify(a, value);
  if (!strcmp(name, "--huge-pages")) return parse_huge_pages(a, value);
  if (!strcmp(name, "--digest")) return parse_digest(a, value);
  if (!strcmp(name, "--timeout")) return parse_timeout(a, value);
  if (!strcmp(name, "--input")) return a->inputs[a->n_inputs++] = value, 0;
  if (!strcmp(name, "--plugin")) return a->plugins[a->n_plugins++] = value, 0;
  if (!strcmp(name, "--function")) return a->function = value, 0;
  if (!strcmp(name, "--output")) return a->output = value, 0;
  if (!strcmp(name, "--metrics")) return a->metrics = value, 0;
  if (!strcmp(name, "--trace")) return a->trace = value, 0;
  if (!strcmp(name, "--record")) return a->record = value, 0;
  if (!strcmp(name, "--strategy")) return parse_strategy(a, value);
  return usage("unknown option", name);
}

/* 0, an exit code, or -1 when all is done. */
static int parse_arguments(int argc, char **argv, arguments *a) {
  for (int i = 1; i < argc; i++) {
    const char *name = argv[i];
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) return fputs(HELP, stdout), -1;
    if (!strcmp(name, "--list")) a->list = 1;
    else if (!strcmp(name, "--stats")) a->stats = 1;
    else if (!strcmp(name, "--perf-map")) a->options.perf_map = 1;
    else if (!strcmp(name, "--no-native-code")) a->options.native_code = 0;
    else if (!strncmp(name, "--", 2)) {
      if (i + 1 == argc) return usage("a value is missing after", name);
      int code = parse_value(a, name, argv[++i]);
      if (code) return code;
    } else if (a->model) return usage("a second model", name);
    else a->model = name;
  }
  return a->model ? 0 : usage("no model given", "");
}

/* The contract, printed ------------------------------------------------------------------------ */

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

static void print_contract(const svm_program *p) {
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

static void print_stats(svm_program *p) {
  static const char *const STATES[] = SVM_SITE_NAMES, *const TIERS[] = SVM_TIER_NAMES;
  svm_stats s;
  svm_get_stats(p, &s);
  printf("calls %" PRId64 ", replays %" PRId64 ", traces %" PRId64 ", interpreted %" PRId64 ", plans %" PRId64
         " of %" PRId64 " bytes, arenas %" PRId64 " bytes\n",
         s.calls, s.replays, s.traces, s.interpreted, s.n_plans, s.plan_bytes, s.arena_bytes);
  for (int32_t i = 0; i < svm_n_kernels(p); i++) {
    svm_site_stats site;
    svm_entry_stats e;
    svm_get_site(p, i, &site);
    printf("site    %s: %s, %" PRId64 " hits, %" PRId64 " misses\n", svm_kernel(p, i)->label,
           STATES[site.state], site.hits, site.misses);
    for (int32_t j = 0; j < site.n_entries && !svm_get_entry(p, i, j, &e); j++) {
      printf("        [");
      for (int32_t d = 0; d < e.n_dims; d++) printf(d ? ", %" PRId64 : "%" PRId64, e.dims[d]);
      printf("] %s, %" PRId64 " hits, %" PRId64 " tiles, %" PRId64 " bytes%s%s\n", TIERS[e.tier], e.hits,
             e.n_tiles, e.code_bytes, *e.schedule ? ", " : "", e.schedule);
    }
  }
}

/* Inputs --------------------------------------------------------------------------------------- */

typedef struct batch {
  npy_array *arrays;
  int32_t n;
} batch;

/* Bytes that the inputs may still take, 0: no limit. */
typedef struct room {
  int64_t max, left;
} room;

/* The function that is called. */
static int32_t called;

static int32_t n_inputs_of(const svm_program *p) { return svm_function_n_inputs(p, called); }
static int32_t n_outputs_of(const svm_program *p) { return svm_function_n_outputs(p, called); }
static const svm_input_info *input_of(const svm_program *p, int32_t i) {
  return svm_function_input(p, called, i);
}

static int32_t find_input(const svm_program *p, const char *name, size_t n) {
  for (int32_t i = 0; i < n_inputs_of(p); i++) {
    if (strlen(input_of(p, i)->name) == n && !strncmp(input_of(p, i)->name, name, n)) return i;
  }
  return -1;
}

/* A 0-d array of a matching dtype is also good for an int, float or bool input. */
static int set_array(const svm_program *p, int32_t index, const npy_array *array, svm_value *value) {
  int32_t kind = input_of(p, index)->kind;
  const svm_tensor *t = &array->tensor;
  value->tag = SVM_TAG_TENSOR;
  value->tensor = *t;
  if (t->strides) value->tensor.strides = array->strides;
  if (kind == SVM_TAG_TENSOR || t->rank) return 0;
  if (kind == SVM_TAG_INT && t->dtype == SVM_DTYPE_I64)
    value->tag = kind, value->integer = *(int64_t *)t->data;
  if (kind == SVM_TAG_FLOAT && t->dtype == SVM_DTYPE_F64)
    value->tag = kind, value->number = *(double *)t->data;
  if (kind == SVM_TAG_BOOL && t->dtype == SVM_DTYPE_BOOL)
    value->tag = kind, value->integer = *(uint8_t *)t->data;
  return 0;
}

static int set_scalar(const svm_program *p, int32_t index, const char *text, svm_value *value) {
  int32_t kind = input_of(p, index)->kind;
  char *end = NULL;
  value->tag = kind;
  if (kind == SVM_TAG_INT)
    return parse_number(text, INT64_MIN, INT64_MAX, &value->integer) ? 0 : usage("not an int", text);
  if (kind == SVM_TAG_LIST) return usage("a list cannot be given here, only in Python or C", text);
  if (kind == SVM_TAG_STR) return value->text = text, value->length = (int64_t)strlen(text), 0;
  if (kind == SVM_TAG_BOOL) {
    value->integer = !strcmp(text, "true");
    return value->integer || !strcmp(text, "false") ? 0 : usage("not true or false", text);
  }
  value->number = strtod(text, &end);
  return end == text || *end ? usage("not a float", text) : 0;
}

static int read_arrays(const svm_program *p, const char *path, const char *name, size_t name_bytes,
                       room *room, batch *b, svm_value *values) {
  svm_error error;
  if (npy_read(path, room->left, &b->arrays, &b->n, &error))
    return report(error.code == SVM_ERROR_MEMORY || error.code == SVM_ERROR_LIMIT ? EXIT_RUN : EXIT_USAGE,
                  &error);
  for (int32_t i = 0; i < b->n; i++) {
    room->left -= room->max ? (int64_t)npy_data_bytes(&b->arrays[i].tensor) : 0;
    const char *own = b->arrays[i].name;
    int32_t index = name_bytes ? find_input(p, name, name_bytes) : find_input(p, own, strlen(own));
    if (name_bytes && b->n > 1) return usage("an .npz with several arrays takes no name before it", path);
    if (index < 0)
      return usage("the model has no input of that name (--list shows them)", name_bytes ? name
                                                                              : *own     ? own
                                                                                         : path);
    set_array(p, index, &b->arrays[i], &values[index]);
  }
  return 0;
}

/* "NAME=FILE", "NAME=NUMBER" or "FILE.npz". */
static int read_input(const svm_program *p, const char *text, room *room, batch *b, svm_value *values) {
  const char *equals = strchr(text, '=');
  int32_t index = equals ? find_input(p, text, (size_t)(equals - text)) : -1;
  if (equals && index < 0) return usage("the model has no input of that name (--list shows them)", text);
  if (room->max && room->left <= 0) return usage("the inputs are over the limit of --memory", text);
  if (!equals) return read_arrays(p, text, "", 0, room, b, values);
  size_t n = strlen(equals + 1);
  int is_file = n > 4 && (!strcmp(equals + n - 3, ".npy") || !strcmp(equals + n - 3, ".npz"));
  if (!is_file && input_of(p, index)->kind != SVM_TAG_TENSOR)
    return set_scalar(p, index, equals + 1, &values[index]);
  return read_arrays(p, equals + 1, text, (size_t)(equals - text), room, b, values);
}

/* Outputs -------------------------------------------------------------------------------------- */

/* Tensors by name; scalars become 0-d, elements of containers "name.key". */
typedef struct outputs {
  char **names;
  svm_tensor *tensors;
  int64_t *scalars;     /* memory of the 0-d ones */
  int32_t n, n_visited; /* values, containers too */
} outputs;

enum { MAX_OUTPUTS = 4096 };

static int add_text(outputs *o, const svm_value *v) {
  uint32_t *points = calloc((size_t)v->length + 1, sizeof *points);
  if (!points) return out_of_memory("an output that is a str");
  int64_t n = npy_code_points(v->text, v->length, points);
  o->tensors[o->n] = (svm_tensor){.data = points, .dtype = NPY_TEXT, .sizes = {n ? n : 1}};
  return 0;
}

static int add_output(outputs *o, const char *name, const svm_value *v) {
  if (o->n_visited++ == MAX_OUTPUTS) {
    fprintf(stderr, "shapevm-run: the results hold over %d values, at %.200s; write fewer or use Python\n",
            MAX_OUTPUTS, name);
    return EXIT_RUN;
  }
  svm_tensor *t = &o->tensors[o->n];
  if (v->tag == SVM_TAG_LIST || v->tag == SVM_TAG_TUPLE || v->tag == SVM_TAG_DICT) {
    for (int64_t i = 0; i < v->length; i++) {
      char inner[600];
      svm_value key, item;
      svm_value_item(v, i, &key, &item); /* i is in range */
      if (key.tag == SVM_TAG_STR) snprintf(inner, sizeof inner, "%.250s.%.250s", name, key.text);
      else snprintf(inner, sizeof inner, "%.250s.%" PRId64, name, key.integer);
      int code = add_output(o, inner, &item);
      if (code) return code;
    }
    return 0;
  }
  *t = (svm_tensor){.data = &o->scalars[o->n]};
  if (v->tag == SVM_TAG_STR) {
    int code = add_text(o, v);
    if (code) return code;
  } else if (v->tag == SVM_TAG_TENSOR) *t = v->tensor;
  else if (v->tag == SVM_TAG_INT) t->dtype = SVM_DTYPE_I64, memcpy(t->data, &v->integer, 8);
  else if (v->tag == SVM_TAG_FLOAT) t->dtype = SVM_DTYPE_F64, memcpy(t->data, &v->number, 8);
  else if (v->tag == SVM_TAG_BOOL) t->dtype = SVM_DTYPE_BOOL, *(uint8_t *)t->data = v->integer != 0;
  else return usage("an output is none, which numpy's files do not hold", name);
  o->names[o->n] = strdup(name);
  return o->names[o->n++] ? 0 : out_of_memory("the outputs' names");
}

/* State that the call wrote to in place is written too, as what it gives back is. */
static int write_outputs(const svm_program *p, const char *path, const svm_value *inputs,
                         const svm_value *values) {
  outputs o = {calloc(MAX_OUTPUTS, sizeof *o.names), calloc(MAX_OUTPUTS, sizeof *o.tensors),
               calloc(MAX_OUTPUTS, 8), 0, 0};
  int code = o.names && o.tensors && o.scalars ? 0 : out_of_memory("the table of outputs");
  for (int32_t i = 0; !code && i < n_outputs_of(p); i++)
    code = add_output(&o, svm_function_output(p, called, i)->name, &values[i]);
  for (int32_t i = 0; !code && i < n_inputs_of(p); i++)
    if (svm_function_writes(p, called, i)) code = add_output(&o, input_of(p, i)->name, &inputs[i]);
  size_t n = strlen(path);
  int is_npy = n > 4 && !strcmp(path + n - 4, ".npy");
  svm_error error;
  if (!code && is_npy && o.n != 1)
    code = usage("an .npy holds one output, the model gives several: write an .npz", path);
  if (!code && (is_npy ? npy_write(path, o.tensors, &error)
                       : npz_write(path, (const char *const *)o.names, o.tensors, o.n, &error)))
    code = report(EXIT_RUN, &error);
  for (int32_t i = 0; i < o.n; i++) {
    if (o.tensors[i].dtype == NPY_TEXT) free(o.tensors[i].data);
    free(o.names[i]);
  }
  free(o.names);
  free(o.tensors);
  free(o.scalars);
  return code;
}

/* Running -------------------------------------------------------------------------------------- */

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int run_repeatedly(svm_program *p, const arguments *a, const svm_value *values, svm_value *results) {
  svm_error error;
  int32_t n_results = n_outputs_of(p);
  double *times = calloc((size_t)a->repeat, sizeof *times);
  int code = times ? 0 : out_of_memory("the table of times");
  svm_call_options how;
  svm_call_options_init(&how);
  how.cancel = &is_cancelled;
  for (int64_t i = 0; !code && i < a->repeat; i++) {
    for (int32_t j = 0; j < n_results; j++) svm_value_release(&results[j]);
    double begin = now_ms();
    if (svm_call_with(p, &how, called, values, n_inputs_of(p), NULL, results, n_results, &error))
      code = report(EXIT_RUN, &error);
    times[i] = now_ms() - begin;
  }
  if (!code) {
    double first = times[0];
    qsort(times, (size_t)a->repeat, sizeof *times, by_value);
    printf("first %.4f ms, min %.4f ms, median %.4f ms, %" PRId64 " calls, %d threads\n", first, times[0],
           times[a->repeat / 2], a->repeat, svm_get_threads());
  }
  free(times);
  return code;
}

static int write_report(svm_program *p, int32_t (*make)(svm_program *, char **, svm_error *),
                        const char *path) {
  svm_error error;
  char *text;
  if (make(p, &text, &error)) return report(EXIT_RUN, &error);
  outfile out;
  int32_t code = outfile_begin(&out, path, &error);
  if (!code) code = outfile_end(&out, fputs(text, out.stream) >= 0, &error);
  svm_text_free(text);
  return code ? report(EXIT_RUN, &error) : 0;
}

/* The model's label is the file's name without folders and suffix. */
static const char *model_path;

static int32_t metrics_of_model(svm_program *p, char **text, svm_error *error) {
  const char *slash = strrchr(model_path, '/'), *begin = slash ? slash + 1 : model_path;
  char name[256];
  snprintf(name, sizeof name, "%s", begin);
  char *dot = strrchr(name, '.');
  if (dot && dot != name) *dot = 0;
  return svm_metrics(p, name, text, error);
}

/* Memory of one's own for a tensor that calls write to. */
static int copy_state(svm_value *value) {
  svm_value made;
  svm_error error;
  const svm_tensor *t = &value->tensor;
  if (svm_value_tensor(t->dtype, t->rank, t->sizes, &made, &error)) return report(EXIT_RUN, &error);
  memcpy(made.tensor.data, t->data, npy_data_bytes(t));
  *value = made;
  return 0;
}

/* State that no --input gives has the artifact's first values; these are constants of the program. */
static int fill_state(svm_program *p, svm_value *values) {
  int32_t function = svm_find_function(p, "initial_state");
  int32_t n = function < 0 ? 0 : svm_function(p, function)->n_results, first = n_inputs_of(p) - n;
  if (!n || first < 0) return 0;
  svm_error error;
  svm_value *initial = calloc((size_t)n, sizeof *initial);
  int code = initial ? 0 : out_of_memory("the initial state");
  if (!code && svm_call(p, function, NULL, 0, NULL, initial, n, &error)) code = report(EXIT_RUN, &error);
  for (int32_t i = 0; !code && i < n; i++) {
    if (values[first + i].tag != SVM_TAG_NONE) continue;
    values[first + i] = initial[i];
    if (svm_function_writes(p, called, first + i)) code = copy_state(&values[first + i]);
  }
  free(initial);
  return code;
}

static int run_model(svm_program *p, const arguments *a, batch *batches, svm_value *values,
                     svm_value *results) {
  svm_error error;
  room room = {a->options.memory_max, a->options.memory_max};
  for (int i = 0; i < a->n_inputs; i++) {
    int code = read_input(p, a->inputs[i], &room, &batches[i], values);
    if (code) return code;
  }
  int unfilled = fill_state(p, values);
  if (unfilled) return unfilled;
  for (int32_t i = 0; i < n_inputs_of(p); i++) {
    if (values[i].tag == SVM_TAG_NONE)
      return usage("an input is missing (--input NAME=FILE.npy)", input_of(p, i)->name);
  }
  int64_t *symbols = calloc((size_t)svm_n_symbols(p) + 1, sizeof *symbols);
  if (!symbols) return out_of_memory("the symbols");
  int32_t broken = svm_bind_function(p, called, values, n_inputs_of(p), symbols, &error);
  free(symbols);
  if (broken) return report(broken == SVM_ERROR_MEMORY ? EXIT_RUN : EXIT_CONTRACT, &error);
  if (a->record && svm_record(p, 1, &error)) return report(EXIT_RUN, &error);
  if (a->metrics) svm_time_calls(p, 1);
  if (a->trace && svm_timeline(p, 1, &error)) return report(EXIT_RUN, &error);
  int code = run_repeatedly(p, a, values, results);
  if (!code && svm_check_weights(p, &error)) return report(EXIT_RUN, &error);
  if (!code && a->stats) print_stats(p);
  if (!code && a->metrics) code = write_report(p, metrics_of_model, a->metrics);
  if (!code && a->trace) code = write_report(p, svm_timeline_text, a->trace);
  if (!code && a->record) code = write_report(p, svm_profile, a->record);
  if (!code && a->output) code = write_outputs(p, a->output, values, results);
  return !code && svm_check_file(p, &error) ? report(EXIT_RUN, &error) : code; /* outputs may be weights */
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
  called = a->function ? svm_find_function(p, a->function) : svm_main_function(p);
  if (!svm_is_entry_point(p, called))
    return usage("the model has no function of that name (--list shows them)", a->function);
  int refused = load_plugins(p, a);
  if (refused) return refused;
  int32_t n = n_inputs_of(p), n_results = n_outputs_of(p);
  batch *batches = calloc((size_t)a->n_inputs + 1, sizeof *batches);
  svm_value *values = calloc((size_t)n + 1, sizeof *values),
            *results = calloc((size_t)n_results + 1, sizeof *results);
  int code = batches && values && results ? run_model(p, a, batches, values, results)
                                          : out_of_memory("the tables of inputs and outputs");
  for (int32_t i = 0; results && i < n_results; i++) svm_value_release(&results[i]);
  for (int32_t i = 0; values && i < n; i++) svm_value_release(&values[i]);
  for (int i = 0; batches && i < a->n_inputs; i++) npy_free(batches[i].arrays, batches[i].n);
  free(batches);
  free(values);
  free(results);
  return code;
}

int main(int argc, char **argv) {
  arguments a = {.repeat = 1, .call_depth = SVM_DEFAULT_CALL_DEPTH, .nesting = SVM_DEFAULT_NESTING};
  svm_error error;
  svm_program *p;
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
      model_path = a.model;
      svm_limit_depth(p, a.call_depth, a.nesting, NULL); /* they are in range */
      code = with_program(p, &a);
      svm_close(p);
    }
  }
  free(a.inputs);
  free(a.plugins);
  return code < 0 ? EXIT_DONE : code;
}
