/* The interpreter. It runs an entry point when flow depends on what kernels compute, and traces it when not:
 * then `kernel` records, `alloc` only numbers. The verifier has bounded every register, constant, jump and
 * arity; tags are checked here. */
#include "run/interpreter.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "run/compile_queue.h"
#include "run/extern.h"
#include "run/frames.h"
#include "run/instructions.gen.h"
#include "run/launch.h"
#include "run/operands.h"
#include "run/scalar_operations.h"
#include "run/tensor.h"
#include "run/trace.h"
#include "values/string_functions.h"

/* Errors --------------------------------------------------------------------------------------- */

static int32_t fail_guard(const char *message, svm_error *error) {
  return status_fail(error, SVM_ERROR_GUARD, "%.900s",
                     *message ? message : "guard: the program gives no reason");
}

/* Launches and containers -------------------------------------------------------------------- */

/* Launch or record. On an error of the kernel itself the scratch rt holds it. */
static int32_t do_kernel(call *c, const frame *f, const uint32_t *pc) {
  const value *r = c->context->registers + f->base;
  svm_program *p = c->program;
  const uint32_t *to = pc + SVM_AT_KERNEL_DIMS(pc), *buffers = pc + SVM_AT_KERNEL_BUFFERS(pc);
  int32_t n_dims = (int32_t)*to++, n_buffers = (int32_t)*buffers++;
  int64_t dims[SVM_LIMIT_DIMS];
  for (int32_t i = 0; i < n_dims; i++) {
    value v = r[to[i]];
    if (!SVM_FITS_KERNEL_DIMS(v.tag)) return operands_check(r, pc, c->error);
    dims[i] = v.integer;
  }
  entry *e;
  if (launch_check(p, (int32_t)pc[1], dims, r, buffers, &e, c->error)) return c->error->code;
  if (c->recorder) {
    return record_launch(c, e, r, buffers, n_buffers, (int32_t)(f->function - p->functions),
                         (uint32_t)(pc - f->function->code));
  }
  void *data[SVM_LIMIT_BUFFERS];
  for (int is_output = 0; is_output < 2; is_output++) { /* what is read, then what is written */
    for (int32_t i = 0; i < n_buffers; i++) {
      storage *s = r[buffers[i]].tensor->memory;
      if (p->kernels[pc[1]].buffers[i].is_output != is_output) continue;
      data[i] = s->data;
      if (s->is_unset) is_output ? (void)(s->is_unset = 0) : storage_clear(s);
    }
  }
  if (entry_prepare(c, e)) return c->error->code;
  if (launch_run(e, entry_code(e, c->strategy), data, &c->context->rt))
    return launch_fail(p, e, &c->context->rt, c->error);
  return SVM_OK;
}

static int32_t do_container(call *c, value *r, int32_t tag, const uint32_t *pc) {
  uint32_t n = pc[2];
  value few[16] = {0}, made, *items = n <= 16 ? few : malloc(n * sizeof *items);
  if (!items)
    return status_fail(c->error, SVM_ERROR_MEMORY, "memory: there is none for a %s of %" PRIu32 " values",
                       tag_name(tag), n);
  for (uint32_t i = 0; i < n; i++) items[i] = r[pc[3 + i]];
  int32_t code = sequence_make(&c->budget, tag, n, items, &made, c->error);
  if (items != few) free(items);
  if (code) return code;
  value_drop(&c->budget, &r[pc[1]]);
  r[pc[1]] = made;
  return SVM_OK;
}

/* The loop ------------------------------------------------------------------------------------- */

#define R(i) r[pc[i]]
#define NEXT(n_words)                                                    \
  do {                                                                   \
    int64_t n_words_ = (n_words);                                        \
    pc += n_words_;                                                      \
    if ((slice -= 1 + n_words_ / WORDS_PER_FUEL) < 0) goto end_of_slice; \
    goto *LABELS[*pc];                                                   \
  } while (0)
#define SPEND(n)                                                     \
  do {                                                               \
    int64_t n_ = (n);                                                \
    if ((slice -= n_) < 0) { /* on a copy: slice is in a register */ \
      int64_t short_ = slice;                                        \
      TRY(next_slice(c, &short_));                                   \
      slice = short_;                                                \
    }                                                                \
  } while (0)
#define SET(i, ...)                \
  do {                             \
    value made_ = __VA_ARGS__;     \
    value_drop(&c->budget, &R(i)); \
    R(i) = made_;                  \
  } while (0)
#define TRY(expression)        \
  do {                         \
    if (expression) goto fail; \
  } while (0)
