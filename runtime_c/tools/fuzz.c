/* Fuzzer of the loader, the verifier and the interpreter: mutates an artifact, loads it from memory, calls
 * what loads.
 *
 *   fuzz SEED.svm [ITERATIONS [RANDOM_SEED [REHASH_PERCENT]]]
 *   fuzz --stream < MUTANTS
 *
 * The second form takes its mutants from tests/runtime_c/mutants.py: a kind (4 bytes, 0: an artifact, 1: an
 * .npz or .npy), 4 bytes of zeros, the size (8 bytes) and the bytes of each.
 *
 * In REHASH_PERCENT (default 90) of the iterations the hashes of the section table and of the sections are
 * made right again, so that what is behind them is reached. Never those of code objects: no mutated machine
 * code runs. Build with -DSVM_SANITIZE=address,undefined. Exit 0: no crash; an iteration that takes over 10 s
 * aborts. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/sha256.h"
#include "base/xxh3.h"
#include "tools/random_bits.h"
#include "values/npz.h"
#include "isa.gen.h"
#include "svm.h"

enum { MAX_MUTATIONS = 6, TIME_LIMIT_S = 10, MAX_ELEMENTS = 1 << 16, EXTRA = 4096 };

static int64_t iteration;

static uint64_t below(uint64_t n) { return n ? random_bits() % n : 0; }

static void on_alarm(int signal_number) {
  (void)signal_number;
  static const char message[] = "fuzz: an iteration takes over 10 s\n";
  if (write(2, message, sizeof message - 1)) abort();
  abort();
}

/* Of the processor's time, since the machine may be busy; and more of the clock's, for what sleeps. */
static void begin_time_limit(void) {
  const struct itimerval limit = {.it_value = {TIME_LIMIT_S, 0}};
  setitimer(ITIMER_PROF, &limit, NULL);
  alarm(20 * TIME_LIMIT_S);
}

/* Mutations ------------------------------------------------------------------------------------ */

typedef struct image {
  uint8_t *bytes;
  size_t size;
} image;

static svm_file_section *table_of(const image *m) {
  return (svm_file_section *)(m->bytes + sizeof(svm_file_header));
}

static int has_table(const image *m) {
  return m->size >= sizeof(svm_file_header) + SVM_FILE_N_SECTIONS * sizeof(svm_file_section);
}

static int is_inside(const image *m, const svm_file_section *s) {
  return s->offset <= m->size && s->size <= m->size - s->offset;
}

/* A place to change: mostly in a small section that is hashed, where all the meaning is. */
static size_t choose_place(const image *m) {
  if (!has_table(m) || below(8) == 0) return below(m->size);
  if (below(6) == 0) return below(sizeof(svm_file_header) + SVM_FILE_N_SECTIONS * sizeof(svm_file_section));
  static const uint8_t IDS[] = {SVM_SECTION_CODE,    SVM_SECTION_CODE,      SVM_SECTION_CODE,
                                SVM_SECTION_CODE,    SVM_SECTION_CONSTANTS, SVM_SECTION_INPUTS,
                                SVM_SECTION_SYMBOLS, SVM_SECTION_FUNCTIONS, SVM_SECTION_KERNELS,
                                SVM_SECTION_OBJECTS, SVM_SECTION_LINES,     SVM_SECTION_STRINGS,
                                SVM_SECTION_OUTPUTS};
  const svm_file_section *s = &table_of(m)[IDS[below(sizeof IDS)] - 1];
  return is_inside(m, s) && s->size ? s->offset + below(s->size) : below(m->size);
}

static uint64_t hostile_number(void) {
  static const uint64_t NUMBERS[] = {0,
                                     1,
                                     2,
                                     3,
                                     16,
                                     17,
                                     63,
                                     64,
                                     65,
                                     255,
                                     4096,
                                     65536,
                                     0x7fffffff,
                                     0x80000000,
                                     0xffffffff,
                                     0xfffffffe,
                                     UINT64_C(1) << 32,
                                     UINT64_C(1) << 61,
                                     UINT64_C(1) << 62,
                                     INT64_MAX,
                                     UINT64_C(1) << 63,
                                     UINT64_MAX,
                                     UINT64_MAX - 63};
  return below(3) ? NUMBERS[below(sizeof NUMBERS / sizeof *NUMBERS)] : below(48);
}

