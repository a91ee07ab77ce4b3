/* The loader's tables: strings, contract, constants, functions. Hashes were checked; meaning is checked here.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/utf8.h"
#include "program/program.h"

/* Reading records of one section one after the other ------------------------------------------- */

typedef struct cursor {
  const uint8_t *at, *end;
  const char *name;
  svm_error *error;
} cursor;

static cursor cursor_of(const svm_program *p, int32_t id, svm_error *error) {
  const section *s = &p->image.sections[id];
  return (cursor){s->data, s->data + s->size, section_name(id), error};
}

static int32_t broken(const cursor *c, uint64_t index, const char *what) {
  return status_fail(c->error, SVM_ERROR_ARTIFACT, "artifact: %s record %" PRIu64 ": %s; export it again",
                     c->name, index, what);
}

static const void *take(cursor *c, uint64_t index, uint64_t n, size_t size) {
  if (n > (size_t)(c->end - c->at) / size) {
    broken(c, index, "the section ends before it");
    return NULL;
  }
  const void *found = c->at;
  c->at += n * size;
  return found;
}

/* A section's count, if that many records of `size` fit and it is at most `limit`. */
static int32_t take_count(const svm_program *p, int32_t id, size_t size, uint64_t limit, int32_t *out,
                          svm_error *error) {
  const section *s = &p->image.sections[id];
  if (s->count > limit || s->count > s->size / size) {
    return status_fail(error, SVM_ERROR_ARTIFACT,
                       "artifact: section %s says %" PRIu64 " records, its %" PRIu64
                       " bytes or the limit of %" PRIu64 " allow fewer",
                       section_name(id), s->count, s->size, limit);
  }
  *out = (int32_t)s->count;
  return SVM_OK;
}

static int32_t check_end(const cursor *c, uint64_t n) {
  return c->at == c->end ? SVM_OK : broken(c, n, "bytes follow the last record");
}

static void *make_rows(uint64_t n, size_t size, svm_error *error) {
  void *rows = calloc(n ? n : 1, size);
  if (!rows)
    status_fail(error, SVM_ERROR_MEMORY,
                "memory: there is none for %" PRIu64 " bytes for the program's tables", n * size);
  return rows;
}

/* Strings -------------------------------------------------------------------------------------- */

static int is_text(const uint8_t *s, size_t n) { return !memchr(s, 0, n) && utf8_is_valid(s, n); }

static int32_t load_strings(svm_program *p, svm_error *error) {
  int32_t n = 0;
  cursor c = cursor_of(p, SVM_SECTION_STRINGS, error);
  int32_t code = take_count(p, SVM_SECTION_STRINGS, 4, INT32_MAX - 1, &n, error);
  const uint32_t *offsets = code ? NULL : take(&c, 0, (uint64_t)n + 1, 4);
  if (!offsets) return error->code;
  uint64_t n_bytes = (uint64_t)(c.end - c.at);
  if (!n || offsets[0] || offsets[n] != n_bytes)
    return broken(&c, 0, "the offsets do not begin at 0 and end at the end");
  if (!(p->strings = make_rows((uint64_t)n, sizeof *p->strings, error))) return error->code;
  for (int32_t i = 0; i < n; i++) {
    if (offsets[i] >= offsets[i + 1] || offsets[i + 1] > n_bytes)
      return broken(&c, (uint64_t)i, "the offsets do not ascend");
    const uint8_t *text = c.at + offsets[i];
    size_t length = offsets[i + 1] - offsets[i] - 1;
    if (text[length] || !is_text(text, length))
      return broken(&c, (uint64_t)i, "it is not zero-terminated UTF-8");
    p->strings[i] = (const char *)text;
  }
  p->n_strings = n;
  return *p->strings[0] ? broken(&c, 0, "it must be the empty string") : SVM_OK;
}

const char *load_string(const svm_program *p, uint64_t index, const char *where, svm_error *error) {
  if (index < (uint64_t)p->n_strings) return p->strings[index];
  status_fail(error, SVM_ERROR_ARTIFACT, "artifact: %s: string %" PRIu64 " of %d; export it again", where,
              index, p->n_strings);
  return NULL;
}

