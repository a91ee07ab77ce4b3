/* Profiles: which sizes main was called with. */
#ifndef SVM_PROFILE_H
#define SVM_PROFILE_H

#include "program/program.h"

typedef struct profile profile;

/* Nanoseconds of a clock that only goes on. */
int64_t profile_now(void);

/* Count one call of main that took `ns`. Called without the lock. */
void profile_count(svm_program *p, const int64_t *symbols, int64_t ns);

void profile_free(profile *x);

#endif
