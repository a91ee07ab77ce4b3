/* Launches of kernels. */
#pragma once

#include "run/entry.h"

/* Check a launch: dtypes, directions, element counts; and find its entry. */
int32_t launch_check(svm_program *p, int32_t kernel, const int64_t *dims, const value *registers,
                     const uint32_t *buffers, entry **out, svm_error *error);

/* Run all tiles of `code`, which is one of the entry's. */
int32_t launch_run(const entry *e, const instance *code, void *const *buffers, svm_rt *rt);

/* The error of a kernel, of the call's watch or of missing scratch memory, after launch_run returned not 0.
 */
int32_t launch_fail(const svm_program *p, const entry *e, svm_rt *rt, svm_error *error);
