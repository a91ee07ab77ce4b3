/* The contract of an entry point. */
#pragma once

#include "program/program.h"

/* The contract of a function, NULL where the host's calls of it are not checked or there is none. */
static inline contract *contract_of(const svm_program *p, int32_t function) {
  return p && function >= 0 && function < p->n_functions ? p->functions[function].contract : NULL;
}

/* Whether calls of an entry point have plans, or may get them. */
static inline int contract_is_planned(const contract *k) {
  return k->is_planned && !atomic_load_explicit(&k->is_never_planned, memory_order_relaxed);
}

/* Check the inputs of an entry point, bind the symbols; those that it does not bind become 0. */
int32_t contract_bind(const svm_program *p, const contract *k, const svm_value *inputs, int32_t n_inputs,
                      int64_t *symbols, svm_error *error);
