/* The verifier: the rules of docs/artifact.md, in its order, before the first instruction runs. The
 * interpreter relies on these checks; it checks tags of values itself. One operand decoder serves all
 * opcodes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "program/program.h"
#include "values/string_functions.h"

enum { MAX_OPERANDS = 4 };

typedef struct operation {
  const char *name, *operands;
  uint32_t flags;
} operation;

#define OPERATION(code, constant, name, operands, flags, effect) [code] = {name, operands, flags},
static const operation OPERATIONS[SVM_N_OPCODES] = {SVM_OPCODES(OPERATION)};

/* An operand in the code: `n` words of payload at `words`; of a list without its count. */
typedef struct operand {
  char kind;
  uint32_t n;
  const uint32_t *words;
} operand;

typedef struct checker {
  svm_program *p;
  const function *f;
  int32_t index;
  uint32_t pc;
  const operation *op;
  operand operands[SVM_MAX_OPERANDS];
  int n_operands;
  uint8_t *starts; /* per word of the function: 1 if an instruction starts there */
  uint32_t *seen;  /* per register: stamp of the last result list that held it */
  uint32_t stamp;
  svm_error *error;
} checker;

static int32_t refuse(checker *c, const char *format, int64_t a, int64_t b) {
  char what[200];
  snprintf(what, sizeof what, format, a, b);
  status_fail(c->error, SVM_ERROR_VERIFY,
              "verify: function \"%.100s\", pc %" PRIu32 ", %s: %s; export it again", c->f->info.name, c->pc,
              c->op ? c->op->name : "opcode", what);
  c->error->function = c->index;
  c->error->pc = c->pc;
  return SVM_ERROR_VERIFY;
}

/* Rules 1 and 2: decode the instruction at c->pc. *out_next: where the next one starts. */
static int32_t decode(checker *c, uint32_t *out_next) {
  const uint32_t *code = c->f->code;
  uint32_t at = c->pc, end = c->f->n_words;
  c->op = NULL;
  if (code[at] >= SVM_N_OPCODES)
    return refuse(c, "%" PRId64 " is no opcode, the last is %" PRId64, code[at], SVM_N_OPCODES - 1);
  c->op = &OPERATIONS[code[at++]];
  c->n_operands = 0;
  for (const char *colon = c->op->operands; (colon = strchr(colon, ':')); colon++) {
    operand *o = &c->operands[c->n_operands++];
    o->kind = colon[1];
    int is_list = o->kind == 'D' || o->kind == 'S';
    if (at >= end) return refuse(c, "it leaves the function of %" PRId64 " words", end, 0);
    o->n = is_list ? code[at++] : 1;
    if (o->n > end - at) return refuse(c, "it leaves the function of %" PRId64 " words", end, 0);
    o->words = code + at;
    at += o->n;
  }
  *out_next = at;
  return SVM_OK;
}

/* Number of values that an operand of this kind may name. */
static int64_t limit_of(const checker *c, char kind) {
  switch (kind) {
    case 'd':
    case 's':
    case 'D':
    case 'S': return c->f->info.n_registers;
    case 't': return SVM_DTYPE_COUNT;
    case 'x': return SVM_N_STRING_FUNCTIONS;
    case 'c': return c->p->n_constants;
    case 'k': return c->p->n_kernels;
    case 'f': return c->p->n_functions;
    case 'n': return c->p->n_strings;
    default: return INT64_MAX; /* immediates, labels */
  }
}

static int32_t check_twice(checker *c, const operand *o) {
  c->stamp++;
  for (uint32_t i = 0; i < o->n; i++) {
    if (c->seen[o->words[i]] == c->stamp)
      return refuse(c, "register r%" PRId64 " is a result twice", o->words[i], 0);
    c->seen[o->words[i]] = c->stamp;
  }
  return SVM_OK;
}