static void set_number(image *m, size_t width) {
  size_t at = choose_place(m) / width * width;
  uint64_t number = hostile_number(), old = 0;
  if (m->size < width || at > m->size - width) return;
  memcpy(&old, m->bytes + at, width);
  if (below(4) == 0) number = old + below(9) - 4;
  memcpy(m->bytes + at, &number, width);
}

/* One word of the code becomes a small number: another opcode, register, constant, length. */
static void set_word(image *m) {
  const svm_file_section *s = has_table(m) ? &table_of(m)[SVM_SECTION_CODE - 1] : NULL;
  uint32_t number = (uint32_t)below(SVM_N_OPCODES + 3);
  if (s && s->size >= 4 && is_inside(m, s)) memcpy(m->bytes + s->offset + below(s->size / 4) * 4, &number, 4);
}

static void swap_rows(image *m) {
  if (!has_table(m)) return;
  svm_file_section *rows = table_of(m), *a = &rows[below(SVM_FILE_N_SECTIONS)],
                   *b = &rows[below(SVM_FILE_N_SECTIONS)], t = *a;
  *a = *b;
  *b = t;
  if (below(2)) { /* only their contents: the ids stay in order */
    uint32_t id = a->id;
    a->id = b->id;
    b->id = id;
  }
}

static void copy_block(image *m) {
  size_t from = choose_place(m), to = choose_place(m), n = 1 + below(64);
  if (from < m->size && to < m->size)
    memmove(m->bytes + to, m->bytes + from,
            n < m->size - (from > to ? from : to) ? n : m->size - (from > to ? from : to));
}

static void mutate(image *m) {
  switch (below(16)) {
    case 0: m->bytes[choose_place(m)] ^= (uint8_t)(1 << below(8)); break;
    case 1: m->bytes[choose_place(m)] = (uint8_t)below(256); break;
    case 2: swap_rows(m); break;
    case 3: copy_block(m); break;
    case 4:
      if (below(4) == 0) m->size = 1 + below(m->size);
      else if (below(4) == 0) m->size += below(EXTRA);
      break;
    case 5:
    case 6: set_number(m, 8); break;
    case 7:
    case 8:
    case 9: set_number(m, 4); break;
    default: set_word(m); break;
  }
}

static void hash_into(uint8_t *to, const void *data, size_t size) {
  sha256 h;
  sha256_init(&h);
  sha256_update(&h, data, size);
  sha256_final(&h, to);
}

/* Those of BLOBS and WEIGHTS, as far as CHUNKS has room. */
static void make_chunks_right(image *m) {
  static const uint8_t IDS[] = {SVM_SECTION_BLOBS, SVM_SECTION_WEIGHTS};
  const svm_file_section *rows = table_of(m), *chunks = &rows[SVM_SECTION_CHUNKS - 1];
  if (!is_inside(m, chunks)) return;
  uint64_t room = chunks->size / sizeof(svm_file_chunk), n = 0;
  for (size_t s = 0; s < sizeof IDS; s++) {
    const svm_file_section *row = &rows[IDS[s] - 1];
    for (uint64_t at = 0; is_inside(m, row) && at < row->size && n < room; at += SVM_FILE_CHUNK, n++) {
      uint64_t size = row->size - at < SVM_FILE_CHUNK ? row->size - at : SVM_FILE_CHUNK;
      if (size < XXH3_MIN_BYTES) continue;
      xxh3_hash hash = xxh3_128(m->bytes + row->offset + at, size);
      memcpy(m->bytes + chunks->offset + n * sizeof hash, &hash, sizeof hash);
    }
  }
}

