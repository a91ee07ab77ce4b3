/* How long programs live, and the calls that use them: see lifetime.c. */
#pragma once

#include "run/context.h"

/* An open program without contents, NULL and an error without memory. */
svm_program *program_new(svm_error *error);

/* One user less: the last one frees the contents. */
void program_leave(svm_program *p);

/* Say that the program is closed. */
int32_t program_fail_closed(svm_error *error);

/* The text for svm_error.source, to be read after the call as well: until svm_release. */
const char *program_keep_source(svm_program *p, const char *text);

/* A free context, whose epoch begins: what readers load from now on is not freed before context_leave. NULL
 * and an error where the program is closed; nothing in it may be read before. */
context *context_enter(svm_program *p, svm_error *error);
void context_leave(svm_program *p, context *c);

/* At the end of a window of calls in `c`: keep the part of its arena that they needed, and nothing of the
 * arenas of long unused contexts. A window doubles each time that an arena has to grow again, so that
 * occasional sizes do not pay for each change. */
void contexts_trim(svm_program *p, context *c);