/* Rules 3, 4, 5. */
static int32_t check_operands(checker *c) {
  for (int i = 0; i < c->n_operands; i++) {
    const operand *o = &c->operands[i];
    int64_t limit = limit_of(c, o->kind);
    for (uint32_t j = 0; j < o->n; j++) {
      if (o->words[j] >= limit)
        return refuse(c, "operand %" PRId64 " is out of range, there are %" PRId64, o->words[j], limit);
    }
    if (o->kind == 'D' && check_twice(c, o)) return c->error->code;
  }
  return SVM_OK;
}

static int32_t check_arity(checker *c, const char *what, int64_t given, int64_t wanted) {
  char format[100];
  if (given == wanted) return SVM_OK;
  snprintf(format, sizeof format, "%%" PRId64 " %s given, %%" PRId64 " wanted", what);
  return refuse(c, format, given, wanted);
}

static int32_t check_call(checker *c) {
  const svm_function_info *callee = &c->p->functions[c->operands[0].words[0]].info;
  int32_t code = check_arity(c, "args", c->operands[2].n, callee->n_params);
  return code ? code : check_arity(c, "results", c->operands[1].n, callee->n_results);
}

static int32_t check_kernel(checker *c) {
  const svm_kernel_info *k = &c->p->kernels[c->operands[0].words[0]].info;
  int32_t code = check_arity(c, "dims", c->operands[1].n, k->n_dims);
  return code ? code : check_arity(c, "buffers", c->operands[2].n, k->n_buffers);
}

/* An output is no other operand as well. */
static int32_t check_outputs(checker *c) {
  const operand *args = &c->operands[2];
  if (check_twice(c, &c->operands[1])) return c->error->code;
  for (uint32_t i = 0; i < args->n; i++)
    if (c->seen[args->words[i]] == c->stamp)
      return refuse(c, "register r%" PRId64 " is an output and an argument", args->words[i], 0);
  return SVM_OK;
}

/* Rules 6 to 12. */
static int32_t check_meaning(checker *c, uint32_t opcode) {
  switch (opcode) {
    case SVM_OP_RETURN: return check_arity(c, "values", c->operands[0].n, c->f->info.n_results);
    case SVM_OP_CALL: return check_call(c);
    case SVM_OP_KERNEL: return check_kernel(c);
    case SVM_OP_CALL_DPS: return check_outputs(c);
    case SVM_OP_TEXT:
      return check_arity(c, "args", c->operands[2].n,
                         string_function_n_args((int32_t)c->operands[1].words[0]));
    case SVM_OP_ALLOC:
    case SVM_OP_VIEW:
    case SVM_OP_EXPECT:
      return c->operands[2].n > SVM_LIMIT_RANK
                 ? refuse(c, "%" PRId64 " sizes, at most %" PRId64, c->operands[2].n, SVM_LIMIT_RANK)
                 : SVM_OK;
    case SVM_OP_DIM:
      return c->operands[2].words[0] >= SVM_LIMIT_RANK
                 ? refuse(c, "axis %" PRId64 ", it must be below %" PRId64, (int32_t)c->operands[2].words[0],
                          SVM_LIMIT_RANK)
                 : SVM_OK;
    case SVM_OP_DICT:
      return c->operands[1].n % 2
                 ? refuse(c, "%" PRId64 " items, a dict takes key and value in turn", c->operands[1].n, 0)
                 : SVM_OK;
    default: return SVM_OK;
  }
}