/* The contract --------------------------------------------------------------------------------- */

static int32_t load_symbols(svm_program *p, svm_error *error) {
  cursor c = cursor_of(p, SVM_SECTION_SYMBOLS, error);
  if (take_count(p, SVM_SECTION_SYMBOLS, sizeof(svm_file_symbol), SVM_LIMIT_SYMBOLS, &p->io.n_symbols, error))
    return error->code;
  if (!(p->io.symbols = make_rows((uint64_t)p->io.n_symbols, sizeof *p->io.symbols, error)))
    return error->code;
  for (int32_t i = 0; i < p->io.n_symbols; i++) {
    const svm_file_symbol *row = take(&c, (uint64_t)i, 1, sizeof *row);
    svm_symbol_info *s = &p->io.symbols[i];
    if (!row || !(s->name = load_string(p, row->name, "SYMBOLS", error)) ||
        !(s->why = load_string(p, row->why, "SYMBOLS", error)))
      return error->code;
    if (row->min == INT64_MIN || row->multiple_of < 1 || row->max < row->min)
      return broken(&c, (uint64_t)i, "its bounds contradict each other");
    s->min = row->min, s->max = row->max, s->multiple_of = row->multiple_of;
  }
  return check_end(&c, (uint64_t)p->io.n_symbols);
}

static int32_t load_axis(const svm_program *p, const cursor *c, uint64_t index, const svm_file_axis *row,
                         int is_output, svm_axis_info *out) {
  int is_fixed = row->symbol == SVM_FILE_NO_SYMBOL, is_text = is_output && row->symbol == SVM_FILE_EXPRESSION;
  *out = (svm_axis_info){row->symbol, 0, row->scale, row->offset,
                         load_string(p, row->expression, is_output ? "OUTPUTS" : "INPUTS", c->error)};
  if (!out->expression) return c->error->code;
  if ((*out->expression != 0) != is_text)
    return broken(c, index, "an axis has a text and another size, or neither");
  if (is_text ? row->scale || row->offset
              : row->symbol < SVM_FILE_NO_SYMBOL || row->symbol >= p->io.n_symbols ||
                    (is_fixed ? row->scale || row->offset < 0 : row->scale < 1)) {
    return broken(c, index, "an axis has no such symbol, scale or offset");
  }
  return SVM_OK;
}

/* The `rank` axes after a row. */
static int32_t load_axes(const svm_program *p, cursor *c, uint64_t index, uint32_t rank, int is_output,
                         svm_axis_info *axes) {
  const svm_file_axis *from = take(c, index, rank, sizeof *from);
  if (!from) return c->error->code;
  for (uint32_t a = 0; a < rank; a++) {
    if (load_axis(p, c, index, &from[a], is_output, &axes[a])) return c->error->code;
  }
  return SVM_OK;
}

static int32_t load_input(const svm_program *p, cursor *c, int32_t index, svm_axis_info *axes,
                          svm_input_info *out) {
  uint64_t i = (uint64_t)index;
  const svm_file_input *row = take(c, i, 1, sizeof *row);
  if (!row) return c->error->code;
  int is_tensor = row->kind == SVM_TAG_TENSOR;
  if (row->kind < SVM_TAG_BOOL || row->kind > SVM_TAG_LIST) return broken(c, i, "its kind is unknown");
  if (row->memory > (is_tensor ? WRITTEN | IN_ROWS : 0) ||
      (i && row->function < p->io.input_functions[i - 1]))
    return broken(c, i, "its function, or what it says of memory");
  p->io.input_functions[i] = row->function;
  p->io.memory[i] = (uint8_t)row->memory;
  if (is_tensor ? row->dtype >= SVM_DTYPE_COUNT || row->rank > SVM_LIMIT_RANK : row->dtype || row->rank)
    return broken(c, i, "its dtype or rank");
  if (row->symbol < -1 || row->symbol >= p->io.n_symbols || (row->symbol >= 0 && row->kind != SVM_TAG_INT))
    return broken(c, i, "its symbol");
  *out = (svm_input_info){load_string(p, row->name, "INPUTS", c->error),
                          (int32_t)row->kind,
                          (int32_t)row->dtype,
                          (int32_t)row->rank,
                          row->symbol,
                          axes};
  return out->name ? load_axes(p, c, i, row->rank, 0, axes) : c->error->code;
}

