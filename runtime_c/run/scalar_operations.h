/* Arithmetic and comparisons of scalars, by opcode. Only the interpreter's loop uses them: where the opcode
 * is known, one operation is left. */
#pragma once

#include <inttypes.h>

#include "base/status.h"
#include "run/instructions.gen.h"
#include "values/value.h"

static int32_t fail_overflow(const char *name, int64_t a, int64_t b, svm_error *error) {
  return status_fail(error, SVM_ERROR_OVERFLOW, "%s: %" PRId64 " and %" PRId64 " give an int over 64 bits",
                     name, a, b);
}

static int32_t int_operation(int32_t opcode, const char *name, int64_t x, int64_t y, int64_t *out,
                             svm_error *error) {
  int overflows = 0;
  if (opcode == SVM_OP_FLOORDIV || opcode == SVM_OP_MOD) {
    if (y == 0) return status_fail(error, SVM_ERROR_DIVISION, "%s: %" PRId64 " is divided by 0", name, x);
    if (y == -1) {
      overflows = opcode == SVM_OP_FLOORDIV && __builtin_sub_overflow((int64_t)0, x, out);
      if (opcode == SVM_OP_MOD) *out = 0;
    } else {
      int64_t rest = x % y, down = rest != 0 && (rest < 0) != (y < 0);
      *out = opcode == SVM_OP_FLOORDIV ? x / y - down : rest + (down ? y : 0);
    }
    return overflows ? fail_overflow(name, x, y, error) : SVM_OK;
  }
  switch (opcode) {
    case SVM_OP_ADD: overflows = __builtin_add_overflow(x, y, out); break;
    case SVM_OP_SUB: overflows = __builtin_sub_overflow(x, y, out); break;
    case SVM_OP_MUL: overflows = __builtin_mul_overflow(x, y, out); break;
    case SVM_OP_WRAPPING_ADD: *out = (int64_t)((uint64_t)x + (uint64_t)y); break;
    case SVM_OP_WRAPPING_SUB: *out = (int64_t)((uint64_t)x - (uint64_t)y); break;
    case SVM_OP_WRAPPING_MUL: *out = (int64_t)((uint64_t)x * (uint64_t)y); break;
    case SVM_OP_MIN: *out = x < y ? x : y; break;
    default: *out = x > y ? x : y; break; /* max */
  }
  return overflows ? fail_overflow(name, x, y, error) : SVM_OK;
}

/* Of two ints, two floats or two strings. */
static int64_t compare(int32_t opcode, value a, value b) {
  int64_t order = a.tag == SVM_TAG_STR ? text_compare(a.text, b.text) : 0;
  int are_ints = a.tag == SVM_TAG_INT, are_floats = a.tag == SVM_TAG_FLOAT;
  int is_less = are_ints ? a.integer < b.integer : are_floats ? a.number < b.number : order < 0;
  int is_equal = are_ints ? a.integer == b.integer : are_floats ? a.number == b.number : order == 0;
  return opcode == SVM_OP_EQ   ? is_equal
         : opcode == SVM_OP_NE ? !is_equal
         : opcode == SVM_OP_LT ? is_less
                               : is_less || is_equal;
}

static double float_operation(int32_t opcode, double x, double y) {
  return opcode == SVM_OP_FADD   ? x + y
         : opcode == SVM_OP_FSUB ? x - y
         : opcode == SVM_OP_FMUL ? x * y
                                 : x / y;
}
