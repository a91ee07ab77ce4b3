/* The command line, and the sentences about it. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/outfile.h"
#include "base/text.h"
#include "runner/runner.h"

static const char HELP[] =
    "shapevm-run MODEL.svm [options]: run a compiled model on numpy files\n"
    "\n"
    "  --input NAME=FILE.npy  an input (may be repeated); FILE.npz alone gives all\n"
    "                         inputs in it\n"
    "  --input NAME=NUMBER    an int, float or bool input; a list is [1, 2], [\"a\"]\n"
    "                         or FILE.npz\n"
    "  --offsets FILE.npy     inputs are packed: tokens of several texts, the first of\n"
    "                         each by its offset, i64[texts + 1]; they become rows,\n"
    "                         and an input that is not given their mask\n"
    "  --generate N           add up to N tokens of a language model to those of\n"
    "                         --tokens FILE.npy, i64[tokens]; they are printed, or\n"
    "                         written to --output FILE.npy\n"
    "  --temperature T        of --generate (default 0: the most probable token)\n"
    "  --top-k N, --top-p P, --min-p P, --repetition-penalty R, --seed N\n"
    "                         which tokens are drawn, as in shapevm.llm.Sampling\n"
    "  --output FILE.npz      file for the outputs; FILE.npy if there is only one\n"
    "  --function NAME        the function to call (default main; --list shows all)\n"
    "  --repeat N             call N times, print the first, least and median time\n"
    "                         (default 1)\n"
    "  --threads N            threads that run kernels (default 0: one per CPU)\n"
    "  --strategy NAME        generic; auto or bucket: also the file's exact and\n"
    "                         bucket code (default auto)\n"
    "  --fuel N               instructions that one call may run (default 0: no\n"
    "                         limit)\n"
    "  --memory N             bytes that one call may hold, and that the inputs may\n"
    "                         have (default 0: no limit)\n"
    "  --call-depth N         depth of calls between the program's functions\n"
    "                         (default 1000; 0: 1048576)\n"
    "  --nesting N            depth of nested containers (default 200; 0: 1000)\n"
    "  --timeout SECONDS      longest time of one call (default 0: no limit)\n"
    "  --verify WHEN          check the weights' hashes: full, before running; lazy,\n"
    "                         in the background; none (default: full up to 64 MiB of\n"
    "                         weights, else lazy)\n"
    "  --huge-pages WHEN      weights on huge pages: always, in a copy of the file;\n"
    "                         never (default: if the file system supports it)\n"
    "  --digest SHA256        refuse a file with another SHA-256 (shapevm digest\n"
    "                         prints it)\n"
    "  --plugin LIB.so        a shared library with functions that the program calls\n"
    "                         (may be repeated)\n"
    "  --no-native-code       refuse a file whose kernels need machine code\n"
    "  --perf-map             write /tmp/perf-PID.map for profilers\n"
    "  --list                 print the contract and the kernels; run nothing\n"
    "  --stats                print the call sites after running\n"
    "  --metrics FILE         write all counters as OpenMetrics text\n"
    "  --trace FILE.json      write the time and thread of each kernel, for\n"
    "                         ui.perfetto.dev\n"
    "  --record FILE.json     write the sizes of the calls as a profile, for shapevm\n"
    "                         bake\n"
    "\n"
    "Exit codes: 0 success, 2 usage, 3 the file cannot be loaded, 4 the inputs break\n"
    "the contract, 5 the call failed.\n";

int usage(const char *message, const char *value) {
  fprintf(stderr, "shapevm-run: %s%s%s (--help lists the options)\n", message, *value ? ": " : "", value);
  return EXIT_USAGE;
}

int report(int exit_code, const svm_error *error) {
  if (error->code == SVM_ERROR_CANCELLED) { /* by cancel in main.c */
    fprintf(stderr, "shapevm-run: ended by a signal, such as Ctrl-C\n");
    return EXIT_CANCELLED;
  }
  fprintf(stderr, "shapevm-run: %s", error->message);
  if (error->source && *error->source && !strstr(error->message, error->source))
    fprintf(stderr, " (%s)", error->source);
  fprintf(stderr, "\n");
  return exit_code;
}

int out_of_memory(const char *what) {
  fprintf(stderr, "shapevm-run: memory: there is none for %s; free some or use smaller inputs\n", what);
  return EXIT_RUN;
}

int parse_number(const char *text, int64_t least, int64_t most, int64_t *out) {
  char *end;
  errno = 0;
  long long n = strtoll(text, &end, 10);
  if (end == text || *end || errno || n < least || n > most) return 0;
  *out = n;
  return 1;
}

/* The index of a text among names, -1 if it is not among them. */
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
  double seconds = text_number(text, &end);
  if (end == text || *end || !(seconds >= 0 && seconds <= SVM_LIMIT_TIMEOUT_S))
    return usage("the timeout is not a number of seconds from 0 to 1e9", text);
  a->options.timeout_ms = (int64_t)ceil(seconds * 1000);
  return 0;
}

/* The index of an option of sampling, -1 for others. */
static int32_t sampling_option(const char *name) {
  static const char *const NAMES[N_SAMPLING] = {"--temperature", "--top-p", "--min-p",
                                                "--repetition-penalty"};
  return code_of(name, NAMES, N_SAMPLING);
}

