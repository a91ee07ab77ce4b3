/* shapevm-run: the parts of the command. All that it needs of the runtime is svm.h. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "svm.h"
#include "values/npz.h"

/* Exit codes. */
enum { EXIT_DONE = 0, EXIT_USAGE = 2, EXIT_LOAD = 3, EXIT_CONTRACT = 4, EXIT_RUN = 5, EXIT_CANCELLED = 130 };

enum { DIGEST_BYTES = 32 };

/* The numbers of "sample": temperature, top-p, min-p and repetition penalty. */
enum { N_SAMPLING = 4 };

typedef struct sampling {
  int64_t most, top_k; /* most: tokens that are added, -1: generate none */
  uint64_t seed;
  double numbers[N_SAMPLING];
} sampling;

typedef struct arguments {
  const char *model, *function, *offsets, *tokens, *output, *metrics, *trace, *record;
  FILE *said; /* where times and --stats go: stderr where an output goes to stdout */
  const char **inputs, **plugins;
  int n_inputs, n_plugins, list, stats;
  int32_t threads, call_depth, nesting;
  int64_t repeat;
  sampling sampling;
  svm_options options;
  uint8_t digest[DIGEST_BYTES];
} arguments;

/* The function of the program that is called. */
typedef struct invocation {
  svm_program *program;
  int32_t function;
} invocation;

typedef struct batch {
  npy_array *arrays;
  int32_t n;
} batch;

/* Bytes that the inputs may still take, 0: no limit. */
typedef struct room {
  int64_t max, left;
} room;

/* Each prints one sentence to stderr and returns the exit code. */
int usage(const char *message, const char *value);
int report(int exit_code, const svm_error *error);
int out_of_memory(const char *what);

/* arguments.c. 0, an exit code, or -1 when all is done. */
int parse_arguments(int argc, char **argv, arguments *a);
int parse_number(const char *text, int64_t least, int64_t most, int64_t *out);

/* contract.c */
void print_contract(const svm_program *p);
void print_stats(svm_program *p, FILE *to);

/* lists.c. The list's own memory is released with the value. */
int parse_list(const char *text, svm_value *value);

/* inputs.c. An input is "NAME=FILE", "NAME=NUMBER" or "FILE.npz". */
int32_t n_inputs_of(const invocation *call);
const svm_input_info *input_of(const invocation *call, int32_t i);
int32_t find_input(const invocation *call, const char *name, size_t n);
int read_input(const invocation *call, const char *text, room *room, batch *b, svm_value *values);
int fill_state(const invocation *call, svm_value *values);

/* packed.c. Inputs of tokens become rows, by a file of offsets; the mask is made. */
int pad_inputs(const invocation *call, const char *path, room *room, batch *b, svm_value *values);

/* generate.c. The tokens of a language model behind those of a file. */
int generate(svm_program *p, const arguments *a, const svm_call_options *how);

/* outputs.c */
int32_t n_outputs_of(const invocation *call);
int write_outputs(const invocation *call, const char *path, const svm_value *inputs, const svm_value *values);