/* Every symbol occurs, so that binding the inputs binds all. */
static int32_t check_symbols_occur(const svm_program *p, svm_error *error) {
  for (int32_t s = 0; s < p->io.n_symbols; s++) {
    int occurs = 0;
    for (int32_t i = 0; i < p->io.n_inputs && !occurs; i++) { /* of any entry point */
      const svm_input_info *input = &p->io.inputs[i];
      occurs = input->symbol == s;
      for (int32_t a = 0; a < input->rank && !occurs; a++) occurs = input->axes[a].symbol == s;
    }
    if (!occurs)
      return status_fail(error, SVM_ERROR_ARTIFACT,
                         "artifact: symbol \"%.100s\" is bound by no input; export it again",
                         p->io.symbols[s].name);
  }
  return SVM_OK;
}

static int32_t load_inputs(svm_program *p, svm_error *error) {
  cursor c = cursor_of(p, SVM_SECTION_INPUTS, error);
  uint64_t n_axes = p->image.sections[SVM_SECTION_INPUTS].size / sizeof(svm_file_axis), used = 0;
  if (take_count(p, SVM_SECTION_INPUTS, sizeof(svm_file_input), SVM_LIMIT_INPUTS, &p->io.n_inputs, error))
    return error->code;
  if (!(p->io.inputs = make_rows((uint64_t)p->io.n_inputs, sizeof *p->io.inputs, error))) return error->code;
  if (!(p->io.axes = make_rows(n_axes + SVM_LIMIT_RANK, sizeof *p->io.axes, error))) return error->code;
  if (!(p->io.input_functions = make_rows((uint64_t)p->io.n_inputs, sizeof *p->io.input_functions, error)) ||
      !(p->io.memory = make_rows((uint64_t)p->io.n_inputs, sizeof *p->io.memory, error)))
    return error->code;
  for (int32_t i = 0; i < p->io.n_inputs; i++) {
    if (load_input(p, &c, i, p->io.axes + used, &p->io.inputs[i])) return error->code;
    used += (uint64_t)p->io.inputs[i].rank;
  }
  int32_t code = check_end(&c, (uint64_t)p->io.n_inputs);
  return code ? code : check_symbols_occur(p, error);
}

static int32_t load_output(const svm_program *p, cursor *c, int32_t index, svm_axis_info *axes,
                           svm_output_info *out) {
  uint64_t i = (uint64_t)index;
  const svm_file_output *row = take(c, i, 1, sizeof *row);
  if (!row) return c->error->code;
  if (row->kind < SVM_FILE_NO_KIND || row->kind >= SVM_TAG_COUNT) return broken(c, i, "its kind is unknown");
  if (row->kind == SVM_TAG_TENSOR ? row->dtype >= SVM_DTYPE_COUNT || row->rank > SVM_LIMIT_RANK
                                  : row->dtype || row->rank)
    return broken(c, i, "its dtype or rank");
  *out = (svm_output_info){
      load_string(p, row->name, "OUTPUTS", c->error), row->kind, (int32_t)row->dtype, (int32_t)row->rank, 0,
      row->kind == SVM_TAG_TENSOR ? axes : NULL};
  return out->name ? load_axes(p, c, i, row->rank, 1, axes) : c->error->code;
}