static int parse_sampling(arguments *a, const char *name, const char *text) {
  static const double LEAST[N_SAMPLING] = {0, 0, 0, 1e-4}, MOST[N_SAMPLING] = {1e4, 1, 1, 1e4};
  int32_t index = sampling_option(name);
  char *end, wanted[96];
  double number = text_number(text, &end);
  if (end != text && !*end && number >= LEAST[index] && number <= MOST[index])
    return a->sampling.numbers[index] = number, 0;
  text_format(wanted, sizeof wanted, "%s takes a number from %g to %g, not", name, LEAST[index], MOST[index]);
  return usage(wanted, text);
}

/* A seed is a word: all of u64. */
static int parse_seed(arguments *a, const char *text) {
  char *end;
  errno = 0;
  unsigned long long n = strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || errno || n > UINT64_MAX)
    return usage("--seed takes a whole number from 0 to 18446744073709551615, not", text);
  a->sampling.seed = (uint64_t)n;
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
                 {"--generate", 0, 1 << 24, &a->sampling.most, NULL},
                 {"--top-k", 0, INT32_MAX, &a->sampling.top_k, NULL},
                 {"--fuel", 0, INT64_MAX, &a->options.fuel, NULL},
                 {"--memory", 0, INT64_MAX, &a->options.memory_max, NULL},
                 {"--call-depth", 0, SVM_LIMIT_CALL_DEPTH, NULL, &a->call_depth},
                 {"--nesting", 0, SVM_LIMIT_NESTING, NULL, &a->nesting}};
  for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++) {
    if (strcmp(name, NUMBERS[i].name)) continue;
    if (!parse_number(value, NUMBERS[i].least, NUMBERS[i].most, &n)) {
      char wanted[96];
      snprintf(wanted, sizeof wanted, "%s takes a whole number from %" PRId64 " to %" PRId64 ", not", name,
               NUMBERS[i].least, NUMBERS[i].most);
      return usage(wanted, value);
    }
    if (NUMBERS[i].wide) *NUMBERS[i].wide = n;
    else *NUMBERS[i].narrow = (int32_t)n;
    return 0;
  }
  if (sampling_option(name) >= 0) return parse_sampling(a, name, value);
  if (!strcmp(name, "--seed")) return parse_seed(a, value);
  if (!strcmp(name, "--tokens")) return a->tokens = value, 0;
  if (!strcmp(name, "--verify")) return parse_verify(a, value);
  if (!strcmp(name, "--huge-pages")) return parse_huge_pages(a, value);
  if (!strcmp(name, "--digest")) return parse_digest(a, value);
  if (!strcmp(name, "--timeout")) return parse_timeout(a, value);
  if (!strcmp(name, "--input")) return a->inputs[a->n_inputs++] = value, 0;
  if (!strcmp(name, "--plugin")) return a->plugins[a->n_plugins++] = value, 0;
  if (!strcmp(name, "--function")) return a->function = value, 0;
  if (!strcmp(name, "--offsets")) return a->offsets = value, 0;
  if (!strcmp(name, "--output")) return a->output = value, 0;
  if (!strcmp(name, "--metrics")) return a->metrics = value, 0;
  if (!strcmp(name, "--trace")) return a->trace = value, 0;
  if (!strcmp(name, "--record")) return a->record = value, 0;
  if (!strcmp(name, "--strategy")) return parse_strategy(a, value);
  return usage("unknown option", name);
}

/* Whether the help has a line for an option. */
static int is_option(const char *name) {
  char begin[32];
  int n = snprintf(begin, sizeof begin, "\n  %s ", name);
  return n < (int)sizeof begin && strstr(HELP, begin) != NULL;
}

/* 0, an exit code, or -1 when all is done. */
int parse_arguments(int argc, char **argv, arguments *a) {
  for (int i = 1; i < argc; i++) {
    const char *name = argv[i];
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) return fputs(HELP, stdout), -1;
    if (!strcmp(name, "--list")) a->list = 1;
    else if (!strcmp(name, "--stats")) a->stats = 1;
    else if (!strcmp(name, "--perf-map")) a->options.perf_map = 1;
    else if (!strcmp(name, "--no-native-code")) a->options.native_code = 0;
    else if (!strncmp(name, "--", 2)) {
      if (i + 1 == argc) return usage(is_option(name) ? "a value is missing after" : "unknown option", name);
      int code = parse_value(a, name, argv[++i]);
      if (code) return code;
    } else if (a->model) return usage("a second model", name);
    else a->model = name;
  }
  const char *const OUTPUTS[] = {a->output, a->metrics, a->trace, a->record};
  a->said = stdout;
  for (size_t i = 0; i < sizeof OUTPUTS / sizeof *OUTPUTS; i++)
    if (OUTPUTS[i] && outfile_descriptor(OUTPUTS[i]) == STDOUT_FILENO) a->said = stderr;
  if ((a->sampling.most >= 0) != (a->tokens != NULL))
    return usage("--generate N and --tokens FILE.npy are given together", "");
  if (a->tokens && (a->n_inputs || a->offsets || a->function))
    return usage("--generate takes --tokens, and neither --input, --offsets nor --function", "");
  return a->model ? 0 : usage("no model given", "");
}