/* Rules 13 to 15, when the starts of all instructions are known. */
static int32_t check_flow(checker *c, uint32_t last) {
  uint32_t next;
  for (c->pc = 0; c->pc < c->f->n_words; c->pc = next) {
    decode(c, &next); /* cannot fail the second time */
    for (int i = 0; i < c->n_operands; i++) {
      if (c->operands[i].kind != 'L') continue;
      uint32_t to = c->operands[i].words[0];
      if (to >= c->f->n_words || !c->starts[to])
        return refuse(c, "label %" PRId64 " is no instruction's start", to, 0);
    }
  }
  c->pc = last;
  c->op = &OPERATIONS[c->f->code[last]];
  if (!(c->op->flags & SVM_FLAG_ENDS))
    return refuse(c, "the function's last instruction does not end it", 0, 0);
  for (uint32_t i = 0; i < c->f->n_lines; i++) {
    const svm_file_line *line = &c->f->lines[i];
    int is_ordered = !i || line->pc > c->f->lines[i - 1].pc;
    if (line->pc >= c->f->n_words || !c->starts[line->pc] || !is_ordered)
      return refuse(c, "line %" PRId64 " has pc %" PRId64 ", no instruction's start or out of order", i,
                    line->pc);
    if (!load_string(c->p, line->source, "LINES", c->error)) return c->error->code;
  }
  return SVM_OK;
}

/* Remember the first call of each host function, packed or into given tensors; collect_externs numbers them.
 */
static void note_extern(checker *c) {
  uint32_t opcode = c->f->code[c->pc], name = c->operands[0].words[0];
  if (opcode != SVM_OP_CALL_PACKED && opcode != SVM_OP_CALL_DPS) return;
  int32_t kind = opcode == SVM_OP_CALL_DPS ? SVM_EXTERN_DPS : SVM_EXTERN_PACKED;
  extern_slot *slot = &c->p->externs[extern_key(name, kind)];
  if (slot->name) return;
  *slot = (extern_slot){.name = c->p->strings[name], .kind = kind, .first_call = {c->index, c->pc}};
  c->p->n_externs++;
}

static int32_t check_function(checker *c) {
  uint32_t next, last = 0;
  for (c->pc = 0; c->pc < c->f->n_words; c->pc = next) {
    c->starts[c->pc] = 1;
    last = c->pc;
    if (decode(c, &next) || check_operands(c) || check_meaning(c, c->f->code[c->pc])) return c->error->code;
    if (c->op->flags & SVM_FLAG_DATA) c->p->functions[c->index].info.is_static_flow = 0;
    c->p->makes_scalars |= c->f->code[c->pc] == SVM_OP_SCALAR;
    note_extern(c);
  }
  return check_flow(c, last);
}

static int32_t verify_function(svm_program *p, int32_t index, svm_error *error) {
  const function *f = &p->functions[index];
  checker c = {.p = p, .f = f, .index = index, .error = error};
  c.starts = calloc(f->n_words, 1);
  c.seen = calloc((size_t)f->info.n_registers + 1, sizeof *c.seen);
  int32_t code = c.starts && c.seen
                     ? check_function(&c)
                     : status_fail(error, SVM_ERROR_MEMORY,
                                   "memory: there is none for verifying function \"%.100s\"", f->info.name);
  free(c.starts);
  free(c.seen);
  return code;
}

/* Flow ----------------------------------------------------------------------------------------- */

typedef struct edges {
  uint32_t *begin; /* per callee: where its callers begin in `callers`; one more at the end */
  int32_t *callers, *work;
} edges;

/* Visit all calls: count them per callee (`callers` NULL), or fill in their callers. */
static void visit_calls(svm_program *p, uint32_t *slots, int32_t *callers) {
  for (int32_t i = 0; i < p->n_functions; i++) {
    checker c = {.p = p, .f = &p->functions[i], .index = i};
    uint32_t next;
    for (; c.pc < c.f->n_words; c.pc = next) {
      decode(&c, &next);
      if (c.f->code[c.pc] != SVM_OP_CALL) continue;
      uint32_t at = slots[c.operands[0].words[0]]++;
      if (callers) callers[at] = i;
    }
  }
}