#define NEXT_OF(constant) NEXT(SVM_WORDS_##constant(pc))
/* Registers outside of lists hold the tags required by the row of vm/isa.py. */
#define CHECK(constant)                                  \
  do {                                                   \
    if (!SVM_FITS_##constant(r, pc)) goto wrong_operand; \
  } while (0)
#define INTS(constant, name)                                                                  \
  op_##constant : {                                                                           \
    CHECK(constant);                                                                          \
    int64_t made = 0;                                                                         \
    TRY(int_operation(SVM_OP_##constant, name, R(2).integer, R(3).integer, &made, c->error)); \
    SET(1, (value){SVM_TAG_INT, {made}});                                                     \
    NEXT_OF(constant);                                                                        \
  }
#define FLOATS(constant)                                                        \
  op_##constant : {                                                             \
    CHECK(constant);                                                            \
    double made = float_operation(SVM_OP_##constant, R(2).number, R(3).number); \
    SET(1, (value){SVM_TAG_FLOAT, {.number = made}});                           \
    NEXT_OF(constant);                                                          \
  }
#define COMPARISON(constant)                               \
  op_##constant : {                                        \
    CHECK(constant);                                       \
    int64_t made = compare(SVM_OP_##constant, R(2), R(3)); \
    SET(1, (value){SVM_TAG_BOOL, {made}});                 \
    NEXT_OF(constant);                                     \
  }
/* A list in a register as an argument that the callee takes over: moved where the result replaces it. */
static value take_list(value *r, const uint32_t *pc) {
  value list = r[pc[2]];
  if (pc[1] == pc[2]) r[pc[2]].tag = SVM_TAG_NONE;
  else value_retain(list);
  return list;
}

static int is_copied(const value *r, const uint32_t *pc) {
  return pc[1] != pc[2] || r[pc[2]].sequence->base.refs != 1;
}

/* `text`: a function of strings. *n_bytes: of those that it read and made. */
static int32_t do_text(call *c, const value *r, const uint32_t *pc, value *made, int64_t *n_bytes) {
  value args[MAX_STRING_ARGS];
  const uint32_t *from = pc + SVM_AT_TEXT_ARGS(pc);
  int32_t n = (int32_t)*from++;
  for (int32_t i = 0; i < n; i++) args[i] = r[from[i]];
  int32_t code =
      string_function_call(&c->budget, (int32_t)pc[SVM_AT_TEXT_FUNCTION(pc)], args, made, c->error);
  *n_bytes = code ? 0 : string_n_bytes(*made);
  for (int32_t i = 0; i < n; i++) *n_bytes += string_n_bytes(args[i]);
  return code;
}

#define LABEL(code, constant, name, operands, flags, effect) &&op_##constant,

/* Run the frame on top until its function returns into `results`. One long function: the loop of computed
 * gotos, one label per row of vm/isa.py; a missing one does not compile. */
static int32_t run(call *c, value *results) {
  static const void *const LABELS[] = {SVM_OPCODES(LABEL)};
  context *x = c->context;
  svm_program *p = c->program;
  int32_t depth = 0;
  frame *f = x->frames;
  value *r = x->registers + f->base;
  const uint32_t *pc = f->pc;
  int64_t slice = 0; /* instructions until the next look at fuel and watch; c->fuel is without them */
  NEXT(0);

op_RETURN:
  if (depth == 0) {
    for (uint32_t i = 0; i < pc[1]; i++) value_retain(results[i] = r[pc[2 + i]]);
    drop_registers(c, f);
    c->fuel += slice;
    return SVM_OK;
  } else {
    frame *caller = f - 1;
    const uint32_t *to = caller->pc + SVM_AT_CALL_RESULTS(caller->pc) + 1;
    value *above = x->registers + caller->base;
    for (uint32_t i = 0; i < pc[1]; i++) {
      value v = r[pc[2 + i]];
      value_retain(v);
      value_drop(&c->budget, &above[to[i]]);
      above[to[i]] = v;
    }
    drop_registers(c, f);
    depth--;
    f = caller;
    r = above;
    pc = f->pc;
    NEXT_OF(CALL);
  }
op_JUMP:
  pc = f->function->code + pc[1];
  NEXT(0);
op_BRANCH:
  CHECK(BRANCH);
  if (R(1).integer) NEXT_OF(BRANCH);
  pc = f->function->code + pc[2];
  NEXT(0);
op_CALL:
  {
    const function *callee = &p->functions[pc[1]];
    uint32_t args = SVM_AT_CALL_ARGS(pc);
    f->pc = pc;
    SPEND(callee->info.n_registers / WORDS_PER_FUEL);
    int32_t failed = push(c, depth + 1, callee, f->base + f->function->info.n_registers);
    f = x->frames + depth; /* may have moved, as registers may */
    TRY(failed);
    r = x->registers + f->base;
    value *below = r + f->function->info.n_registers;
    for (uint32_t i = 0; i < pc[args]; i++) value_retain(below[i] = r[pc[args + 1 + i]]);
    depth++;
    f++;
    r = below;
    pc = f->pc;
    NEXT(0);
  }
op_FAIL:
  TRY(fail_guard(p->strings[pc[1]], c->error));
op_GUARD:
  CHECK(GUARD);
  if (!R(1).integer) TRY(fail_guard(p->strings[pc[2]], c->error));
  NEXT_OF(GUARD);

op_MOVE:
  {
    value v = R(2);
    value_retain(v);
    SET(1, v);
    NEXT_OF(MOVE);
  }
op_CONST:
  SET(1, p->constants[pc[2]]); /* immortal if an object */
  NEXT_OF(CONST);
op_INT:
  SET(1, (value){SVM_TAG_INT, {(int32_t)pc[2]}});
  NEXT_OF(INT);
op_NONE:
  value_drop(&c->budget, &R(1));
  NEXT_OF(NONE);
op_FREE:
  for (uint32_t i = 0; i < pc[1]; i++) value_drop(&c->budget, &R(2 + i));
  NEXT_OF(FREE);

  INTS(ADD, "add")
  INTS(SUB, "sub")
  INTS(MUL, "mul")
  INTS(FLOORDIV, "floordiv")
  INTS(MOD, "mod")
  INTS(MIN, "min")
  INTS(MAX, "max")
  INTS(WRAPPING_ADD, "wrapping_add")
  INTS(WRAPPING_SUB, "wrapping_sub")
  INTS(WRAPPING_MUL, "wrapping_mul")
  COMPARISON(EQ)
  COMPARISON(NE)
  COMPARISON(LT)
  COMPARISON(LE)
op_AND:
  CHECK(AND);
  SET(1, (value){SVM_TAG_BOOL, {R(2).integer & R(3).integer}});
  NEXT_OF(AND);
op_OR:
  CHECK(OR);
  SET(1, (value){SVM_TAG_BOOL, {R(2).integer | R(3).integer}});
  NEXT_OF(OR);
op_NOT:
  CHECK(NOT);
  SET(1, (value){SVM_TAG_BOOL, {!R(2).integer}});
  NEXT_OF(NOT);

  FLOATS(FADD)
  FLOATS(FSUB)
  FLOATS(FMUL)
  FLOATS(FDIV)
op_TO_FLOAT:
  {
    CHECK(TO_FLOAT);
    value made = scalar_to_float(R(2));
    SET(1, made);
    NEXT_OF(TO_FLOAT);
  }
op_TO_INT:
  {
    CHECK(TO_INT);
    value made;
    TRY(scalar_to_int(R(2), &made, c->error));
    SET(1, made);
    NEXT_OF(TO_INT);
  }

op_ALLOC:
  {
    value made;
    TRY(tensor_alloc(c, r, pc, &made));
    SET(1, made);
    NEXT_OF(ALLOC);
  }
op_VIEW:
  {
    CHECK(VIEW);
    value made;
    TRY(tensor_view(c, r, pc, &made));
    SET(1, made);
    NEXT_OF(VIEW);
  }
op_PART:
  {
    CHECK(PART);
    value made;
    TRY(tensor_part(c, r, pc, &made));
    SET(1, made);
    NEXT_OF(PART);
  }
op_DIM:
  {
    CHECK(DIM);
    int64_t size;
    TRY(tensor_dim(R(2).tensor, (int32_t)pc[3], &size, c->error));
    SET(1, (value){SVM_TAG_INT, {size}});
    NEXT_OF(DIM);
  }
op_ITEM:
  {
    CHECK(ITEM);
    value made;
    TRY(tensor_item(c, r, pc, &made));
    SET(1, made);
    NEXT_OF(ITEM);
  }
op_SCALAR:
  {
    CHECK(SCALAR);
    value made;
    TRY(tensor_scalar(c, (int32_t)pc[2], R(3), &made));
    SET(1, made);
    NEXT_OF(SCALAR);
  }
op_KERNEL:
  TRY(do_kernel(c, f, pc));
  NEXT_OF(KERNEL);
op_CALL_PACKED:
  TRY(extern_packed(c, r, pc));
  NEXT_OF(CALL_PACKED);

op_EXPECT:
  TRY(tensor_expect(c, r, pc));
  NEXT_OF(EXPECT);

op_LIST:
  TRY(do_container(c, r, SVM_TAG_LIST, pc));
  NEXT_OF(LIST);
op_TUPLE:
  TRY(do_container(c, r, SVM_TAG_TUPLE, pc));
  NEXT_OF(TUPLE);
op_DICT:
  SPEND(sequence_n_compared(pc[2]));
  TRY(do_container(c, r, SVM_TAG_DICT, pc));
  NEXT_OF(DICT);
op_GET:
  {
    CHECK(GET);
    value found;
    if (R(2).tag == SVM_TAG_DICT) SPEND(R(2).sequence->length); /* it is searched */
    TRY(sequence_get(R(2).sequence, R(3), &found, c->error));
    value_retain(found);
    SET(1, found);
    NEXT_OF(GET);
  }
op_LEN:
  {
    CHECK(LEN);
    int64_t n = R(2).tag == SVM_TAG_STR ? R(2).text->length : R(2).sequence->length;
    SET(1, (value){SVM_TAG_INT, {n}});
    NEXT_OF(LEN);
  }
op_APPEND:
  {
    CHECK(APPEND);
    value item = R(3), made;
    if (is_copied(r, pc)) SPEND(R(2).sequence->length / WORDS_PER_FUEL);
    value_retain(item); /* it may be the list itself, or in the register that is written */
    int32_t code = sequence_append(&c->budget, take_list(r, pc), item, &made, c->error);
    value_drop(&c->budget, &item);
    TRY(code);
    SET(1, made);
    NEXT_OF(APPEND);
  }
op_SET:
  {
    CHECK(SET);
    value item = R(4), made;
    if (is_copied(r, pc)) SPEND(R(2).sequence->length / WORDS_PER_FUEL);
    value_retain(item);
    int64_t index = R(3).integer;
    int32_t code = sequence_set(&c->budget, take_list(r, pc), index, item, &made, c->error);
    value_drop(&c->budget, &item);
    TRY(code);
    SET(1, made);
    NEXT_OF(SET);
  }
op_SLICE:
  {
    CHECK(SLICE);
    value made;
    int64_t begin = R(3).integer, end = R(4).integer;
    if (is_copied(r, pc) || begin != 0) SPEND(R(2).sequence->length / WORDS_PER_FUEL);
    TRY(sequence_slice(&c->budget, take_list(r, pc), begin, end, &made, c->error));
    SET(1, made);
    NEXT_OF(SLICE);
  }

op_CONCAT:
  {
    CHECK(CONCAT);
    value made;
    SPEND((R(2).text->length + R(3).text->length) / WORDS_PER_FUEL);
    TRY(text_concat(&c->budget, R(2).text, R(3).text, &made, c->error));
    SET(1, made);
    NEXT_OF(CONCAT);
  }
op_FORMAT:
  {
    CHECK(FORMAT);
    value made;
    TRY(string_of_number(&c->budget, R(2), &made, c->error));
    SET(1, made);
    NEXT_OF(FORMAT);
  }
op_REQUIRE:
  CHECK(REQUIRE);
  if (!R(1).integer) TRY(fail_guard(R(2).text->bytes, c->error));
  NEXT_OF(REQUIRE);

op_CALL_DPS:
  TRY(extern_dps(c, r, pc));
  NEXT_OF(CALL_DPS);

op_EXPECT_ITEMS:
  CHECK(EXPECT_ITEMS);
  SPEND(R(1).sequence->length);
  TRY(items_expect(c, R(1).sequence, pc));
  NEXT_OF(EXPECT_ITEMS);

op_DISTINCT:
  {
    CHECK(DISTINCT);
    int64_t made = 0;
    SPEND(R(2).sequence->length);
    TRY(items_distinct(c, R(2).sequence, &made));
    SET(1, (value){SVM_TAG_BOOL, {made}});
    NEXT_OF(DISTINCT);
  }
op_TEXT:
  {
    value made;
    int64_t n_bytes;
    TRY(do_text(c, r, pc, &made, &n_bytes));
    SET(1, made);
    SPEND(n_bytes / WORDS_PER_FUEL);
    NEXT_OF(TEXT);
  }

end_of_slice:
  SPEND(0);
  goto *LABELS[*pc];
wrong_operand:
  operands_check(r, pc, c->error);
fail:
  if (c->error->function < 0) {
    c->error->function = (int32_t)(f->function - p->functions);
    c->error->pc = pc - f->function->code;
    c->error->source = function_source(p, c->error->function, c->error->pc);
  }
  for (; depth >= 0; depth--, f--) drop_registers(c, f);
  return c->error->code;
}

/* Copy values, sharing their objects. */
static void copy_values(value *to, const value *from, int64_t n) {
  for (int64_t i = 0; i < n; i++) value_retain(to[i] = from[i]);
}

int32_t interpret(call *c, int32_t index, const value *args, value *results) {
  const function *f = &c->program->functions[index];
  int32_t code = push(c, 0, f, 0);
  if (code) return code;
  copy_values(c->context->registers, args, f->info.n_params);
  return run(c, results);
}
