/* svm_plugin.h: the header for plug-ins, shared libraries with functions that programs call.
 *
 *   #include "svm_plugin.h"
 *   static int32_t twice(void *context, const svm_value *args, int32_t n_args, const svm_tensor *outputs,
 *                        int32_t n_outputs, svm_error *error) { ... return SVM_OK; }
 *   SVM_PLUGIN(registry) { return registry->dps(registry, "mylib::twice", twice, NULL); }
 *
 * `cc -shared -fPIC -I include twice.c -o twice.so` needs no library of shapevm. Functions may be called from
 * several threads at once. docs/plug-ins.md has the details. */
#ifndef SVM_PLUGIN_H
#define SVM_PLUGIN_H

#include <stdarg.h>
#include <stdio.h>

#include "svm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Version of everything here, and of the structures of svm.h that functions take. A runtime loads plug-ins of
 * its own version. */
#define SVM_PLUGIN_ABI 1

/* Functions of svm.h for values: a plug-in is not linked with the runtime that loads it. They live as long as
 * the process, so a plug-in may register them as the context of its functions. */
typedef struct svm_plugin_values {
  int32_t (*tensor)(int32_t dtype, int32_t rank, const int64_t *sizes, svm_value *result, svm_error *error);
  int32_t (*item)(const svm_value *container, int64_t index, svm_value *key, svm_value *item);
  int32_t (*make)(int32_t tag, const svm_value *items, int64_t n, svm_value *result, svm_error *error);
  void (*release)(svm_value *value);
} svm_plugin_values;

/* The registry for a plug-in's functions, valid while svm_plugin_init runs. `packed`: a function that returns
 * values; `dps`: one that fills given tensors. Functions that the program does not call are ignored. An init
 * that returns anything but SVM_OK gives the reason in `error`. */
typedef struct svm_registry svm_registry;
struct svm_registry {
  int32_t (*packed)(svm_registry *registry, const char *name, svm_extern function, void *context);
  int32_t (*dps)(svm_registry *registry, const char *name, svm_dps function, void *context);
  const svm_plugin_values *values;
  svm_error *error;
  svm_program *program; /* the runtime's */
};

typedef int32_t (*svm_plugin_start)(svm_registry *registry);

/* The beginning of a plug-in's init function; it exports the version as well. */
#ifdef __cplusplus
#define SVM_PLUGIN_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define SVM_PLUGIN_EXPORT __attribute__((visibility("default")))
#endif
#define SVM_PLUGIN(registry)                                                \
  SVM_PLUGIN_EXPORT int32_t svm_plugin_abi(void);                           \
  SVM_PLUGIN_EXPORT int32_t svm_plugin_abi(void) { return SVM_PLUGIN_ABI; } \
  SVM_PLUGIN_EXPORT int32_t svm_plugin_init(svm_registry *registry);        \
  SVM_PLUGIN_EXPORT int32_t svm_plugin_init(svm_registry *registry)

/* Format one sentence, like printf, into `error`; returns the code that the function should return. */
__attribute__((format(printf, 2, 3), unused)) static int32_t svm_plugin_fail(svm_error *error,
                                                                             const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(error->message, sizeof error->message, format, args);
  va_end(args);
  error->code = SVM_ERROR_EXTERN;
  return SVM_ERROR_EXTERN;
}

#ifdef __cplusplus
}
#endif

#endif