static void make_hashes_right(image *m) {
  if (!has_table(m)) return;
  svm_file_header *header = (svm_file_header *)m->bytes;
  svm_file_section *rows = table_of(m);
  header->file_size = m->size;
  make_chunks_right(m);
  for (int i = 0; i < SVM_FILE_N_SECTIONS; i++) {
    int is_unhashed = rows[i].id == SVM_SECTION_BLOBS || rows[i].id == SVM_SECTION_WEIGHTS;
    if (is_unhashed) memset(rows[i].sha256, 0, sizeof rows[i].sha256);
    else if (is_inside(m, &rows[i])) hash_into(rows[i].sha256, m->bytes + rows[i].offset, rows[i].size);
  }
  hash_into(header->table_sha256, rows, SVM_FILE_N_SECTIONS * sizeof *rows);
}

/* Calls ---------------------------------------------------------------------------------------- */

/* Inputs of small sizes that mostly keep the contract. 0 when they would be too large. */
static int fill_input(const svm_program *p, const svm_input_info *info, const int64_t *symbols,
                      svm_value *value) {
  int64_t n = 1;
  value->tag = info->kind;
  value->integer = info->symbol >= 0 ? symbols[info->symbol] : (int64_t)below(5);
  value->number = (double)value->integer;
  value->text = "text";
  value->length = 4;
  value->tensor.dtype = info->dtype;
  value->tensor.rank = info->kind == SVM_TAG_TENSOR ? info->rank : 0;
  for (int32_t a = 0; a < value->tensor.rank; a++) {
    const svm_axis_info *axis = &info->axes[a];
    int64_t scaled = 0, size;
    if (axis->symbol >= 0 && __builtin_mul_overflow(axis->scale, symbols[axis->symbol], &scaled)) return 0;
    if (__builtin_add_overflow(scaled, axis->offset, &size) || size < 0 || size > MAX_ELEMENTS) return 0;
    value->tensor.sizes[a] = size;
    if ((n *= size) > MAX_ELEMENTS) return 0;
  }
  (void)p;
  if (info->kind != SVM_TAG_TENSOR) return 1;
  value->tensor.data = calloc((size_t)n + 1, 8);
  for (int64_t i = 0; value->tensor.data && i < n; i++)
    ((uint8_t *)value->tensor.data)[i] = (uint8_t)below(4);
  return value->tensor.data != NULL;
}

static int64_t choose_symbol(const svm_symbol_info *s) {
  int64_t value = s->min < 0 ? (int64_t)below(9) - 4 : s->min < 64 ? s->min : s->min / 2;
  value = (value + s->multiple_of / 2) / s->multiple_of * s->multiple_of;
  for (uint64_t i = below(4); i && value < MAX_ELEMENTS && s->multiple_of < MAX_ELEMENTS; i--)
    value += s->multiple_of;
  return value > s->max ? s->max : value;
}

static int32_t host_function(void *context, const svm_value *args, int32_t n_args, svm_value *results,
                             int32_t n_results, svm_error *error) {
  (void)context, (void)error;
  for (int32_t i = 0; i < n_results; i++) {
    if (i < n_args && args[i].tag != SVM_TAG_STR) results[i] = args[i], results[i].owner = NULL;
    else results[i].tag = SVM_TAG_INT, results[i].integer = i;
  }
  return SVM_OK;
}

static int32_t host_writer(void *context, const svm_value *args, int32_t n_args, const svm_tensor *outputs,
                           int32_t n_outputs, svm_error *error) {
  (void)context, (void)args, (void)n_args, (void)error;
  for (int32_t i = 0; i < n_outputs; i++) {
    int64_t n = 1;
    for (int32_t a = 0; a < outputs[i].rank; a++) n *= outputs[i].sizes[a];
    if (n) ((uint8_t *)outputs[i].data)[n - 1] = 1; /* all of it is there */
  }
  return SVM_OK;
}