/* begin[f] becomes the end of f's callers while they are filled in, which is the beginning of f + 1's. */
static int32_t find_callers(svm_program *p, edges *e, svm_error *error) {
  size_t n = (size_t)p->n_functions;
  uint32_t total = 0;
  e->begin = calloc(n + 2, sizeof *e->begin);
  e->work = calloc(n + 1, sizeof *e->work);
  if (e->begin && e->work) {
    visit_calls(p, e->begin + 1, NULL);
    for (size_t i = 0; i <= n; i++) total = e->begin[i] += total;
    e->callers = calloc((size_t)total + 1, sizeof *e->callers);
  }
  if (!e->callers)
    return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for the graph of calls");
  memmove(e->begin + 1, e->begin, n * sizeof *e->begin);
  visit_calls(p, e->begin + 1, e->callers);
  return SVM_OK;
}

/* A caller of a function that is not static-flow is none either. */
static int32_t spread_flow(svm_program *p, svm_error *error) {
  edges e = {0};
  int32_t code = find_callers(p, &e, error), n = 0;
  for (int32_t i = 0; !code && i < p->n_functions; i++) {
    if (!p->functions[i].info.is_static_flow) e.work[n++] = i;
  }
  while (n) {
    int32_t callee = e.work[--n];
    for (uint32_t i = e.begin[callee]; i < e.begin[callee + 1]; i++) {
      int32_t *is_static = &p->functions[e.callers[i]].info.is_static_flow;
      if (*is_static) e.work[n++] = e.callers[i];
      *is_static = 0;
    }
  }
  free(e.begin);
  free(e.callers);
  free(e.work);
  return code;
}

/* Number the host functions that the code calls, in order of their names' strings. */
static void collect_externs(svm_program *p) {
  for (int64_t i = 0, n = 0; i < 2 * (int64_t)p->n_strings; i++) {
    if (!p->externs[i].name) continue;
    p->extern_of_key[i] = (int32_t)n;
    p->externs[n++] = p->externs[i]; /* n <= i */
  }
  p->n_externs_missing = p->n_externs;
}

static int32_t check_names(const svm_program *p, svm_error *error) {
  uint8_t *used =
      calloc((size_t)p->n_strings, 1); /* equal names are equal strings if each string occurs once */
  if (!used) return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for the names of functions");
  const svm_file_function *rows = (const svm_file_function *)p->image.sections[SVM_SECTION_FUNCTIONS].data;
  int32_t code = SVM_OK;
  for (int32_t i = 0; i < p->n_functions && !code; i++) {
    if (used[rows[i].name]++)
      code = status_fail(error, SVM_ERROR_ARTIFACT,
                         "artifact: two functions are called \"%.100s\"; export it again",
                         p->functions[i].info.name);
  }
  free(used);
  return code;
}

/* What follows from the flow of a contract's function. */
static void finish_contract(svm_program *p, contract *k) {
  k->is_static = p->functions[k->function].info.is_static_flow;
  k->is_planned &= k->is_static || !k->writes;
  for (int32_t i = 0; i < k->n_inputs; i++) k->n_key += is_in_key(k, i);
  int has_values = k->n_key > 1 + p->io.n_symbols;
  k->plans_at_once = k->is_static && !(has_values && p->makes_scalars);
  p->io.n_key = k->n_key > p->io.n_key ? k->n_key : p->io.n_key;
}

int32_t verify_program(svm_program *p, svm_error *error) {
  size_t n_keys = 2 * (size_t)p->n_strings;
  p->extern_of_key = calloc(n_keys + 1, sizeof *p->extern_of_key);
  p->externs = calloc(n_keys + 1, sizeof *p->externs); /* by key until they are numbered */
  if (!p->extern_of_key || !p->externs)
    return status_fail(error, SVM_ERROR_MEMORY, "memory: there is none for the table of host functions");
  if (check_names(p, error)) return error->code;
  for (int32_t i = 0; i < p->n_functions; i++) {
    int32_t code = verify_function(p, i, error);
    if (code) return code;
  }
  if (spread_flow(p, error)) return error->code;
  for (int32_t i = 0; i < p->io.n_contracts; i++) finish_contract(p, &p->io.contracts[i]);
  collect_externs(p);
  return SVM_OK;
}