static int32_t load_outputs(svm_program *p, svm_error *error) {
  cursor c = cursor_of(p, SVM_SECTION_OUTPUTS, error);
  uint64_t n_axes = p->image.sections[SVM_SECTION_OUTPUTS].size / sizeof(svm_file_axis), used = 0;
  if (take_count(p, SVM_SECTION_OUTPUTS, sizeof(svm_file_output), SVM_LIMIT_INPUTS, &p->io.n_outputs, error))
    return error->code;
  if (!(p->io.outputs = make_rows((uint64_t)p->io.n_outputs, sizeof *p->io.outputs, error)))
    return error->code;
  if (!(p->io.output_axes = make_rows(n_axes + SVM_LIMIT_RANK, sizeof *p->io.output_axes, error)))
    return error->code;
  for (int32_t i = 0; i < p->io.n_outputs; i++) {
    if (load_output(p, &c, i, p->io.output_axes + used, &p->io.outputs[i])) return error->code;
    used += (uint64_t)p->io.outputs[i].rank;
  }
  return check_end(&c, (uint64_t)p->io.n_outputs);
}

/* Constants ------------------------------------------------------------------------------------ */

static int32_t load_tensor(svm_program *p, cursor *c, uint64_t i, const svm_file_constant *row,
                           const int64_t *sizes, value *out) {
  const section *weights = &p->image.sections[SVM_SECTION_WEIGHTS];
  if (row->dtype >= SVM_DTYPE_COUNT || row->value) return broken(c, i, "its dtype or value");
  int64_t around[SVM_LIMIT_RANK]; /* a size of 0: others compute strides in bytes from the rest */
  for (uint32_t axis = 0; axis < row->rank; axis++) around[axis] = sizes[axis] ? sizes[axis] : 1;
  if (checked_bytes((int32_t)row->dtype, checked_elements((int32_t)row->rank, around)) < 0)
    return broken(c, i, "its sizes, which are negative or make over 2^62 bytes");
  int64_t n_bytes = checked_bytes((int32_t)row->dtype, checked_elements((int32_t)row->rank, sizes));
  if (row->size != (uint64_t)n_bytes) return broken(c, i, "its sizes do not make its number of bytes");
  if (row->offset % SVM_FILE_ALIGN || row->offset > weights->size || row->size > weights->size - row->offset)
    return broken(c, i, "it leaves WEIGHTS");
  void *data = (void *)(uintptr_t)(weights->data + row->offset); /* never written: origin CONSTANT */
  storage *memory = storage_over(NULL, data, n_bytes, SVM_ORIGIN_CONSTANT, (int32_t)i, c->error);
  if (!memory || tensor_make(NULL, (int32_t)row->dtype, (int32_t)row->rank, sizes, memory, out, c->error))
    return c->error->code;
  out->object->refs = memory->refs = IMMORTAL;
  return SVM_OK;
}

static int32_t load_scalar(svm_program *p, cursor *c, uint64_t i, const svm_file_constant *row, value *out) {
  int is_known = row->tag == SVM_TAG_NONE || row->tag == SVM_TAG_BOOL || row->tag == SVM_TAG_INT ||
                 row->tag == SVM_TAG_FLOAT || row->tag == SVM_TAG_STR;
  if (!is_known || row->dtype || row->rank || row->offset || row->size)
    return broken(c, i, "its tag, or a tensor's field without a tensor");
  if ((row->tag == SVM_TAG_NONE && row->value) || (row->tag == SVM_TAG_BOOL && (uint64_t)row->value > 1))
    return broken(c, i, "its value");
  *out = (value){(int32_t)row->tag, {row->value}}; /* a float's bits are the same 64 */
  if (row->tag != SVM_TAG_STR) return SVM_OK;
  out->tag = SVM_TAG_NONE;
  const char *text = load_string(p, (uint64_t)row->value, "CONSTANTS", c->error);
  if (!text || text_make(NULL, text, (int64_t)strlen(text), out, c->error)) return c->error->code;
  out->object->refs = IMMORTAL;
  return SVM_OK;
}

