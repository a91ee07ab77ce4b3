/* The message for an operand whose value its row of vm/isa.py does not allow. */
#include "run/operands.h"

#include "base/status.h"
#include "run/instructions.gen.h"

typedef struct operand {
  uint32_t opcode;
  char kind;
  const char *name;
  uint32_t tags; /* that it may hold, 0: any */
  uint32_t like; /* index of the word of the operand whose tag it has, 0: none */
  const char *takes;
} operand;

#define OPERAND(constant, kind, name, tags, like, takes) {SVM_OP_##constant, kind, name, tags, like, takes},
static const operand OPERANDS[] = {SVM_OPERANDS(OPERAND)};

#define NAME(code, constant, name, operands, flags, effect) name,
static const char *const NAMES[] = {SVM_OPCODES(NAME)};

static int32_t fail(const operand *o, value found, const char *takes, svm_error *error) {
  return status_fail(error, SVM_ERROR_KIND, "%s: operand %s is %s %s; it takes %s", NAMES[o->opcode], o->name,
                     found.tag == SVM_TAG_INT ? "an" : "a", tag_name(found.tag), takes);
}

static int32_t check(const operand *o, value found, const value *r, const uint32_t *pc, svm_error *error) {
  if (o->tags && !(o->tags >> found.tag & 1)) return fail(o, found, o->takes, error);
  if (!o->like || found.tag == r[pc[o->like]].tag) return SVM_OK;
  return fail(o, found, r[pc[o->like]].tag == SVM_TAG_INT ? "an int" : tag_name(r[pc[o->like]].tag), error);
}

int32_t operands_check(const value *r, const uint32_t *pc, svm_error *error) {
  uint32_t at = 1;
  for (size_t i = 0; i < sizeof OPERANDS / sizeof *OPERANDS; i++) {
    const operand *o = &OPERANDS[i];
    if (o->opcode != *pc) continue;
    uint32_t n = o->kind == 'S' || o->kind == 'D' ? pc[at++] : 1;
    for (uint32_t j = 0; j < n; j++)
      if ((o->tags || o->like) && check(o, r[pc[at + j]], r, pc, error)) return error->code;
    at += n;
  }
  return SVM_OK;
}
