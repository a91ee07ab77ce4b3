/* Plug-ins: shared libraries that register functions for programs to call. Only the host names them, no
 * artifact does. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "run/extern.h"
#include "svm_plugin.h"

static const svm_plugin_values VALUES = {svm_value_tensor, svm_value_item, svm_value_make, svm_value_release};

static int calls(const svm_program *p, const char *name, int32_t kind) {
  for (int32_t i = 0; i < p->n_externs; i++)
    if (p->externs[i].kind == kind && extern_is_named(&p->externs[i], name)) return 1;
  return 0;
}

static int32_t add_packed(svm_registry *r, const char *name, svm_extern function, void *context) {
  if (!calls(r->program, name, SVM_EXTERN_PACKED)) return SVM_OK;
  return svm_register_extern(r->program, name, function, context, r->error);
}

static int32_t add_dps(svm_registry *r, const char *name, svm_dps function, void *context) {
  if (!calls(r->program, name, SVM_EXTERN_DPS)) return SVM_OK;
  return svm_register_dps(r->program, name, function, context, r->error);
}

static int32_t start(svm_program *p, const char *path, void *library, svm_error *error) {
  int32_t (*abi)(void);
  svm_plugin_start init;
  *(void **)&abi = dlsym(library, "svm_plugin_abi");
  *(void **)&init = dlsym(library, "svm_plugin_init");
  if (!abi || !init)
    return status_fail(
        error, SVM_ERROR_EXTERN,
        "plug-in \"%.300s\" has no %s; define its init function with SVM_PLUGIN of svm_plugin.h", path,
        init ? "svm_plugin_abi" : "svm_plugin_init");
  if (abi() != SVM_PLUGIN_ABI)
    return status_fail(
        error, SVM_ERROR_EXTERN,
        "plug-in \"%.300s\" is of ABI version %d; this runtime takes version %d: compile it with the "
        "svm_plugin.h of this runtime",
        path, abi(), SVM_PLUGIN_ABI);
  svm_registry registry = {
      .packed = add_packed, .dps = add_dps, .values = &VALUES, .error = error, .program = p};
  status_clear(error);
  int32_t code = init(&registry);
  error->message[SVM_MESSAGE_BYTES - 1] = 0;
  if (!code) return SVM_OK;
  char why[SVM_MESSAGE_BYTES];
  memcpy(why, error->message, sizeof why);
  return status_fail(error, SVM_ERROR_EXTERN, "plug-in \"%.300s\" does not start: %.600s", path,
                     *why ? why : "its svm_plugin_init gives no reason");
}

int32_t svm_load_plugin(svm_program *p, const char *path, svm_error *error) {
  if (status_need(p, "svm_load_plugin: program", error) || status_need(path, "svm_load_plugin: path", error))
    return SVM_ERROR_ARGUMENT;
  svm_error unasked;
  error = error ? error : &unasked;
  char full[4096];
  int n = snprintf(full, sizeof full, "%s%s", strchr(path, '/') ? "" : "./", path);
  void *library = n < (int)sizeof full ? dlopen(full, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library) return start(p, path, library, error);
  const char *why = n < (int)sizeof full ? dlerror() : "the path is too long";
  return status_fail(error, SVM_ERROR_EXTERN, "plug-in \"%.300s\" cannot be loaded: %.500s", path,
                     why ? why : "unknown");
}
