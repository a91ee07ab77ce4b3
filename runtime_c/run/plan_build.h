/* From a trace to a plan. */
#pragma once

#include "run/plan.h"

/* Trace the call's function for the key: *out is NULL without an error when the trace was given up. */
int32_t plan_make(call *c, const value *args, const int64_t *key, plan **out);
