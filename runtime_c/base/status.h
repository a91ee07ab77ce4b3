/* Errors inside the runtime: a code is returned, the sentence goes into svm_error. */
#ifndef SVM_STATUS_H
#define SVM_STATUS_H

#include "svm.h"

/* Fill *error (not NULL inside the runtime: the API puts its own where the caller has none) and return
 * `code`; the place in the program becomes unknown. */
int32_t status_fail(svm_error *error, int32_t code, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* Empty *error: code SVM_OK, no message. */
void status_clear(svm_error *error);

#endif