static int32_t call_main(svm_program *p, svm_error *failure) {
  int32_t n = svm_n_inputs(p), n_results = svm_n_outputs(p), n_symbols = svm_n_symbols(p);
  svm_value *values = calloc((size_t)n + 1, sizeof *values),
            *results = calloc((size_t)n_results + 1, sizeof *results);
  int64_t *symbols = calloc((size_t)n_symbols + 1, sizeof *symbols);
  int fits = values && results && symbols;
  int32_t code = -1;
  for (int32_t i = 0; fits && i < n_symbols; i++) symbols[i] = choose_symbol(svm_symbol(p, i));
  for (int32_t i = 0; fits && i < n; i++) fits = fill_input(p, svm_input(p, i), symbols, &values[i]);
  for (int32_t i = 0; fits && i < svm_n_externs(p); i++) {
    if (svm_extern_kind(p, i) == SVM_EXTERN_DPS)
      svm_register_dps(p, svm_extern_name(p, i), host_writer, NULL, failure);
    else svm_register_extern(p, svm_extern_name(p, i), host_function, NULL, failure);
  }
  for (int again = 0; fits && again < 2; again++) { /* the second call replays */
    code = svm_call(p, svm_main_function(p), values, n, NULL, results, n_results, failure);
    for (int32_t i = 0; i < n_results; i++) svm_value_release(&results[i]);
  }
  for (int32_t i = 0; values && i < n; i++) free(values[i].tensor.data);
  free(values);
  free(results);
  free(symbols);
  return code;
}

/* The loop ------------------------------------------------------------------------------------- */

static uint8_t *read_seed(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) return NULL;
  *size = (size_t)ftell(file);
  rewind(file);
  uint8_t *bytes = malloc(*size + 1);
  size_t n = bytes ? fread(bytes, 1, *size, file) : 0;
  fclose(file);
  return n == *size ? bytes : NULL;
}

typedef struct counts {
  int64_t refused[SVM_ERROR_CANCELLED + 1], ran, failed, skipped;
} counts;

/* An error must be one of those that bad input gives, with a sentence. */
static void check_error(int32_t code, const svm_error *error) {
  int is_clean = code > 0 && code <= SVM_ERROR_CANCELLED && code != SVM_ERROR_INTERNAL && error->code == code;
  if (is_clean && strlen(error->message) > (code == SVM_ERROR_GUARD ? 0 : 10))
    return; /* a program's own words */
  fprintf(stderr, "fuzz: iteration %" PRId64 ": error %d without a sentence: \"%s\"\n", iteration, code,
          error->message);
  abort();
}

static void try_image(const image *m, counts *seen) {
  svm_options options;
  svm_program *p;
  svm_error error;
  const char *text;
  size_t size;
  svm_options_init(&options);
  options.fuel = 20000;
  options.memory_max = 64 << 20;
  options.timeout_ms = 1000;
  begin_time_limit();
  int32_t code = svm_open_memory(m->bytes, m->size, &options, &p, &error);
  seen->refused[code]++;
  if (code) {
    check_error(code, &error);
    return;
  }
  code = call_main(p, &error);
  if (code > 0) check_error(code, &error);
  seen->ran += code == SVM_OK;
  seen->failed += code > 0;
  seen->skipped += code < 0;
  svm_meta(p, &text, &size, &error);
  svm_close(p);
}

static void print_counts(const counts *seen, int64_t n) {
  printf("%" PRId64 " loaded (%" PRId64 " ran, %" PRId64 " failed, %" PRId64 " not called), %" PRId64
         " refused (",
         seen->refused[0], seen->ran, seen->failed, seen->skipped, n - seen->refused[0]);
  for (int i = 1; i <= SVM_ERROR_CANCELLED; i++) {
    if (seen->refused[i]) printf("%s %" PRId64 " ", svm_error_name(i), seen->refused[i]);
  }
  printf("\b)\n");
}

