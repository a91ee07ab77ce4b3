/* A plug-in with two functions; examples/plugin/scale.py calls them from a model. Compile it with
 *   cc -O2 -shared -fPIC -I "$(python -c 'import shapevm; print(shapevm.sdk().include)')" scale.c -o scale.so */
#include "svm_plugin.h"

static int64_t n_elements(const svm_tensor *t) {
  int64_t n = 1;
  for (int32_t a = 0; a < t->rank; a++) n *= t->sizes[a];
  return n;
}

/* mylib::scale(Tensor x, float factor) -> Tensor fills the tensor that the program has made for the result. */
static int32_t scale(void *context, const svm_value *args, int32_t n_args, const svm_tensor *outputs,
                     int32_t n_outputs, svm_error *error) {
  (void)context;
  if (n_args != 2 || n_outputs != 1 || args[0].tag != SVM_TAG_TENSOR || args[1].tag != SVM_TAG_FLOAT)
    return svm_plugin_fail(error, "scale takes a tensor and a float, and gives one tensor");
  const svm_tensor *x = &args[0].tensor, *y = &outputs[0];
  if (x->dtype != SVM_DTYPE_F32 || y->dtype != SVM_DTYPE_F32 || n_elements(x) != n_elements(y))
    return svm_plugin_fail(error, "scale takes and gives f32 tensors of one size");
  for (int64_t i = 0; i < n_elements(x); i++)
    ((float *)y->data)[i] = ((const float *)x->data)[i] * (float)args[1].number;
  return SVM_OK;
}

/* mylib::positive(Tensor x) -> Tensor returns a tensor whose size only its elements tell. */
static int32_t positive(void *context, const svm_value *args, int32_t n_args, svm_value *results,
                        int32_t n_results, svm_error *error) {
  const svm_plugin_values *values = context;
  if (n_args != 1 || n_results != 1 || args[0].tag != SVM_TAG_TENSOR || args[0].tensor.dtype != SVM_DTYPE_F32)
    return svm_plugin_fail(error, "positive takes an f32 tensor and gives one");
  const float *x = args[0].tensor.data;
  int64_t n = n_elements(&args[0].tensor), kept = 0;
  for (int64_t i = 0; i < n; i++) kept += x[i] > 0;
  if (values->tensor(SVM_DTYPE_F32, 1, &kept, &results[0], error)) return error->code;
  for (int64_t i = 0, at = 0; i < n; i++)
    if (x[i] > 0) ((float *)results[0].tensor.data)[at++] = x[i];
  return SVM_OK;
}

SVM_PLUGIN(registry) {
  int32_t code = registry->dps(registry, "mylib::scale", scale, NULL);
  return code ? code : registry->packed(registry, "mylib::positive", positive, (void *)registry->values);
}
