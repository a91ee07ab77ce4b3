/* The interpreter. */
#pragma once

#include "run/context.h"

/* Run a function; `args` are its n_params values (borrowed). results: n_results owned values, none on an
 * error. */
int32_t interpret(call *c, int32_t function, const value *args, value *results);
