/* Running plans. */
#pragma once

#include "run/plan.h"

/* Launch all steps; `bases` as in buffer_ref. */
int32_t plan_replay(call *c, const plan *made, void *const *bases);
