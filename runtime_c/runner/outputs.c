/* Outputs, written as numpy files. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/runner.h"

/* Tensors by name; scalars become 0-d, elements of containers "name.key". */
typedef struct outputs {
  char **names;
  svm_tensor *tensors;
  int64_t *scalars;     /* memory of the 0-d ones */
  int32_t n, n_visited; /* values, containers too */
} outputs;

enum { MAX_OUTPUTS = 4096 };

static int add_text(outputs *o, const svm_value *v) {
  uint32_t *points = calloc((size_t)v->length + 1, sizeof *points);
  if (!points) return out_of_memory("an output that is a str");
  int64_t n = npy_code_points(v->text, v->length, points);
  o->tensors[o->n] = (svm_tensor){.data = points, .dtype = NPY_TEXT, .sizes = {n ? n : 1}};
  return 0;
}

static int add_output(outputs *o, const char *name, const svm_value *v) {
  if (o->n_visited++ == MAX_OUTPUTS) {
    fprintf(stderr, "shapevm-run: the results hold over %d values, at %.200s; write fewer or use Python\n",
            MAX_OUTPUTS, name);
    return EXIT_RUN;
  }
  svm_tensor *t = &o->tensors[o->n];
  if (v->tag == SVM_TAG_LIST || v->tag == SVM_TAG_TUPLE || v->tag == SVM_TAG_DICT) {
    for (int64_t i = 0; i < v->length; i++) {
      char inner[600];
      svm_value key, item;
      svm_value_item(v, i, &key, &item); /* i is in range */
      if (key.tag == SVM_TAG_STR) snprintf(inner, sizeof inner, "%.250s.%.250s", name, key.text);
      else snprintf(inner, sizeof inner, "%.250s.%" PRId64, name, key.integer);
      int code = add_output(o, inner, &item);
      if (code) return code;
    }
    return 0;
  }
  *t = (svm_tensor){.data = &o->scalars[o->n]};
  if (v->tag == SVM_TAG_STR) {
    int code = add_text(o, v);
    if (code) return code;
  } else if (v->tag == SVM_TAG_TENSOR) *t = v->tensor;
  else if (v->tag == SVM_TAG_INT) t->dtype = SVM_DTYPE_I64, memcpy(t->data, &v->integer, 8);
  else if (v->tag == SVM_TAG_FLOAT) t->dtype = SVM_DTYPE_F64, memcpy(t->data, &v->number, 8);
  else if (v->tag == SVM_TAG_BOOL) t->dtype = SVM_DTYPE_BOOL, *(uint8_t *)t->data = v->integer != 0;
  else return usage("an output is none, which numpy's files do not hold", name);
  o->names[o->n] = strdup(name);
  return o->names[o->n++] ? 0 : out_of_memory("the outputs' names");
}

int32_t n_outputs_of(const invocation *call) { return svm_function_n_outputs(call->program, call->function); }

/* State that the call wrote in place is also written, like returned state. */
int write_outputs(const invocation *call, const char *path, const svm_value *inputs,
                  const svm_value *values) {
  outputs o = {calloc(MAX_OUTPUTS, sizeof *o.names), calloc(MAX_OUTPUTS, sizeof *o.tensors),
               calloc(MAX_OUTPUTS, 8), 0, 0};
  int code = o.names && o.tensors && o.scalars ? 0 : out_of_memory("the table of outputs");
  for (int32_t i = 0; !code && i < n_outputs_of(call); i++)
    code = add_output(&o, svm_function_output(call->program, call->function, i)->name, &values[i]);
  for (int32_t i = 0; !code && i < n_inputs_of(call); i++)
    if (svm_function_writes(call->program, call->function, i))
      code = add_output(&o, input_of(call, i)->name, &inputs[i]);
  size_t n = strlen(path);
  int is_npy = n > 4 && !strcmp(path + n - 4, ".npy");
  svm_error error;
  if (!code && is_npy && o.n != 1)
    code = usage("an .npy holds one output, the model gives several: write an .npz", path);
  if (!code && (is_npy ? npy_write(path, o.tensors, &error)
                       : npz_write(path, (const char *const *)o.names, o.tensors, o.n, &error)))
    code = report(EXIT_RUN, &error);
  for (int32_t i = 0; i < o.n; i++) {
    if (o.tensors[i].dtype == NPY_TEXT) free(o.tensors[i].data);
    free(o.names[i]);
  }
  free(o.names);
  free(o.tensors);
  free(o.scalars);
  return code;
}
