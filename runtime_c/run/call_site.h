/* Call sites: the entries of each kernel, found by dims. */
#pragma once

#include "run/entry.h"

/* Find the entry of these dims, or make it after checking the launch's sizes. Lock-free on a hit. */
int32_t site_find(svm_program *p, int32_t kernel, const int64_t *dims, entry **out, svm_error *error);

/* Called with the lock held (site_lookup also during a call: between context_enter and context_leave). */
int32_t site_find_locked(svm_program *p, int32_t kernel, const int64_t *dims, entry **out, svm_error *error);
entry *site_lookup(const kernel *k, const int64_t *dims);
void site_free(kernel *k);

/* The first entry in or after slot *i of the site, NULL if there is none; *i advances past it. Called with
 * the lock held. */
entry *site_next(const call_site *s, uint64_t *i);
