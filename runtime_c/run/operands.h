/* Operands of instructions. */
#pragma once

#include "run/context.h"

/* Whether all registers that an instruction reads match its row; an error for the first that does not. */
int32_t operands_check(const value *r, const uint32_t *pc, svm_error *error);
