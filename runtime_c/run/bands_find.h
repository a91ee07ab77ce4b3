/* Steps that are to run in bands. */
#pragma once

#include "run/trace.h"

/* Find steps of a traced plan to run in bands, whose storages still have the lifetimes of the trace; the
 * operands and results of these steps then live as long as they run. Without memory for it none are found. */
void bands_find(const call *c, recorder *r, plan *made);