/* Arrays in memory, as npy_read takes them from a file. */
static void try_arrays(const image *m, counts *seen) {
  npy_array *arrays = NULL;
  int32_t n = 0;
  svm_error error;
  begin_time_limit();
  int is_archive = m->size >= 4 && !memcmp(m->bytes, "PK", 2);
  if (!is_archive) arrays = calloc(1, sizeof *arrays), n = 1;
  int32_t code = is_archive ? npz_parse("mutant.npz", m->bytes, m->size, &arrays, &n, &error)
                            : npy_parse("mutant.npy", m->bytes, m->size, arrays, &error);
  uint64_t total = 0;
  for (int32_t i = 0; !code && i < n; i++) total += npy_data_bytes(&arrays[i].tensor);
  if (code) check_error(code, &error);
  if (total > m->size) {
    fprintf(stderr, "fuzz: iteration %" PRId64 ": arrays of more bytes than the file\n", iteration);
    abort();
  }
  seen->refused[code]++;
  npy_free(arrays, n);
}

enum { MUTANT_ARTIFACT = 0, MUTANT_ARRAYS = 1 };

static int run_stream(void) {
  struct {
    uint32_t kind, reserved;
    uint64_t size;
  } head;
  counts artifacts = {0}, arrays = {0};
  int64_t n_artifacts = 0, n_arrays = 0;
  for (iteration = 0; fread(&head, sizeof head, 1, stdin) == 1; iteration++) {
    state = (uint64_t)iteration * UINT64_C(0x9E3779B97F4A7C15) + 1;
    /* As large as the mutant: a sanitizer sees what is read behind it. */
    image m = {aligned_alloc(64, (head.size + 64) / 64 * 64), head.size};
    uint8_t *exact = head.kind == MUTANT_ARRAYS ? malloc(head.size + !head.size) : NULL;
    if (!m.bytes || fread(m.bytes, 1, m.size, stdin) != m.size) return fprintf(stderr, "fuzz: cut\n"), 2;
    if (exact) {
      memcpy(exact, m.bytes, m.size);
      try_arrays(&(image){exact, m.size}, &arrays), n_arrays++;
    } else {
      try_image(&m, &artifacts), n_artifacts++;
    }
    free(exact);
    free(m.bytes);
  }
  printf("artifacts: "), print_counts(&artifacts, n_artifacts);
  printf("arrays: "), print_counts(&arrays, n_arrays);
  return 0;
}

int main(int argc, char **argv) {
  signal(SIGALRM, on_alarm);
  signal(SIGPROF, on_alarm);
  svm_set_threads(1, NULL);
  if (argc == 2 && !strcmp(argv[1], "--stream")) return run_stream();
  if (argc < 2)
    return fprintf(stderr, "usage: fuzz SEED.svm [ITERATIONS [RANDOM_SEED [REHASH_PERCENT]]]\n"), 2;
  int64_t n = argc > 2 ? atoll(argv[2]) : 20000;
  uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1,
           percent = argc > 4 ? strtoull(argv[4], NULL, 10) : 90;
  image original, m;
  counts seen = {0};
  original.bytes = read_seed(argv[1], &original.size);
  if (!original.bytes || !original.size) return fprintf(stderr, "fuzz: cannot read %s\n", argv[1]), 2;
  m.bytes = aligned_alloc(64, (original.size + EXTRA * MAX_MUTATIONS + 64) / 64 * 64);
  if (!m.bytes) return 2;
  for (iteration = 0; iteration < n; iteration++) {
    state =
        (seed + 1) * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)iteration * UINT64_C(0xBF58476D1CE4E5B9) + 1;
    m.size = original.size;
    memcpy(m.bytes, original.bytes, original.size);
    memset(m.bytes + original.size, 0, EXTRA * MAX_MUTATIONS);
    for (uint64_t i = iteration ? 1 + below(below(MAX_MUTATIONS) + 1) : 0; i; i--) mutate(&m);
    if (below(100) < percent) make_hashes_right(&m);
    try_image(&m, &seen);
  }
  print_counts(&seen, n);
  free(m.bytes);
  free(original.bytes);
  return 0;
}
