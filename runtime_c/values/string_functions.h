/* TorchScript's methods of strings, which work on bytes: the functions of the opcode `text`. Their table is
 * STRING_FUNCTIONS of vm/isa.py; their results are defined by vm/string_functions.py. */
#pragma once

#include "values/value.h"

enum { MAX_STRING_ARGS = 4 };

/* Number of arguments of a function. */
int32_t string_function_n_args(int32_t function);

/* Call a function with as many arguments as it takes; their tags are checked. */
int32_t string_function_call(memory_budget *budget, int32_t function, const value *args, value *result,
                             svm_error *error);

/* The bytes of the strings in a value, including a list's overhead for each. */
int64_t string_n_bytes(value v);

/* A bool, int or float as TorchScript writes it: "True", "2", "2.", "0.10000000000000001". */
int32_t string_of_number(memory_budget *budget, value v, value *result, svm_error *error);

/* --- string_formats.c, for string_functions.c --- */

/* A call of a function. */
typedef struct string_call {
  memory_budget *budget;
  const value *args;
  value *result;
  svm_error *error;
} string_call;

int32_t string_hex(const string_call *c);
int32_t string_oct(const string_call *c);
int32_t string_bin(const string_call *c);
int32_t string_int(const string_call *c);
int32_t string_float(const string_call *c);
int32_t string_format(const string_call *c);
int32_t string_percent(const string_call *c);