static int32_t load_constants(svm_program *p, svm_error *error) {
  int32_t n = 0;
  cursor c = cursor_of(p, SVM_SECTION_CONSTANTS, error);
  if (take_count(p, SVM_SECTION_CONSTANTS, sizeof(svm_file_constant), INT32_MAX, &n, error))
    return error->code;
  if (!(p->constants = make_rows((uint64_t)n, sizeof *p->constants, error))) return error->code;
  for (; p->n_constants < n; p->n_constants++) {
    uint64_t i = (uint64_t)p->n_constants;
    const svm_file_constant *row = take(&c, i, 1, sizeof *row);
    if (!row || !load_string(p, row->name, "CONSTANTS", error)) return error->code;
    if (row->rank > SVM_LIMIT_RANK) return broken(&c, i, "its rank is over 16");
    const int64_t *sizes = take(&c, i, row->rank, sizeof *sizes);
    if (!sizes) return error->code;
    int is_tensor = row->tag == SVM_TAG_TENSOR;
    value *out = &p->constants[i];
    if (is_tensor ? load_tensor(p, &c, i, row, sizes, out) : load_scalar(p, &c, i, row, out))
      return error->code;
  }
  return check_end(&c, (uint64_t)n);
}

/* Functions ------------------------------------------------------------------------------------ */

static int32_t check_function(const cursor *c, uint64_t i, const svm_file_function *row) {
  if (row->n_registers > SVM_LIMIT_REGISTERS || row->n_params > row->n_registers)
    return broken(c, i, "its registers or parameters");
  if (row->n_words < 1 || row->n_results > SVM_LIMIT_INPUTS)
    return broken(c, i, "it has no instruction or too many results");
  return SVM_OK;
}

static int32_t load_functions(svm_program *p, svm_error *error) {
  cursor c = cursor_of(p, SVM_SECTION_FUNCTIONS, error), words = cursor_of(p, SVM_SECTION_CODE, error),
         lines = cursor_of(p, SVM_SECTION_LINES, error);
  const section *code = &p->image.sections[SVM_SECTION_CODE], *rows = &p->image.sections[SVM_SECTION_LINES];
  if (take_count(p, SVM_SECTION_FUNCTIONS, sizeof(svm_file_function), INT32_MAX, &p->n_functions, error))
    return error->code;
  if (!p->n_functions || code->count != code->size / 4 || rows->count != rows->size / sizeof(svm_file_line))
    return broken(&c, 0, "there is no main, or CODE or LINES has another count");
  if (!(p->functions = make_rows((uint64_t)p->n_functions, sizeof *p->functions, error))) return error->code;
  for (int32_t i = 0; i < p->n_functions; i++) {
    const svm_file_function *row = take(&c, (uint64_t)i, 1, sizeof *row);
    if (!row || check_function(&c, (uint64_t)i, row)) return error->code;
    function *f = &p->functions[i];
    f->info = (svm_function_info){load_string(p, row->name, "FUNCTIONS", error), (int32_t)row->n_params,
                                  (int32_t)row->n_results, (int32_t)row->n_registers, 1};
    f->n_words = row->n_words, f->n_lines = row->n_lines;
    if (!f->info.name || !(f->code = take(&words, (uint64_t)i, row->n_words, 4)) ||
        !(f->lines = take(&lines, (uint64_t)i, row->n_lines, sizeof *f->lines)))
      return error->code;
  }
  if (check_end(&c, (uint64_t)p->n_functions) || check_end(&words, code->count) ||
      check_end(&lines, rows->count))
    return error->code;
  return SVM_OK;
}

/* Entry points --------------------------------------------------------------------------------- */

static int32_t broken_entry(const char *name, const char *what, svm_error *error) {
  return status_fail(error, SVM_ERROR_ARTIFACT, "artifact: entry point \"%.100s\": %s; export it again", name,
                     what);
}

