/* Profiles: which sizes main was called with. */
#pragma once

#include "program/program.h"

typedef struct profile profile;

/* Nanoseconds of a monotonic clock. */
int64_t profile_now(void);

/* Count one call of main that took `ns`. Called without the lock. */
void profile_count(svm_program *p, const int64_t *symbols, int64_t ns);

void profile_free(profile *x);
