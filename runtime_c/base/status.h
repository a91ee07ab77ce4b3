/* Errors inside the runtime: a code is returned, the sentence goes into svm_error. */
#pragma once

#include "svm.h"

/* Fill *error (NULL: ignored) and return `code`; the position in the program becomes unknown. */
int32_t status_fail(svm_error *error, int32_t code, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* SVM_OK, or the error of an argument that is NULL: `what` names it. */
int32_t status_need(const void *pointer, const char *what, svm_error *error);

/* Empty *error: code SVM_OK, no message. */
void status_clear(svm_error *error);