/* The contract of a function, whose inputs are those from `input` on. */
static int32_t load_contract(svm_program *p, int32_t index, int32_t input, int32_t output, contract *out,
                             svm_error *error) {
  function *f = &p->functions[index];
  *out = (contract){.function = index,
                    .n_outputs = f->info.n_results,
                    .n_key = 1 + p->io.n_symbols,
                    .is_planned = 1,
                    .inputs = p->io.inputs + input,
                    .outputs = p->io.outputs + output,
                    .memory = p->io.memory + input};
  for (int32_t i = input; i < p->io.n_inputs && p->io.input_functions[i] == index; i++) {
    out->n_inputs++;
    out->is_planned &= p->io.inputs[i].kind != SVM_TAG_STR && p->io.inputs[i].kind != SVM_TAG_LIST;
    out->writes |= (p->io.memory[i] & WRITTEN) != 0;
  }
  f->contract = out;
  if (f->info.n_params != out->n_inputs + p->io.n_symbols)
    return broken_entry(f->info.name, "its parameters are not the inputs and symbols", error);
  if (out->n_outputs > p->io.n_outputs - output)
    return broken_entry(f->info.name, "its results are not the outputs", error);
  return SVM_OK;
}

static int32_t load_contracts(svm_program *p, svm_error *error) {
  int32_t n = 1, input = 0, output = 0, needs = 0;
  for (int32_t i = 0; i < p->io.n_inputs; i++) {
    int32_t of = p->io.input_functions[i];
    n += of != (i ? p->io.input_functions[i - 1] : 0);
    needs |= of || p->io.memory[i];
    if (of >= p->n_functions)
      return broken_entry(p->io.inputs[i].name, "there is no function of its index", error);
  }
  if (n > SVM_LIMIT_ENTRY_POINTS)
    return status_fail(error, SVM_ERROR_ARTIFACT, "artifact: %d entry points; at most %d are allowed", n,
                       SVM_LIMIT_ENTRY_POINTS);
  if (p->image.version != (needs ? SVM_FILE_VERSION : SVM_FILE_FIRST_VERSION))
    return status_fail(error, SVM_ERROR_ARTIFACT, "artifact: its inputs are not those of format version %u",
                       p->image.version);
  if (!(p->io.contracts = make_rows((uint64_t)n, sizeof *p->io.contracts, error))) return error->code;
  for (; p->io.n_contracts < n; p->io.n_contracts++) {
    contract *made = &p->io.contracts[p->io.n_contracts];
    if (load_contract(p, p->io.n_contracts ? p->io.input_functions[input] : 0, input, output, made, error))
      return error->code;
    input += made->n_inputs, output += made->n_outputs;
  }
  return output == p->io.n_outputs
             ? SVM_OK
             : broken_entry(p->functions[0].info.name, "the results are fewer than the outputs", error);
}

const char *function_source(const svm_program *p, int32_t index, int64_t pc) {
  if (index < 0 || index >= p->n_functions) return "";
  const function *f = &p->functions[index];
  uint32_t low = 0, high = f->n_lines; /* the last row with row.pc <= pc */
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (f->lines[middle].pc <= pc) low = middle + 1;
    else high = middle;
  }
  return low ? p->strings[f->lines[low - 1].source] : "";
}

int32_t load_tables(svm_program *p, svm_error *error) {
  int32_t (*const steps[])(svm_program *, svm_error *) = {
      load_strings, load_symbols, load_inputs, load_outputs, load_constants, load_functions, load_contracts};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    int32_t code = steps[i](p, error);
    if (code) return code;
  }
  return SVM_OK;
}

int32_t check_strategy(int32_t strategy, svm_error *error) {
  static const char *const NAMES[] = SVM_STRATEGY_NAMES;
  enum { N = sizeof NAMES / sizeof *NAMES };
  char known[N * 24] = "";
  if (strategy >= 0 && strategy < N) return SVM_OK;
  for (int i = 0; i < N; i++) {
    size_t at = strlen(known);
    snprintf(known + at, sizeof known - at, "%s%d (%s)", i ? ", " : "", i, NAMES[i]);
  }
  return status_fail(error, SVM_ERROR_ARGUMENT, "options: strategy %d is unknown; known are %s", strategy,
                     known);
}
