/* Host functions: `r` are the frame's registers, `pc` is the instruction. */
#pragma once

#include "run/context.h"

/* `call_packed`, `call_dps`: a function of the host's. */
int32_t extern_packed(call *c, value *r, const uint32_t *pc);
int32_t extern_dps(call *c, const value *r, const uint32_t *pc);

/* Whether a program calls `name` there: "a::b" also matches torch's form "a::b.default". */
int extern_is_named(const extern_slot *slot, const char *name);
